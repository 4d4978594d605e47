"""How a site's samples are divided, and whether figures of parts could single out a few samples.

A server can add and subtract the figures of parts. What it can learn in that way about few samples
follows from the parts alone:

- One seed gives one order of the samples, and every part is an interval of it. The parts cut the
  samples into cells: the samples of a cell lie in exactly the same parts. Sums of figures tell the
  cells apart, and nothing smaller.
- Of two seeds a server can take any sum of the one's cells from any sum of the other's. The
  difference is about those samples whose two cells count differently. The fewest that it can be
  about are the smallest cut of a graph, in which every sample joins its cell of the one seed with
  its cell of the other. This covers every kind of part, complements, and unions of parts.

If samples were added between two divisions, they are taken for the last ones.

Parts with fewer samples than the policy's `min_part` do not count, because no answer speaks of
them. Samples that are in no part stand for 0 in every sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fedloom.data.parts import own_order, size_of_held, size_of_test
from fedloom.data.samples import Owner, TooFewSamples
from fedloom.deploy.closed import Closed
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
NO_PART = 0  # the number of the cell of samples that are in no part


class Ordering(NamedTuple):
    """What the order of a site's samples depends on."""

    seed: int
    client: int
    samples: int


class Part(NamedTuple):
    """An interval of the samples in their order."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class Division(Closed):
    """How a site's samples are divided into test, validation and training samples."""

    seed: int
    client: int
    test: Share
    hold: Share
    samples: Count

    @property
    def ordering(self) -> Ordering:
        return Ordering(self.seed, self.client, self.samples)

    @property
    def intervals(self) -> tuple[Part, Part, Part]:
        """The test, the validation and the training part. They lie in this order: 0, 2, 1."""
        tests = size_of_test(self.samples, self.test)
        rest = self.samples - tests
        cut = self.samples - size_of_held(rest, self.hold)
        return Part(0, tests), Part(cut, self.samples), Part(tests, cut)

    def parts(self) -> list[np.ndarray]:
        """The places of the test, the validation and the training samples, each sorted."""
        order = own_order(self.seed, self.client, self.samples)
        return [np.sort(order[part.begin : part.end]) for part in self.intervals]


class Cut(Closed):
    """How a method divides a part of the training samples in two."""

    seed: int
    client: int
    samples: Count  # of the site
    begin: Count  # of the part that is divided, in the order of the seed
    at: Count  # where its second part begins
    end: Count

    @property
    def ordering(self) -> Ordering:
        return Ordering(self.seed, self.client, self.samples)

    @property
    def intervals(self) -> tuple[Part, Part]:
        return Part(self.begin, self.at), Part(self.at, self.end)


# What a policy allows


def check_division(
    new: Division,
    before: Sequence[Division],
    policy: Policy,
    cuts: Sequence[Cut] = (),
    *,
    tells_sums: bool = False,
) -> None:
    """Raise an error if this division tells too much beside the earlier ones and their cuts.

    `tells_sums`: whether sums over all samples leave, as they do for a table.
    """
    check_number_of_samples(new.samples, before, policy)
    if tells_sums:
        check_validation(new, policy)
    if len(before) >= policy.divisions:
        seeds = ", ".join(sorted({str(division.seed) for division in before})[:10])
        rule = f"this site's samples must be divided in at most {policy.divisions} ways"
        raise Refusal(rule, "this is another one", f"use a seed that was used here: {seeds}")
    check_parts(new, [*before, *cuts], policy.min_part)


def check_cut(
    new: Cut,
    before: Sequence[Cut],
    divisions: Sequence[Division],
    policy: Policy,
) -> None:
    """Raise an error if a method may not divide the training samples so."""
    if len(before) >= policy.divisions:
        most = f"at most {policy.divisions} ways"
        rule = f"methods must divide this site's training samples in {most}"
        raise Refusal(rule, "this is another one", "use a seed and options that were used here")
    check_parts(new, [*divisions, *before], policy.min_part)


def check_validation(new: Division, policy: Policy) -> None:
    """Raise an error if the sums of all samples, without those of the parts, tell a few samples.

    A small test part is the site's own choice, and stands for more samples with a validation part.
    """
    test, validation, _ = new.intervals
    if test.size >= policy.min_part and 0 < validation.size < policy.min_part:
        rule = f"a table must hold back at least {policy.min_part} rows for validation, or none"
        raise Refusal(rule, f"this would be {validation.size}", "hold back another share")


def check_number_of_samples(samples: int, before: Sequence[Division], policy: Policy) -> None:
    """Raise an error if a few samples came or went since an earlier division.

    Figures of all samples before and after tell about these few, however they are divided.
    """
    sizes = {division.samples for division in before}
    if samples in sizes:
        return
    for size in sorted(sizes):
        changed = abs(samples - size)
        if changed < policy.min_part:
            least = f"at least {policy.min_part} samples"
            rule = f"this site's data must change by {least}, or not at all"
            found = f"it has {samples} samples, and had {size} in an earlier experiment"
            raise Refusal(rule, found, "ask the site to take the data from then, or add more")


def check_parts(new: Division | Cut, before: Iterable[Division | Cut], least: int) -> None:
    """Raise an error if new parts, beside earlier ones, single out fewer samples than `least`.

    Where earlier parts do so already, the new ones are allowed if they do not make it worse.
    """
    groups: dict[Ordering, set[Part]] = {}
    for earlier in before:
        groups.setdefault(earlier.ordering, set()).update(earlier.intervals)
    parts_before = groups.pop(new.ordering, set())
    parts_after = parts_before.union(new.intervals)
    if large(parts_before, least) == large(parts_after, least):
        return
    cells_before = cells_of(new.ordering, large(parts_before, least))
    cells_after = cells_of(new.ordering, large(parts_after, least))
    others = [(new.ordering, np.full(new.samples, NO_PART))]
    for ordering, parts in groups.items():
        others.append((ordering, cells_of(ordering, large(parts, least))))
    for ordering, cells in others:
        most = max(new.samples, ordering.samples)
        others_cells = with_samples(cells, most)
        fewest = fewest_told_apart(with_samples(cells_after, most), others_cells)
        if fewest >= least:
            continue
        if fewest >= fewest_told_apart(with_samples(cells_before, most), others_cells):
            continue
        rule = f"figures of this site's parts must not single out fewer than {least} samples"
        found = f"beside those of earlier experiments these would single out {fewest:g}"
        advice = "use another seed"
        if ordering.samples == new.samples:
            used = f"seed {ordering.seed} with the shares that were used with it"
            advice = f"use {used}, or another seed"
        raise Refusal(rule, found, advice)


# Cells and cuts


def large(parts: Iterable[Part], least: int) -> frozenset[Part]:
    """The parts that answers may speak of."""
    return frozenset(part for part in parts if part.size >= max(1, least))


def cells_of(ordering: Ordering, parts: Iterable[Part]) -> np.ndarray:
    """The number of every sample's cell, by the sample's place in the data."""
    bounds = {0, ordering.samples}
    for part in parts:
        bounds.update(part)
    ends = sorted(bounds)
    number_of: dict[frozenset[Part], int] = {frozenset(): NO_PART}
    in_order = np.full(ordering.samples, NO_PART)
    for begin, end in pairwise(ends):
        around = frozenset(part for part in parts if part.begin <= begin and end <= part.end)
        in_order[begin:end] = number_of.setdefault(around, len(number_of))
    cells = np.empty_like(in_order)
    cells[own_order(*ordering)] = in_order
    return cells


def with_samples(cells: np.ndarray, samples: int) -> np.ndarray:
    """The cells of so many samples. Those that were added later are in no part."""
    return np.pad(cells, (0, samples - len(cells)), constant_values=NO_PART)


def fewest_told_apart(cells: np.ndarray, others: np.ndarray) -> float:
    """The fewest samples that a difference of two sums can be about; infinite if there is none.

    One sum is of the cells of one seed, the other of those of another seed.
    """
    return min(map(smallest_cut, components(graph_of(cells, others))), default=float("inf"))


def graph_of(cells: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How many samples join two cells. Vertex 0 is both seeds' samples that are in no part."""
    first = int(cells.max(initial=NO_PART)) + 1
    second = int(others.max(initial=NO_PART)) + 1
    joint = np.bincount(cells * second + others, minlength=first * second)
    joint = joint.reshape(first, second)
    graph = np.zeros((first + second - 1, first + second - 1), np.int64)
    graph[:first, first:] = joint[:, 1:]
    graph[:first, 0] += joint[:, 0]
    graph[0, 0] = 0
    return graph + graph.T


def components(graph: np.ndarray) -> list[np.ndarray]:
    """The parts of a graph that hang together, each as a graph."""
    left = set(range(len(graph)))
    found = []
    while left:
        reached = {left.pop()}
        new = set(reached)
        while new:
            vertex = new.pop()
            neighbours = set(np.flatnonzero(graph[vertex]).tolist()) - reached
            reached |= neighbours
            new |= neighbours
        left -= reached
        chosen = sorted(reached)
        found.append(graph[np.ix_(chosen, chosen)])
    return found


def smallest_cut(graph: np.ndarray) -> float:
    """The smallest weight of edges whose removal divides a graph, by Stoer and Wagner (1997).

    It is infinite for a single vertex.
    """
    graph = graph.copy()
    smallest = float("inf")
    while len(graph) > 1:
        order = [0]
        weights = graph[0].astype(np.float64)
        weights[0] = -np.inf
        while len(order) < len(graph):
            last = int(weights.argmax())
            cut_of_phase = float(weights[last])
            order.append(last)
            weights += graph[last]
            weights[last] = -np.inf
        smallest = min(smallest, cut_of_phase)
        last, previous = order[-1], order[-2]
        graph[previous] += graph[last]
        graph[:, previous] += graph[:, last]
        graph[previous, previous] = 0
        graph = np.delete(np.delete(graph, last, axis=0), last, axis=1)
    return smallest


# The owner of a part


@dataclass(frozen=True)
class PartOwner(Owner):
    """The site as the owner of a part of its samples. It is asked before a method divides them."""

    begin: int  # of the part, in the order of the samples
    least: int  # samples in any part, unless it is empty
    allow: Callable[[int, int, int], None]  # begin, at and end of a cut; raises an error if not

    def check_part(self, name: str, samples: int) -> None:
        if 0 < samples < self.least:
            raise TooFewSamples(name, self.least, samples)

    def cut(self, samples: int, at: int) -> tuple[Owner, Owner]:
        if 0 < at < samples:
            for size in (at, samples - at):
                self.check_part("a part of the training samples", size)
            self.allow(self.begin, self.begin + at, self.begin + samples)
        return self, replace(self, begin=self.begin + at)

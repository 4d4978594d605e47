"""The routes that a client's samples take through a guided network, and their costs.

Costs are a distribution: the cost of a sample is that of its own route, by the space's formulas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

import numpy as np
import torch

from fedloom.data.samples import Samples
from fedloom.nets.folding import weights_stay
from fedloom.rng import rng
from fedloom.searchers.guides import HIDDEN, ContextGuide, Guided
from fedloom.spaces.choice import Place, Routes
from fedloom.spaces.space import Size, Space
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json

AT_ONCE = 256  # samples per forward pass
MOST_PATHS = 5  # the most common paths that are listed
MOST_OF_MACS = 0.15  # the largest share of samplers in the MACs of a network that includes them


def routes_taken(guided: Guided, part: Samples, labels: Sequence[str]) -> dict[str, Json] | None:
    """Describes the routes of these samples as JSON; None: no samples, or routes are random."""
    if guided.draws is not None or not len(part):
        return None
    net = guided.model.net
    assert isinstance(net, Supernet)
    costs = path_costs(net.space, net.shape, net.classes, net.size)
    if isinstance(guided.guide, ContextGuide):
        costs = with_samplers(costs, guided.guide)
    paths = paths_of(guided, part)
    routes = distribution(paths, part, labels, costs, net.space)
    routes["shuffled_accuracy"] = shuffled_accuracy(guided, part, paths)
    return routes


def one_path(
    arch: Arch, size: Size, part: Samples, labels: Sequence[str], space: Space
) -> dict[str, Json] | None:
    """Describes a network with one path, which all samples take; None: there are no samples."""
    if not len(part):
        return None
    shape = tuple(part.x.shape[1:])
    costs = path_costs(space, shape, len(labels), size)
    path = [live[0] for live in arch.choice]
    routes = distribution(np.array([path] * len(part)), part, labels, costs, space)
    routes["shuffled_accuracy"] = None
    return routes


def distribution(
    paths: np.ndarray, part: Samples, labels: Sequence[str], costs: PathCosts, space: Space
) -> dict[str, Json]:
    """Returns the costs of samples that take these paths, and how often operations are used."""
    macs = Spread.of(costs.fixed_macs + sum_along(paths, costs.macs))
    params = Spread.of(costs.fixed_params + sum_along(paths, costs.params))
    return {
        "params_used": params.mean,
        "macs": macs.mean,
        "macs_std": macs.std,
        "macs_max": macs.most,
        "routes": summary_of(paths, space),
        "paths": distinct_paths(paths),
        "fixed_macs": costs.fixed_macs,
        "edges": edges_of(paths, part.y.numpy(), labels, costs, space),
    }


@dataclass(frozen=True)
class PathCosts:
    """The parameters and MACs that every operation adds to a network without any, by slot."""

    fixed_params: int
    fixed_macs: int
    params: tuple[tuple[int, ...], ...]
    macs: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=8)
def path_costs(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> PathCosts:
    bare = space.bare()
    assert bare is not None  # a routed network works without any operation
    fixed = space.cost(shape, classes, bare, size, affine=True)
    params = []
    macs = []
    for number, slot in enumerate(space.slots):
        costs = []
        for op in range(len(slot.options)):
            choice = (*bare.choice[:number], (op,), *bare.choice[number + 1 :])
            path = Arch(space.name, choice)
            costs.append(space.cost(shape, classes, path, size, affine=True).minus(fixed))
        params.append(tuple(cost.params for cost in costs))
        macs.append(tuple(cost.macs for cost in costs))
    return PathCosts(fixed.params, fixed.macs, tuple(params), tuple(macs))


@dataclass(frozen=True)
class Spread:
    """The distribution of the costs of single samples."""

    mean: float
    std: float  # over the samples, ddof 0
    most: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread:
        return cls(float(values.mean()), float(values.std()), float(values.max()))


def with_samplers(costs: PathCosts, guide: ContextGuide) -> PathCosts:
    """Adds the costs of all samplers, which every sample goes through."""
    sampler_params = 0
    for tensor in guide.named_tensors().values():
        sampler_params += tensor.numel()
    return replace(
        costs,
        fixed_params=costs.fixed_params + sampler_params,
        fixed_macs=costs.fixed_macs + macs_of_samplers(guide),
    )


class Recording:
    """A routed choice that follows the guide and records its routes."""

    def __init__(self, guided: Guided) -> None:
        self.guide = guided.guide
        self.ops: list[torch.Tensor] = []

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        routes = self.guide.routes(place, inputs)
        self.ops.append(routes.ops.cpu())
        return routes


class FixedRoutes:
    """A routed choice with given routes: an option for every sample and slot."""

    def __init__(self, guided: Guided, paths: torch.Tensor) -> None:
        self.guide = guided.guide
        self.paths = paths

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        ops = self.paths[:, place.slots.start : place.slots.stop].to(inputs[0].device)
        return self.guide.as_routes(place, inputs, ops, None)


@torch.no_grad()
@weights_stay()
def paths_of(guided: Guided, part: Samples) -> np.ndarray:
    """Returns the options that the samples take, [samples, slots]."""
    device = next(guided.parameters()).device
    rows = []
    for x in part.x.split(AT_ONCE):
        recording = Recording(guided)
        guided.model(x.to(device), recording)
        rows.append(torch.cat(recording.ops, dim=1))
    return torch.cat(rows).numpy()


def sum_along(paths: np.ndarray, rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns, for every sample, the sum of `rows` over the operations of its route."""
    totals = np.zeros(len(paths))
    for slot, row in enumerate(rows):
        totals += np.array(row, dtype=float)[paths[:, slot]]
    return totals


def macs_of_samplers(guide: ContextGuide) -> int:
    """Returns the MACs of all samplers for one sample: those of their linear layers."""
    macs = 0
    for name, tensor in guide.named_tensors().items():
        if name.endswith(".weight"):
            macs += tensor.numel()
    return macs


def sampler_units(
    space: Space, places: Sequence[Place], shape: tuple[int, ...], classes: int, size: Size
) -> int:
    """Returns the hidden units that keep samplers a small share of the network's expected MACs.

    The expected MACs are those of a sample that takes every operation with equal probability.
    """
    costs = path_costs(space, shape, classes, size)
    expected_macs = float(costs.fixed_macs)
    for row in costs.macs:
        expected_macs += sum(row) / len(row)
    with torch.device("meta"):  # only its weights are counted
        one_unit_guide = ContextGuide(space, size.channels, shape, places, bound=1.0, units=1)
    most_macs = MOST_OF_MACS / (1 - MOST_OF_MACS) * expected_macs
    return max(1, min(HIDDEN, int(most_macs / macs_of_samplers(one_unit_guide))))


@torch.no_grad()
@weights_stay()
def shuffled_accuracy(guided: Guided, part: Samples, paths: np.ndarray) -> float | None:
    """Returns the accuracy if every sample takes another one's route; None: there is no other."""
    count = len(part)
    if count < 2:
        return None
    order = rng(0, "shuffled ways").permutation(count)
    shuffled = np.empty_like(paths)
    shuffled[order] = paths[np.roll(order, 1)]  # a cycle: no sample keeps its own route
    device = next(guided.parameters()).device
    correct = 0
    for begin in range(0, count, AT_ONCE):
        chunk = slice(begin, begin + AT_ONCE)
        fixed_routes = FixedRoutes(guided, torch.from_numpy(shuffled[chunk]))
        answers = guided.model(part.x[chunk].to(device), fixed_routes).argmax(dim=1).cpu()
        correct += int((answers == part.y[chunk]).sum())
    return correct / count


def distinct_paths(paths: np.ndarray) -> list[Json]:
    """Returns every path once, with the number of samples that take it; the most common first."""
    counts = Counter(map(tuple, paths.tolist()))
    rows: list[Json] = []
    for path, count in counts.most_common():
        rows.append({"path": list(path), "samples": count})
    return rows


def summary_of(paths: np.ndarray, space: Space) -> Json:
    """Returns the number of distinct paths, their entropy and the most common of them."""
    rows = distinct_paths(paths)
    total = len(paths)
    entropy = 0.0
    for row in rows:
        share = row["samples"] / total
        entropy -= share * log(share)
    top = []
    for row in rows[:MOST_PATHS]:
        names = []
        for slot, op in zip(space.slots, row["path"], strict=True):
            names.append(slot.options[op])
        top.append({"path": names, "share": row["samples"] / total})
    return {"samples": total, "distinct": len(rows), "entropy": max(0.0, entropy), "top": top}


def edges_of(
    paths: np.ndarray,
    classes: np.ndarray,
    labels: Sequence[str],
    costs: PathCosts,
    space: Space,
) -> list[Json]:
    """Returns how often each operation of each edge is taken, by all samples and by class."""
    edges: list[Json] = []
    for number, slot in enumerate(space.slots):
        by_class = {}
        for value, label in enumerate(labels):
            class_ops = paths[classes == value, number]
            if len(class_ops):
                by_class[label] = shares(class_ops, len(slot.options))
        edges.append(
            {
                "slot": slot.name,
                "ops": list(slot.options),
                "macs": list(costs.macs[number]),
                "share": shares(paths[:, number], len(slot.options)),
                "share_by_class": by_class,
            }
        )
    return edges


def shares(ops: np.ndarray, options: int) -> list[float]:
    frequencies: list[float] = (np.bincount(ops, minlength=options) / len(ops)).tolist()
    return frequencies

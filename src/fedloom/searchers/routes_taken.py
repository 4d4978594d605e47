"""Which ways a client's samples take through a guided network, and what these cost.

Costs are a distribution: a sample costs what its own way costs, by the space's formulas.
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

AT_ONCE = 256  # samples
MOST_PATHS = 5  # that are told one by one
MOST_OF_MACS = 0.15  # that samplers may have of a network's, themselves included


@dataclass(frozen=True)
class PathCosts:
    """What every operation adds to a network that has none: parameters and MACs, by slot."""

    fixed_params: int
    fixed_macs: int
    params: tuple[tuple[int, ...], ...]
    macs: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=8)
def path_costs(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> PathCosts:
    bare = space.bare()
    assert bare is not None  # a routed network can do without any operation
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
    """Of what single samples cost."""

    mean: float
    std: float  # over the samples, ddof 0
    most: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread:
        return cls(float(values.mean()), float(values.std()), float(values.max()))


def routes_taken(guided: Guided, part: Samples, labels: Sequence[str]) -> dict[str, Json] | None:
    """Of these samples, as JSON; None: there are none, or ways are drawn anew each time."""
    if guided.draws is not None or not len(part):
        return None
    net = guided.model.net
    assert isinstance(net, Supernet)
    costs = path_costs(net.space, net.shape, net.classes, net.size)
    if isinstance(guided.guide, ContextGuide):
        costs = with_samplers(costs, guided.guide)
    paths = paths_of(guided, part)
    told = distribution(paths, part, labels, costs, net.space)
    told["shuffled_accuracy"] = shuffled_accuracy(guided, part, paths)
    return told


def one_path(
    arch: Arch, size: Size, part: Samples, labels: Sequence[str], space: Space
) -> dict[str, Json] | None:
    """The same of a network with one path, which all samples take; None: there are no samples."""
    if not len(part):
        return None
    shape = tuple(part.x.shape[1:])
    costs = path_costs(space, shape, len(labels), size)
    path = [live[0] for live in arch.choice]
    told = distribution(np.array([path] * len(part)), part, labels, costs, space)
    told["shuffled_accuracy"] = None
    return told


def with_samplers(costs: PathCosts, guide: ContextGuide) -> PathCosts:
    """Every sample goes through all samplers."""
    sampler_params = sum(tensor.numel() for tensor in guide.named_tensors().values())
    return replace(
        costs,
        fixed_params=costs.fixed_params + sampler_params,
        fixed_macs=costs.fixed_macs + macs_of_samplers(guide),
    )


def distribution(
    paths: np.ndarray, part: Samples, labels: Sequence[str], costs: PathCosts, space: Space
) -> dict[str, Json]:
    """What samples cost that take these paths, and how often each operation is taken."""
    macs = Spread.of(costs.fixed_macs + sum_along(paths, costs.macs))
    params = Spread.of(costs.fixed_params + sum_along(paths, costs.params))
    return {
        "params_used": params.mean,
        "macs": macs.mean,
        "macs_std": macs.std,
        "macs_max": macs.most,
        "routes": summary_of(paths, space),
        "paths": counted(paths),
        "fixed_macs": costs.fixed_macs,
        "edges": edges_of(paths, part.y.numpy(), labels, costs, space),
    }


class Recording:
    """The guide's own routes, noted down."""

    def __init__(self, guided: Guided) -> None:
        self.guide = guided.guide
        self.ops: list[torch.Tensor] = []

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        routes = self.guide.routes(place, inputs)
        self.ops.append(routes.ops.cpu())
        return routes


class Given:
    """Ways that are written down: an option for every sample and slot."""

    def __init__(self, guided: Guided, paths: torch.Tensor) -> None:
        self.guide = guided.guide
        self.paths = paths

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        ops = self.paths[:, place.slots.start : place.slots.stop].to(inputs[0].device)
        return self.guide.as_routes(place, inputs, ops, None)


@torch.no_grad()
@weights_stay()
def paths_of(guided: Guided, part: Samples) -> np.ndarray:
    """[samples, slots]: the options that they take."""
    device = next(guided.parameters()).device
    rows = []
    for x in part.x.split(AT_ONCE):
        recording = Recording(guided)
        guided.model(x.to(device), recording)
        rows.append(torch.cat(recording.ops, dim=1))
    return torch.cat(rows).numpy()


def sum_along(paths: np.ndarray, rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Of every sample, what the operations on its way add."""
    totals = np.zeros(len(paths))
    for slot, row in enumerate(rows):
        totals += np.array(row, dtype=float)[paths[:, slot]]
    return totals


def macs_of_samplers(guide: ContextGuide) -> int:
    """Of one sample: its linear layers."""
    macs = 0
    for name, tensor in guide.named_tensors().items():
        if name.endswith(".weight"):
            macs += tensor.numel()
    return macs


def sampler_units(
    space: Space, places: Sequence[Place], shape: tuple[int, ...], classes: int, size: Size
) -> int:
    """Hidden units with which samplers stay a small share of the network's expected MACs.

    Expected are the MACs of a sample that takes every operation equally likely.
    """
    costs = path_costs(space, shape, classes, size)
    network = float(costs.fixed_macs)
    for row in costs.macs:
        network += sum(row) / len(row)
    with torch.device("meta"):  # its weights are counted alone
        narrow = ContextGuide(space, size.channels, shape, places, bound=1.0, units=1)
    most = MOST_OF_MACS / (1 - MOST_OF_MACS) * network
    return max(1, min(HIDDEN, int(most / macs_of_samplers(narrow))))


@torch.no_grad()
@weights_stay()
def shuffled_accuracy(guided: Guided, part: Samples, paths: np.ndarray) -> float | None:
    """Every sample takes the way of another one; None: there is no other."""
    count = len(part)
    if count < 2:
        return None
    order = rng(0, "shuffled ways").permutation(count)
    taken = np.empty_like(paths)
    taken[order] = paths[np.roll(order, 1)]  # a circle: nobody keeps its own place
    device = next(guided.parameters()).device
    right = 0
    for begin in range(0, count, AT_ONCE):
        chunk = slice(begin, begin + AT_ONCE)
        given = Given(guided, torch.from_numpy(taken[chunk]))
        answers = guided.model(part.x[chunk].to(device), given).argmax(dim=1).cpu()
        right += int((answers == part.y[chunk]).sum())
    return right / count


def counted(paths: np.ndarray) -> list[Json]:
    """Every way once, with how many samples take it; the most common first."""
    counts = Counter(map(tuple, paths.tolist()))
    return [{"path": list(path), "samples": count} for path, count in counts.most_common()]


def summary_of(paths: np.ndarray, space: Space) -> Json:
    """How many ways there are, and the most common of them."""
    ways = counted(paths)
    total = len(paths)
    entropy = 0.0
    for way in ways:
        share = way["samples"] / total
        entropy -= share * log(share)
    top = []
    for way in ways[:MOST_PATHS]:
        names = [slot.options[op] for slot, op in zip(space.slots, way["path"], strict=True)]
        top.append({"path": names, "share": way["samples"] / total})
    return {"samples": total, "distinct": len(ways), "entropy": max(0.0, entropy), "top": top}


def edges_of(
    paths: np.ndarray,
    classes: np.ndarray,
    labels: Sequence[str],
    costs: PathCosts,
    space: Space,
) -> list[Json]:
    """How often each operation of each edge is taken, by everybody and class by class."""
    edges: list[Json] = []
    for number, slot in enumerate(space.slots):
        by_class = {}
        for value, label in enumerate(labels):
            of_class = paths[classes == value, number]
            if len(of_class):
                by_class[label] = shares(of_class, len(slot.options))
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
    counted: list[float] = (np.bincount(ops, minlength=options) / len(ops)).tolist()
    return counted

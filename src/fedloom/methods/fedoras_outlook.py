"""FedorAS, stage 2, in a dry run: predicts what a search will cost, without scoring a path."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.federation.protocol.method import ForeseenRound
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import KEPT_BACK, FedorASOptions
from fedloom.methods.fedoras_tiers import spaces_of
from fedloom.rng import rng
from fedloom.searchers.paths import Path, PathCosts, PathSampler, SubSpace
from fedloom.searchers.tier_search import SearchSettings
from fedloom.types import State

DRAWS = 50  # paths that are drawn for every tier; their mean cost stands for all
BYTES_PER_PATH = 30  # in a reply: a loss and a count, as text


def foreseen_rounds(
    state: State,
    options: FedorASOptions,
    clients: int,
    samples: float,
) -> list[ForeseenRound]:
    """Returns the rounds of all generations, and the round of the controls.

    `samples` is the number of samples of the server or, if clients score, of a client, which scores
    on the part that it keeps back. Layers that paths share are computed once, so the server will
    need less than predicted.
    """
    frame = Frame.from_plain(state.meta["frame"])
    macs = PathCosts.of_table(frame.table, ("macs",))
    draws = rng(state.meta["seed"], "dry run")
    drawn: list[list[Path]] = []  # paths by tier
    for space in spaces_of(state):
        sampler = PathSampler(space.costs)
        drawn.append([sampler.draw(space.limits, draws) for _ in range(DRAWS)])
    costs = []  # mean MACs of a path, by tier
    for paths in drawn:
        costs.append(sum(macs.of(path)[0] for path in paths) / DRAWS)
    settings = options.search_settings(frame.space, len(costs))
    generations = paths_by_generation(settings)
    controls = (1,) * len(costs)
    scored_on = samples
    if clients:
        scored_on = clients * KEPT_BACK * samples
    sent = 0  # bytes that a client has kept
    rounds = []
    for number, counts in enumerate([*generations, controls]):
        work = sum(count * cost for count, cost in zip(counts, costs, strict=True))
        size = frame.bytes_of(part_with(drawn, counts))
        if options.cache:
            size = max(0, size - sent)
            sent += size
        foreseen = ForeseenRound(
            clients=clients,
            macs=work * scored_on,
            down=clients * size,
            up=clients * BYTES_PER_PATH * sum(counts),
            is_generation=number < len(generations),
        )
        rounds.append(foreseen)
    return rounds


def paths_by_generation(settings: SearchSettings) -> list[tuple[int, ...]]:
    """Returns how many new paths every tier tries in each generation, if it finds as many."""
    remaining = list(settings.models)
    size = settings.pool
    generations = []
    while any(remaining):
        counts = tuple(min(size, count) for count in remaining)
        for tier, count in enumerate(counts):
            remaining[tier] -= count
        generations.append(counts)
        size = settings.sample
    return generations


def part_with(drawn: Sequence[Sequence[Path]], counts: Sequence[int]) -> SubSpace:
    """Returns the operations of the first `counts` paths of every tier, as far as there are."""
    layers: list[set[int]] = [set() for _ in drawn[0][0]]
    for paths, count in zip(drawn, counts, strict=True):
        for path in paths[:count]:
            for layer, op in enumerate(path):
                layers[layer].add(op)
    return tuple(tuple(sorted(ops)) for ops in layers)

"""FedorAS: the tiers' section of result.json, from the last stage's state."""

from __future__ import annotations

from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.methods.fedoras_networks import networks_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_tiers import eligible, spaces_of, tiers_in
from fedloom.records.result import (
    Control,
    FrontPoint,
    PathScore,
    SearchSummary,
    TierResult,
    TunedPath,
)
from fedloom.records.sections import Sections
from fedloom.searchers.paths import Path
from fedloom.searchers.tier_search import Memory, TierSpace, front_of
from fedloom.spaces.cost_table import Unit
from fedloom.types import Json, State, Tier


def sections_of(state: State, options: FedorASOptions) -> Sections:
    memory = Memory()
    if "search" in state.meta:
        memory = Memory.from_plain(state.meta["search"])
    tiers = []
    for tier, space in zip(tiers_in(state), spaces_of(state), strict=True):
        tiers.append(result_of_tier(state, tier, space, memory, options))
    frame = Frame.from_plain(state.meta["frame"])
    ops = []
    if options.trains_supernet:
        for slot, counts in zip(frame.space.slots, state.meta["ops"], strict=True):
            ops.append(dict(zip(slot.options, counts, strict=True)))
    return Sections(
        tiers=tuple(tiers),
        tier_of=tuple(state.meta["tier_of"]),
        ops=tuple(ops),
        search=search_in(state, memory, options),
        left_out=state.meta["left_out"],
    )


def search_in(state: State, memory: Memory, options: FedorASOptions) -> SearchSummary | None:
    """Returns a summary of the search, or None if paths were given or random."""
    if options.paths != "search":
        return None
    search = SearchSummary(
        score=options.score,
        models=len(memory.scores),
        generations=memory.generation,
        tau=None,
        tau_clients=None,
        supernet_bytes=list(state.meta["supernet_bytes"]),
    )
    measured = state.meta["agreement"]
    if measured is None:
        return search
    return search.replace(tau=measured["tau"], tau_clients=measured["clients"])


def result_of_tier(
    state: State,
    tier: Tier,
    space: TierSpace,
    memory: Memory,
    options: FedorASOptions,
) -> TierResult:
    """Returns a tier's result, without figures on test data: the final evaluation adds those."""
    frame = Frame.from_plain(state.meta["frame"])
    path: Path = tuple(state.meta["paths"][tier.number - 1])
    front = []
    for member in front_of(memory, space):
        score = memory.scores[member]
        macs = cost_of(frame, member, "macs")
        point = FrontPoint(path=frame.names_of(member), loss=score.loss, macs=macs)
        front.append(point.replace(accuracy=score.accuracy, **score.beside))
    result = TierResult(
        tier=tier.number,
        limit=dict(tier.limit),
        clients=state.meta["tier_of"].count(tier.number),
        eligible=len(eligible(state, tier.number, options.eligible)),
        path=frame.names_of(path),
        architecture=frame.arch(as_sub_space(path)).to_plain(),
        params=cost_of(frame, path, "params"),
        macs=cost_of(frame, path, "macs"),
        macs_paper=cost_of(frame, path, "macs_paper"),
        validation=validation_of(memory, path),
        tuned_rounds=state.meta["tuned"][tier.number - 1],
        control=control_in(frame, state.meta["scored_controls"][tier.number - 1]),
        front=front,
    )
    top = top_of(state, tier, memory)
    if len(top) > 1:
        result = result.replace(top=top)
    if tier.latency is not None:
        result = result.replace(latency_ms=tier.latency.of(path))
    head = frame.model(as_sub_space(path)).head
    if head is None:
        return result
    return result.replace(head=head)


def top_of(state: State, tier: Tier, memory: Memory) -> list[TunedPath]:
    """Returns the tier's trained networks that have a score, its own first."""
    frame = Frame.from_plain(state.meta["frame"])
    top = []
    for network in networks_in(state):
        validation = validation_of(memory, network.path)
        if network.tier != tier.number or validation is None:
            continue
        tuned = TunedPath(
            path=frame.names_of(network.path),
            macs=cost_of(frame, network.path, "macs"),
            validation=validation,
            tuned_rounds=network.rounds,
        )
        top.append(tuned)
    return top


def cost_of(frame: Frame, path: Path, unit: Unit) -> int:
    return frame.table.of(frame.arch(as_sub_space(path)), unit)


def validation_of(memory: Memory, path: Path) -> PathScore | None:
    if path not in memory.scores:
        return None
    score = memory.scores[path]
    return PathScore(loss=score.loss, accuracy=score.accuracy, **score.beside)


def control_in(frame: Frame, raw: Json) -> Control:
    """Returns a control from the form in which the state has it."""
    if "reason" in raw:
        return Control(reason=raw["reason"])
    path: Path = tuple(raw["path"])
    figures = {name: figure for name, figure in raw.items() if name != "path"}
    return Control(
        path=frame.names_of(path),
        macs=cost_of(frame, path, "macs"),
        validation=PathScore(**figures),
    )

"""FedorAS: the rows of scores.jsonl, in the order in which paths were scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedloom.methods.fedoras_choice import control_scores
from fedloom.methods.fedoras_frame import Frame, as_sub_space
from fedloom.records.scores import ScoredPath
from fedloom.searchers.paths import Path
from fedloom.searchers.tier_search import Score
from fedloom.types import State

SUPERNET_FILE = "supernet"  # the trained supernet is stored as supernet.state
SCORED = "scored"  # key in the state's meta: [tier, path] of everything scored so far


def with_scored(
    state: State,
    by_tier: Mapping[int, Sequence[Path]],
    scores: Iterable[Path],
) -> State:
    """Returns the state with the tier for which each of these paths was scored, in this order.

    If several tiers asked for a path at once, it is the first of them.
    """
    rows = list(state.meta.get(SCORED, []))
    for path in scores:
        tiers = [tier for tier, paths in by_tier.items() if path in paths]
        rows.append([min(tiers), list(path)])
    return State(state.tensors, {**state.meta, SCORED: rows})


def controls_by_tier(state: State) -> dict[int, list[Path]]:
    by_tier = {}
    for tier, control in enumerate(state.meta["controls"], start=1):
        if control is not None:
            by_tier[tier] = [tuple(control)]
    return by_tier


def rows_of(state: State) -> list[ScoredPath]:
    """Returns the rows of the search and of the controls."""
    frame = Frame.from_plain(state.meta["frame"])
    scores = control_scores(state)
    rows = []
    for tier, raw_path in state.meta.get(SCORED, []):
        path = tuple(raw_path)
        rows.append(row_of(frame, tier, path, scores[path]))
    return rows


def row_of(frame: Frame, tier: int, path: Path, score: Score) -> ScoredPath:
    arch = frame.arch(as_sub_space(path))
    return ScoredPath(
        tier=tier,
        path=tuple(frame.names_of(path)),
        loss=score.loss,
        accuracy=score.accuracy,
        samples=score.samples,
        balanced_accuracy=score.balanced_accuracy,
        auc=score.auc,
        params=frame.table.of(arch, "params"),
        macs=frame.table.of(arch, "macs"),
    )

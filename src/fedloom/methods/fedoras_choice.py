"""FedorAS: the path that a tier ends with, and the random path that is its control."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.errors import FedloomError
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import WORDS_FOR_PATHS, FedorASOptions
from fedloom.methods.fedoras_tiers import spaces_of
from fedloom.rng import rng
from fedloom.searchers.paths import Path, PathSampler, amounts_in_words
from fedloom.searchers.tier_search import (
    Memory,
    Score,
    TierSpace,
    best_paths,
    chosen_path,
    control_path,
    costs_the_same,
)
from fedloom.types import Json, State, Tier


def path_of_tier(state: State, space: TierSpace, options: FedorASOptions) -> Path:
    if isinstance(options.paths, list):
        frame = Frame.from_plain(state.meta["frame"])
        return frame.path_named(options.paths[space.tier - 1])
    if not options.searches:
        return random_path(state, space)
    return best_path(state, space.tier, options.bracket)


def check_given(frame: Frame, tiers: Sequence[Tier], options: FedorASOptions) -> None:
    """Raises FedloomError if given paths are not of this space, or not within the tiers' limits."""
    if isinstance(options.paths, str):
        if options.paths in WORDS_FOR_PATHS:
            return
        raise FedloomError(
            "--paths must be search, random, a finished run or FILE.json that can be read here",
            f"got {options.paths!r}",
            "give the paths themselves: a list of operations for each tier",
        )
    if len(options.paths) != len(tiers):
        raise FedloomError(
            f"--paths must have a path for each of the {len(tiers)} tiers",
            f"it has {len(options.paths)}",
            "give as many, or other --tiers",
        )
    for tier, names in zip(tiers, options.paths, strict=True):
        path = frame.path_named(names)
        costs = frame.costs_of(tier)
        if not costs.fits(path, tuple(tier.limit.values())):
            limits = [f"{most:,.10g} {unit}" for unit, most in tier.limit.items()]
            raise FedloomError(
                f"the path of tier {tier.number} in --paths must be within its limit",
                f"it costs {amounts_in_words(costs.of(path))}, and the limit is "
                + ", ".join(limits),
                "give a cheaper path, or a higher limit",
            )


def other_paths(state: State, space: TierSpace, options: FedorASOptions) -> list[Path]:
    """Returns a tier's next best paths after its own, for `tune_top`."""
    if options.tune_top == 1:
        return []
    own = path_of_tier(state, space, options)
    memory = Memory.from_plain(state.meta["search"])
    best = best_paths(memory, space, options.tune_top)
    return [path for path in best if path != own][: options.tune_top - 1]


def best_path(state: State, tier: int, bracket: str = "upper") -> Path:
    """Returns a tier's best path (Eq. 6), or a greedy one if no path that fits was scored.

    With `both`, it is one that exceeds the limit of the tier below; if none was scored, any that
    fits.
    """
    spaces = spaces_of(state)
    space = spaces[tier - 1]
    memory = Memory.from_plain(state.meta["search"])
    below = None
    if bracket == "both" and tier > 1:
        below = spaces[tier - 2]
    path = chosen_path(memory, space, below)
    if path is None and below is not None:
        path = chosen_path(memory, space)
    if path is not None:
        return path
    return random_path(state, space)


def random_path(state: State, space: TierSpace) -> Path:
    """Returns the greedy path that is the control of the whole search."""
    draws = rng(state.meta["seed"], "random path", space.tier)
    return PathSampler(space.costs).draw(space.limits, draws)


# Controls: for every tier a random path that costs about as much as its own


def with_controls(state: State, options: FedorASOptions) -> State:
    """Returns the state of a finished search with the controls that are to be scored."""
    if "controls" in state.meta:
        return state
    controls: list[Json] = []
    for space in spaces_of(state):
        draws = rng(state.meta["seed"], "control", space.tier)
        control = control_path(path_of_tier(state, space, options), space, draws)
        if control is None:
            controls.append(None)
        else:
            controls.append(list(control))
    return State(state.tensors, {**state.meta, "controls": controls, "control_scores": []})


def unscored_controls(state: State) -> list[Path]:
    """Returns the controls without a score, each once. Some were scored in the search already."""
    scores = control_scores(state)
    unscored: set[Path] = set()
    for control in state.meta.get("controls", []):
        if control is not None and tuple(control) not in scores:
            unscored.add(tuple(control))
    return sorted(unscored)


def control_scores(state: State) -> dict[Path, Score]:
    """Returns the scores of the controls and of the search.

    The state keeps the controls' scores separately, because a control is never chosen.
    """
    if "search" not in state.meta:
        return {}
    scores = dict(Memory.from_plain(state.meta["search"]).scores)
    for path, *figures in state.meta.get("control_scores", []):
        scores[tuple(path)] = Score(*figures)
    return scores


def with_control_scores(state: State, scores: dict[Path, Score]) -> State:
    rows = list(state.meta["control_scores"])
    for path, score in scores.items():
        rows.append([list(path), *score.to_plain()])
    return State(state.tensors, {**state.meta, "control_scores": rows})


def control_of(state: State, space: TierSpace, options: FedorASOptions) -> Json:
    """Returns a tier's control with its score, or the reason why there is none."""
    path = path_of_tier(state, space, options)
    scores = control_scores(state)
    if isinstance(options.paths, list):
        return {"reason": "nothing was scored: the tier's own path was given"}
    if path not in scores:
        return {"reason": "nothing was scored: the tier's own path is a random one"}
    control = with_controls(state, options).meta["controls"][space.tier - 1]
    if control is None:
        return {"reason": "no other path was found within 5 % of its cost"}
    scored_path = tuple(control)
    if scored_path not in scores:
        substitute = first_path_of_same_cost(state, space, path, options.pool)
        if substitute is None:
            return {"reason": "the search ended before a path of its cost was scored"}
        scored_path = substitute
    score = scores[scored_path]
    figures = {"loss": score.loss, "accuracy": score.accuracy, **score.beside}
    return {"path": list(scored_path), **figures}


def first_path_of_same_cost(
    state: State,
    space: TierSpace,
    path: Path,
    pool: int,
) -> Path | None:
    """Returns a path of the first pool as a control, whatever its score is.

    The first pool was drawn at random. It is for searches that had no round left to score a control
    in.
    """
    tried = Memory.from_plain(state.meta["search"]).tried.get(space.tier, ())
    for candidate in tried[:pool]:
        if candidate != path and costs_the_same(candidate, path, space):
            return candidate
    return None

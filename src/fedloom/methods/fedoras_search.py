"""FedorAS, stage 2 (§3.2): searches the best path of every tier by NSGA-II.

Paths have the supernet's weights. A generation is one round for all tiers. Its paths are scored by
the server on its own samples, which involves no client, or by clients on the samples they keep
back: they are sent the smallest part of the supernet that has all of these paths, and reply with
sums. One more round scores every tier's control.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from torch import nn

from fedloom.cost.meter import searching
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, ForeseenRound, Method, shared
from fedloom.methods.fedoras_choice import (
    best_path,
    unscored_controls,
    with_control_scores,
    with_controls,
)
from fedloom.methods.fedoras_device import supported_paths
from fedloom.methods.fedoras_frame import Frame, path_order, sub_space_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_outlook import foreseen_rounds
from fedloom.methods.fedoras_scores import controls_by_tier, rows_of, with_scored
from fedloom.methods.fedoras_tiers import spaces_of, tier_of, with_left_out
from fedloom.records.scores import ScoredPath
from fedloom.rng import rng
from fedloom.searchers.path_scores import PathScore, score_paths
from fedloom.searchers.paths import Path, SubSpace
from fedloom.searchers.tier_search import (
    Memory,
    Score,
    SearchSettings,
    after_scoring,
    next_paths,
)
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, Setup, State

WORST_LOSS = 1e9  # per sample: more than any honest client's
# A reply has sums for every path, and the numbers of the paths that the device cannot compute.
SCORES = {
    "loss": list[float],
    "correct": list[int],
    "samples": int,
    "left_out": list[int] | None,
}


@dataclass(frozen=True)
class SearchPaths(Method):
    """The search. The supernet does not change in it, only the memory of the search does."""

    options: FedorASOptions

    fields = {"score": Fields(meta=SCORES, writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows the supernet's training
        meta = {
            **previous.meta,
            "search": Memory().to_plain(),
            "supernet_bytes": [],  # of the smallest part with the new paths of each generation
            "scorers": 0,  # clients that scored the last generation
        }
        return State(previous.tensors, meta)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if self.options.search == "random":
            return None
        state = self._without_scored_generations(state)
        if not self._paths_to_try(state):
            state = with_controls(state, self.options)
        paths = self._unscored(state)
        if not paths:
            return None
        if not self.options.asks_clients:
            return state, []
        frame = Frame.from_plain(state.meta["frame"])
        sub_space = smallest_part(paths)
        tensors = frame.part(shared(state), sub_space)
        meta = {
            "ops": [list(ops) for ops in sub_space],
            "paths": [list(path) for path in paths],
            "train_share": self.options.train_share,
        }
        orders = [Order(client, "score", tensors, meta) for client in self._scoring_clients(r)]
        return state, orders

    def _without_scored_generations(self, state: State) -> State:
        """Skips generations all of whose paths another tier has tried: they need no round."""
        while self._paths_to_try(state) and not self._unscored(state):
            state = self._next_generation(state, {})
        return state

    def _scoring_clients(self, r: Round) -> tuple[int, ...]:
        most = self.options.score_clients
        if most is None or most >= len(r.clients):
            return r.cohort()
        return r.cohort(share=most / len(r.clients))

    def _paths_to_try(self, state: State) -> dict[int, list[Path]]:
        """Returns the paths of this generation, by tier. If it is empty, the search is over."""
        memory = Memory.from_plain(state.meta["search"])
        return next_paths(memory, spaces_of(state), self._settings(state), state.meta["seed"])

    def _settings(self, state: State) -> SearchSettings:
        frame = Frame.from_plain(state.meta["frame"])
        return self.options.search_settings(frame.space, len(state.meta["tiers"]))

    def _unscored(self, state: State) -> list[Path]:
        """Returns the paths that have no score yet, each once.

        They are those of this generation or, after the last generation, the controls.
        """
        paths_by_tier = self._paths_to_try(state)
        if not paths_by_tier:
            return unscored_controls(state)
        scores = Memory.from_plain(state.meta["search"]).scores
        unscored: set[Path] = set()
        for paths in paths_by_tier.values():
            unscored.update(path for path in paths if path not in scores)
        return sorted(unscored)

    def _next_generation(self, state: State, scores: Mapping[Path, Score]) -> State:
        memory = after_scoring(
            Memory.from_plain(state.meta["search"]),
            spaces_of(state),
            self._paths_to_try(state),
            scores,
            self._settings(state),
        )
        size = 0
        if scores:
            frame = Frame.from_plain(state.meta["frame"])
            size = frame.bytes_of(smallest_part(list(scores)))
        meta = {
            **state.meta,
            "search": memory.to_plain(),
            "supernet_bytes": [*state.meta["supernet_bytes"], size],
        }
        return State(state.tensors, meta)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        frame = Frame.of_task(run.task, self.options)
        paths = [tuple(path) for path in order.meta["paths"]]
        supported = supported_paths(frame, paths, run)
        to_score = [paths[number] for number in supported]
        sub_space = smallest_part(to_score)
        model = frame.model(sub_space, frame.part(order.tensors, sub_space))
        _, kept_back = data.split(order.meta["train_share"])
        with searching():
            scores = score_paths(model, to_score, kept_back, self.options.score_bn, run.device)
        losses = [0.0] * len(paths)
        correct = [0] * len(paths)
        for number, score in zip(supported, scores, strict=True):
            losses[number] = score.loss
            correct[number] = score.correct
        samples = scores[0].samples  # the same for every path
        meta: dict[str, Json] = {"loss": losses, "correct": correct, "samples": samples}
        if len(supported) < len(paths):
            meta["left_out"] = sorted(set(range(len(paths))) - set(supported))
        return Reply(order.client, {}, samples, meta), None

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """Checks that each path has a finite sum, and no more right answers than samples."""
        count = len(order.meta["paths"])
        losses = reply.meta["loss"]
        correct = reply.meta["correct"]
        counted = reply.meta["samples"]
        if len(losses) != count or len(correct) != count:
            return f"it scores {len(losses)} and {len(correct)} paths of {count}"
        if not 0 <= counted <= samples:
            return f"it scores on {counted} samples of {samples}"
        for loss in losses:
            if not isfinite(loss) or not 0 <= loss <= WORST_LOSS * max(1, counted):
                return f"a sum of losses is {loss!r}"
        for right in correct:
            if not 0 <= right <= counted:
                return f"{right} of {counted} answers are right"
        for number in left_out_in(reply):
            if not 0 <= number < count:
                return f"it leaves out path {number} of {count}"
        return None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        paths = self._unscored(state)
        if self.options.asks_clients:
            meta = {**with_left_out(state, "search", orders), "scorers": len(replies)}
            state = State(state.tensors, meta)
            sums = summed(len(paths), replies)
        else:
            assert r.server_data is not None  # the first stage has checked it
            sums = central_scores(state, paths, r.server_data, self.options)
        scores = {}
        for path, score in zip(paths, sums, strict=True):
            if score.samples:
                scores[path] = Score.of(score)
        if not scores:
            return state  # no client replied: the next round scores the same generation
        paths_by_tier = self._paths_to_try(state)
        if not paths_by_tier:
            state = with_scored(state, controls_by_tier(state), scores)
            return with_control_scores(state, scores)
        state = with_scored(state, paths_by_tier, scores)
        if len(scores) < len(paths):  # the next round asks other clients for the missing scores
            return with_known_scores(state, scores)
        return self._next_generation(state, scores)

    def foresee(self, state: State, r: Round, samples: float) -> Sequence[ForeseenRound] | None:
        """Returns the rounds of the search, as a dry run predicts them.

        The supernet of a dry run was never trained, so its paths are not scored.
        """
        if self.options.search == "random":
            return []
        if self.options.asks_clients:
            clients = len(self._scoring_clients(r))
            return foreseen_rounds(state, self.options, clients, samples)
        assert r.server_data is not None  # the first stage has checked it
        data = part_to_score_on(r.server_data, self.options.score_samples, state.meta["seed"])
        return foreseen_rounds(state, self.options, 0, len(data))

    def scores(self, state: State) -> Sequence[ScoredPath]:
        return rows_of(state)

    def note(self, state: State, r: Round) -> Meta:
        memory = Memory.from_plain(state.meta["search"])
        paths = len(self._unscored(state))
        if not self._paths_to_try(state):
            return {"generation": memory.generation, "scored": 0, "controls": paths}
        return {"generation": memory.generation + 1, "scored": paths}

    def serve(self, state: State, client: int) -> Order:
        """The client evaluates the best path of its tier so far."""
        frame = Frame.from_plain(state.meta["frame"])
        path = best_path(state, tier_of(state, client).number)
        return path_order(frame, client, path, shared(state))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        frame = Frame.of_task(run.task, self.options)
        return frame.model(sub_space_in(order.meta), order.tensors)


def central_scores(
    state: State,
    paths: Sequence[Path],
    server_data: Samples,
    options: FedorASOptions,
) -> list[PathScore]:
    """Returns scores on the server's samples, or on a part of them that stays the same."""
    frame = Frame.from_plain(state.meta["frame"])
    sub_space = smallest_part(paths)
    model = frame.model(sub_space, frame.part(shared(state), sub_space))
    data = part_to_score_on(server_data, options.score_samples, state.meta["seed"])
    return score_paths(model, paths, data, options.score_bn, classes=frame.counted_classes)


def part_to_score_on(data: Samples, amount: float | None, seed: int) -> Samples:
    """Returns a share of the samples (an amount up to 1), a number of them, or all (None)."""
    if amount is None:
        return data
    count = round(amount)
    if amount <= 1:
        count = max(1, round(amount * len(data)))
    if count >= len(data):
        return data
    chosen = rng(seed, "score samples").permutation(len(data))[:count]
    chosen.sort()
    return Samples(data.x[chosen], data.y[chosen])


def smallest_part(paths: Sequence[Path]) -> SubSpace:
    """Returns the operations that at least one of these paths has, by layer."""
    layers = []
    for layer in range(len(paths[0])):
        layers.append(tuple(sorted({path[layer] for path in paths})))
    return tuple(layers)


def summed(count: int, replies: Collection[Reply]) -> list[PathScore]:
    """Returns the sums of each path over the clients that can compute it.

    A path that no client can compute has no samples.
    """
    totals = [PathScore(0.0, 0, 0) for _ in range(count)]
    for reply in replies:
        samples = reply.meta["samples"]
        left_out = left_out_in(reply)
        for number in range(count):
            if number in left_out:
                continue
            loss = reply.meta["loss"][number]
            correct = reply.meta["correct"][number]
            totals[number] += PathScore(loss, correct, samples)
    return totals


def left_out_in(reply: Reply) -> list[int]:
    """Returns the numbers of the paths that this client's device cannot compute."""
    return reply.meta.get("left_out") or []


def with_known_scores(state: State, scores: Mapping[Path, Score]) -> State:
    """Returns the state of the same generation, in which some paths have scores now."""
    memory = Memory.from_plain(state.meta["search"])
    memory = replace(memory, scores={**memory.scores, **scores})
    return State(state.tensors, {**state.meta, "search": memory.to_plain()})

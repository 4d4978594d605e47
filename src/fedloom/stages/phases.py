"""A stage in phases, of which several methods have the same: what changes of samples a network
bears, training at a constant rate until it pays no more, and cooling.

- `invariance`: changes of samples that the network bears are trained with from here on.
- `train`: a constant rate, until three quarters of the budget are spent or validation figures stop
  improving.
- `cool`: the rate falls to 0; clients train on what they had held back, too.

A subclass says what comes before, between and after, and how replies become new weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from fedloom.federation.protocol.method import Method
from fedloom.learning.training import cosine
from fedloom.searchers.plateau import Check, has_plateau
from fedloom.stages.decisions import DecisionOptions, changes_for, decision, joined
from fedloom.types import Json, Order, Reply, Round, State, Task

COOLING = 0.25  # of the budget, at the end of training; after a plateau of what was spent so far
LEAST_RATE = 0.01  # of lr: where cooling ends

Merging = Callable[[State, Sequence[Order], Collection[Reply]], State]


class InPhases(Method):
    """One stage whose state says in `meta["phase"]` where it is."""

    options: DecisionOptions

    def next_phase(self, state: State, r: Round) -> str | None:
        """The phase that comes now; None: the one that there is goes on."""
        raise NotImplementedError

    @property
    def merges(self) -> Mapping[str, Merging]:
        """What becomes of replies, by phase."""
        raise NotImplementedError

    def merge_mean(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        """The state with the mean of the replies' weights."""
        raise NotImplementedError

    def cost_of_trials(self, state: State, r: Round) -> float:
        """What follows training before cooling, as far as training has to leave it something."""
        return 0.0

    def end_of_cooling(self, state: State, r: Round) -> float:
        """Where cooling ends at the latest, in the budget's unit."""
        return r.budget

    # The state

    def first_meta(self, task: Task) -> dict[str, Json]:
        """What phases remember, at the start."""
        return {
            "changes": changes_for(task),
            "augment": self.options.augment,
            "checks": [],
            "rounds": 0,  # of training
            "began": 0.0,  # the phase, in the budget's unit: training, then cooling
            "decisions": [],
        }

    def ready(self, state: State, r: Round) -> State:
        """The state in the phase that this round belongs to: what is over is left."""
        while True:
            phase = self.next_phase(state, r)
            if phase is None:
                return with_meta(state, progress=r.progress)
            state = self._entered(state, phase, r)

    def _entered(self, state: State, phase: str, r: Round) -> State:
        if state.meta["phase"] == "train":
            state = self._with_stop(state)
        if phase == "train":
            return with_meta(state, phase=phase, began=r.spent)
        if phase == "cool":
            return with_meta(state, phase=phase, began=r.spent, until=self._until(state, r))
        return with_meta(state, phase=phase)

    def _with_stop(self, state: State) -> State:
        """Why training at a constant rate ends here."""
        stopped = self._is_plateau(state)
        checks = state.meta["checks"]
        counts = {"nll": [nll for nll, _ in checks], "accuracy": [right for _, right in checks]}
        chosen = "plateau" if stopped else "budget"
        taken = decision("stop", ["plateau", "budget"], counts, chosen)
        return with_meta(decided(state, taken), stopped=stopped)

    def _until(self, state: State, r: Round) -> float:
        """Where cooling ends, in the budget's unit."""
        end = self.end_of_cooling(state, r)
        if state.meta["stopped"]:
            return min(end, r.spent * (1 + COOLING))
        return end

    # What is over

    def asks_for_changes(self, state: State) -> bool:
        return self.options.decides_changes and bool(state.meta["changes"])

    def training_is_over(self, state: State, r: Round) -> bool:
        spent = r.spent + self.cost_of_trials(state, r)
        return spent >= (1 - COOLING) * r.budget or self._is_plateau(state)

    def _is_plateau(self, state: State) -> bool:
        checks = [Check(*check) for check in state.meta["checks"]]
        return self.options.stop == "plateau" and has_plateau(checks, self.options.window)

    # Orders and replies

    def training(self, state: State, r: Round) -> dict[str, Json]:
        """What an order to train says of how."""
        phase = state.meta["phase"]
        rate = self.options.lr
        if phase == "cool" and self.options.schedule == "cosine":
            rate = cooled(rate, state.meta["began"], r.spent, state.meta["until"])
        return {
            "lr": rate,
            "augment": state.meta["augment"],
            "whole": phase == "cool",
            "validate": phase == "train" and self._is_check(state),
        }

    def _is_check(self, state: State) -> bool:
        rounds: int = state.meta["rounds"]
        return rounds % self.options.check_every == 0

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        heard = [reply for reply in replies if total_weight(reply)]
        if not heard:
            return state  # nobody's word counts: the same is asked again
        return self.merges[state.meta["phase"]](state, orders, heard)

    def merge_invariance(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        plain = sum(reply.meta["plain"] for reply in replies)
        changes = state.meta["changes"]
        counts = {"plain": plain}
        kept = []
        for place, change in enumerate(changes):
            counts[change] = sum(reply.meta["changed"][place] for reply in replies)
            if plain and counts[change] >= self.options.invariance * plain:
                kept.append(change)
        counts["samples"] = sum(reply.meta["samples"] for reply in replies)
        taken = decision("augmentation", changes, counts, joined(kept))
        return with_meta(decided(state, taken), phase="tried changes", augment=joined(kept))

    def merge_training(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        merged = self.merge_mean(state, orders, replies)
        merged = with_meta(merged, rounds=state.meta["rounds"] + 1)
        samples = sum(int(reply.meta["samples"] or 0) for reply in replies)
        if not self._is_check(state) or not samples:
            return merged
        nll = sum(float(reply.meta["nll"] or 0.0) for reply in replies)
        correct = sum(int(reply.meta["correct"] or 0) for reply in replies)
        check = [nll / samples, correct / samples]
        return with_meta(merged, checks=[*state.meta["checks"], check])


def with_meta(state: State, **changes: Json) -> State:
    return State(state.tensors, {**state.meta, **changes})


def decided(state: State, taken: dict[str, Json]) -> State:
    return with_meta(state, decisions=[*state.meta["decisions"], taken])


def cooled(rate: float, began: float, spent: float, until: float) -> float:
    """A rate that falls to nearly 0 along half a cosine."""
    length = until - began
    done = 1.0 if length <= 0 else min(1.0, (spent - began) / length)
    return max(LEAST_RATE * rate, cosine(rate, done))


def total_weight(reply: Reply) -> float:
    weight = reply.weight
    return float(weight) if isinstance(weight, int | float) else 0.0

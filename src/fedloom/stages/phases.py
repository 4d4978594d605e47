"""A stage that consists of phases. `auto` and `auto-tiers` share these three:

- `invariance`: clients measure which augmentations leave the network's answers intact. Training
  uses those from then on.
- `train`: a constant learning rate, until three quarters of the budget are spent or the validation
  figures stop improving.
- `cool`: the learning rate decays to 0. Clients now train on their validation samples, too.

A subclass defines the phases before, between and after these, and how replies become new weights.

The cost of a round is known when the next one is planned. Each phase ends with the round that comes
nearest to its end, so the whole stage ends within half a round of its budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from fedloom.federation.protocol.method import Method
from fedloom.learning.judging import is_decisive
from fedloom.learning.training import cosine
from fedloom.searchers.plateau import Check, has_plateau
from fedloom.stages.decisions import DecisionOptions, changes_for, decision, joined, loss_name
from fedloom.types import Json, Order, Reply, Round, State, Task

COOLING = 0.25  # share of the budget for cooling; after a plateau, of what was spent so far
BEYOND_DOUBT = 3.0  # standard deviations by which a network must beat a constant answer
LEAST_RATE = 0.01  # of lr: the learning rate at the end of cooling
LEARNING = ("race", "begin", "train")  # phases that do not train on the validation samples

Merging = Callable[[State, Sequence[Order], Collection[Reply]], State]


class InPhases(Method):
    """A stage whose state holds its current phase in `meta["phase"]`."""

    options: DecisionOptions

    def next_phase(self, state: State, r: Round) -> str | None:
        """The phase that begins now; None: the current phase continues."""
        raise NotImplementedError

    @property
    def merges(self) -> Mapping[str, Merging]:
        """The function that merges replies, by phase."""
        raise NotImplementedError

    def merge_mean(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        """The state with the mean of the replies' weights."""
        raise NotImplementedError

    def cost_of_trials(self, state: State, r: Round) -> float:
        """What the trials between training and cooling cost; training must leave that much."""
        return 0.0

    def end_of_cooling(self, state: State, r: Round) -> float:
        """The latest end of cooling, in the budget's unit."""
        return r.budget

    def network_in_turn(self, state: State) -> str:
        """The network that the round trains, by the name under which its cost is recorded."""
        return ""

    # The state

    def first_meta(self, task: Task) -> dict[str, Json]:
        """The initial values of what the phases keep in the state."""
        return {
            "loss": loss_name(task),
            "changes": changes_for(task),
            "augment": self.options.augment,
            "checks": [],
            "rounds": 0,  # rounds of phase `train`
            "stopped": False,  # whether training ended at a plateau
            "began": 0.0,  # what was spent when `train`, and later `cool`, began
            "spent": 0.0,  # what was spent when the last round was planned
            "asked": ["", ""],  # phase and network of that round
            "paid": {},  # cost of a round of training, by network
            "cooling": 0.0,  # cost of a round of cooling
            "decisions": [],
        }

    def ready(self, state: State, r: Round) -> State:
        """The state with the phase that this round belongs to."""
        state = self._with_cost(state, r)
        while True:
            phase = self.next_phase(state, r)
            if phase is None:
                asked = [state.meta["phase"], self.network_in_turn(state)]
                return with_meta(state, budget=r.budget, spent=r.spent, asked=asked)
            state = self._entered(state, phase, r)

    def _with_cost(self, state: State, r: Round) -> State:
        """The state with the cost of the previous round recorded."""
        phase, network = state.meta["asked"]
        cost = r.spent - state.meta["spent"]
        if phase in LEARNING:
            return with_meta(state, paid={**state.meta["paid"], network: cost})
        if phase == "cool":
            return with_meta(state, cooling=cost)
        return state

    def training_cost(self, state: State) -> float:
        """The cost of one more round with the network in turn; 0 if it is not known yet."""
        cost: float = state.meta["paid"].get(self.network_in_turn(state), 0.0)
        return cost

    def cooling_cost(self, state: State, r: Round) -> float:
        """The cost of a round on all samples: the last one's, or an estimate from training."""
        cost: float = state.meta["cooling"]
        if cost:
            return cost
        all_samples = times_the_work(r, 1 / (1 - self.options.held_back))
        return self.training_cost(state) * all_samples

    def _entered(self, state: State, phase: str, r: Round) -> State:
        if state.meta["phase"] == "train":
            state = self._with_stop(state)
        if phase == "train":
            return with_meta(state, phase=phase, began=r.spent)
        if phase == "cool":
            return with_meta(state, phase=phase, began=r.spent, until=self._until(state, r))
        return with_meta(state, phase=phase)

    def _with_stop(self, state: State) -> State:
        """The state with the decision why training at a constant rate ends here."""
        stopped = self._is_plateau(state)
        checks = state.meta["checks"]
        loss = state.meta["loss"]
        counts = {loss: [check[0] for check in checks]}
        if loss == "nll":
            counts["accuracy"] = [accuracy for _, accuracy in checks]
        chosen = "plateau" if stopped else "budget"
        stop_decision = decision("stop", ["plateau", "budget"], counts, chosen)
        return with_meta(decided(state, stop_decision), stopped=stopped)

    def _until(self, state: State, r: Round) -> float:
        """The end of cooling, in the budget's unit."""
        end = self.end_of_cooling(state, r)
        if state.meta["stopped"]:
            return min(end, r.spent * (1 + COOLING))
        return end

    # When a phase is over

    def asks_for_changes(self, state: State) -> bool:
        return self.options.decides_changes and bool(state.meta["changes"])

    def cooling_is_over(self, state: State, r: Round) -> bool:
        """Whether one more round would end further from the planned end than this moment."""
        return r.spent + self.cooling_cost(state, r) / 2 > float(state.meta["until"])

    def training_is_over(self, state: State, r: Round) -> bool:
        """Whether training has reached its share of the budget, or a plateau.

        Cooling begins with the last quarter of the budget, or earlier if what must follow would
        otherwise not fit. Training ends with the round that comes nearest to that point.
        """
        end = min((1 - COOLING) * r.budget, r.budget - self.least_afterwards(state, r))
        spent = r.spent + self.cost_of_trials(state, r)
        if spent >= end or spent + self.training_cost(state) / 2 > end:
            return True
        return self._is_plateau(state)

    def least_afterwards(self, state: State, r: Round) -> float:
        """The least that must follow training and trials: one round of cooling."""
        return self.cooling_cost(state, r)

    def _is_plateau(self, state: State) -> bool:
        checks = [Check(*check) for check in state.meta["checks"]]
        return self.options.stop == "plateau" and has_plateau(checks, self.options.window)

    # Orders and replies

    def training(self, state: State, r: Round) -> dict[str, Json]:
        """How an order tells a client to train."""
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
        weighty = [reply for reply in replies if total_weight(reply)]
        if not weighty:
            return state  # no reply has any weight: the same orders are sent again
        return self.merges[state.meta["phase"]](state, orders, weighty)

    def merge_invariance(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        """Keep the augmentations that leave intact what the network has learnt.

        That is what it answers correctly beyond each client's most common class. Where one class
        dominates, most answers stay correct whatever is done to a sample. No augmentation is kept
        if the network is not better than always answering the most common class.
        """
        plain = sum(reply.meta["plain"] for reply in replies)
        up = sum(reply.meta["up"] for reply in replies)
        down = sum(reply.meta["down"] for reply in replies)
        has_learnt = is_decisive(up, down, BEYOND_DOUBT)
        most_common = plain - up + down
        least = most_common + self.options.invariance * (plain - most_common)
        changes = state.meta["changes"]
        counts = {"plain": plain}
        kept_changes = []
        for place, change in enumerate(changes):
            counts[change] = sum(reply.meta["changed"][place] for reply in replies)
            if has_learnt and counts[change] >= least:
                kept_changes.append(change)
        counts["only the network"] = up
        counts["only the most common class"] = down
        counts["samples"] = sum(reply.meta["samples"] for reply in replies)
        augmentation_decision = decision("augmentation", changes, counts, joined(kept_changes))
        decided_state = decided(state, augmentation_decision)
        return with_meta(decided_state, phase="tried changes", augment=joined(kept_changes))

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


def times_the_work(r: Round, times: float) -> float:
    """The cost of a round in which clients do `times` the work, in units of a usual round."""
    if r.unit in ("macs", "seconds"):
        return times
    return 1.0


def times_the_clients(r: Round) -> float:
    """The cost of a round in which all clients work, in units of a usual round.

    Clients work in parallel, so such a round takes no more simulated seconds.
    """
    if r.unit in ("rounds", "seconds"):
        return 1.0
    return len(r.clients) / r.active


def with_meta(state: State, **changes: Json) -> State:
    return State(state.tensors, {**state.meta, **changes})


def decided(state: State, new_decision: dict[str, Json]) -> State:
    """The state with one more decision on record."""
    return with_meta(state, decisions=[*state.meta["decisions"], new_decision])


def cooled(rate: float, began: float, spent: float, until: float) -> float:
    """The learning rate of cooling: half a cosine from `rate` to nearly 0."""
    length = until - began
    done = 1.0 if length <= 0 else min(1.0, (spent - began) / length)
    return max(LEAST_RATE * rate, cosine(rate, done))


def total_weight(reply: Reply) -> float:
    weight = reply.weight
    return float(weight) if isinstance(weight, int | float) else 0.0

"""auto: chooses network size, augmentation, fine-tuning and stopping time while it trains.

docs/auto.md is its paper. The first stage trains, in phases that share one budget:

1. `race`: several widths of a network are trained in turn so that each uses the same MACs. After
   each of two slices of the budget the clients score all widths, and the better half continues:
   the half that will be better at the end of the budget, if learning goes on as it began.
2. `begin`, `invariance`: the winner is trained until a quarter of the budget has gone into it. Then
   clients measure which augmentations leave its answers intact. Training uses those from then on.
3. `train`: federated averaging at a constant learning rate, until three quarters of the budget are
   spent or the validation figures stop improving.
4. `trial`, `compare`: every client fine-tunes for a few epochs, then compares its own network with
   the mean of all clients' networks.
5. `cool`: the learning rate decays to 0. Clients now train on their validation samples, too.

In the second stage every client fine-tunes, if the trial favoured it. Throughout, a client adds the
logarithm of its own class proportions to its scores (learning/prior.py). What clients report about
their validation samples are sums.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.learning.judging import ValidationSums, is_decisive
from fedloom.learning.training import weights_of
from fedloom.methods.auto_client import AutoClient
from fedloom.methods.auto_least import cost_of_asking, least_work
from fedloom.methods.auto_networks import (
    cost_of,
    named_by_size,
    network_of_size,
    sizes_within,
    weights_of_size,
    weights_of_sizes,
)
from fedloom.methods.auto_options import FIRST_LOOK, SLICES, AutoOptions
from fedloom.methods.auto_tune import Tune
from fedloom.records.sections import Sections
from fedloom.searchers.learning_curve import Point, expected
from fedloom.stages.decisions import decision, decisions_in, sums_as_counts, sums_in, total
from fedloom.stages.phases import (
    InPhases,
    Merging,
    decided,
    times_the_clients,
    times_the_work,
    total_weight,
    with_meta,
)
from fedloom.types import Json, Meta, Order, Reply, Round, Setup, State, Task

# The kind of an order, where it differs from the name of the phase.
KINDS = {"race": "train", "begin": "train", "train": "train", "cool": "train"}

LEAST_OF_DECIDING = 1.5  # the rounds asked for, for each round that decides something


@dataclass(frozen=True)
class Auto(InPhases, AutoClient):
    """The first stage: race, invariance, training, trial of fine-tuning, cooling."""

    def check_rounds(self, rounds: float | None) -> None:
        least = ceil(LEAST_OF_DECIDING * self._deciding_rounds)
        if rounds is not None and rounds < least:
            number = len(self.options.sizes)
            noun = "size" if number == 1 else "sizes"
            raise FedloomError(
                f"--rounds must be at least {least} for auto with {number} {noun}: "
                "two thirds of them are needed for its decisions",
                f"got {rounds:g}",
                "ask for more rounds, or name fewer sizes=",
            )

    def least_work(
        self,
        task: Task,
        unit: str,
        times_the_clients: float,
        budget_in_rounds: bool = False,
    ) -> float | None:
        return least_work(task, self.options, unit, times_the_clients, budget_in_rounds)

    @property
    def _deciding_rounds(self) -> int:
        """The smallest number of rounds in which the race and all other decisions fit."""
        sizes = len(self.options.sizes)
        rounds = 0
        if sizes > 1:  # every size is trained once, then clients score all of them
            rounds += sizes + 1
        if sizes > 2:  # the same for the better half
            rounds += (sizes + 1) // 2 + 1
        if self.options.decides_changes:
            rounds += 1
        if self.options.decides_changes and sizes == 1:  # one round of training comes first
            rounds += 1
        if self.options.tune == "decide":
            rounds += 2
        return max(1, rounds)

    # The server

    def init(self, setup: Setup, previous: State | None) -> State:
        task = setup.task
        tensors: dict[str, torch.Tensor] = {}
        live = sizes_within(task, self.options)
        for size in live:
            tensors |= named_by_size(size, weights_of(network_of_size(task, self.options, size)))
        meta: dict[str, Json] = {
            **self.first_meta(task),
            "phase": "race",
            "live": live,
            "cost": {size: cost_of(task, self.options, size).macs for size in live},
            "work": dict.fromkeys(live, 0.0),
            "slices": 0,
            "curves": {size: [] for size in live},  # [work, negative log-likelihood] at each look
            "trained_on": 0.0,  # samples in the last round of the race
            "raced": 0.0,  # the largest work of any size when the last slice ended
            "tune": self.options.tune == "always",
        }
        return State(tensors, meta)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        state = self.ready(state, r)
        phase: str = state.meta["phase"]
        if phase == "end":
            return None
        tensors, meta = self._content_of_orders(state, r)
        clients: Sequence[int]
        if phase == "compare":
            clients = state.meta["tried"]
        elif phase == "trial":
            clients = r.cohort(share=1.0)
        else:
            clients = r.cohort()
        return state, [Order(client, KINDS.get(phase, phase), tensors, meta) for client in clients]

    def ready(self, state: State, r: Round) -> State:
        """With a budget in rounds, sizes race for equal rounds: each costs one, not its MACs."""
        if r.unit == "rounds":
            state = with_meta(state, cost=dict.fromkeys(state.meta["cost"], 1))
        return super().ready(state, r)

    def next_phase(self, state: State, r: Round) -> str | None:
        meta = state.meta
        phase = meta["phase"]
        if phase == "race" and len(meta["live"]) == 1:
            return "begin" if self.asks_for_changes(state) else "train"
        if phase == "race" and self._slice_is_over(state, r):
            return "judge"
        if phase == "begin" and self._may_be_asked(state, r):
            return "invariance"
        if phase == "tried changes":
            return "train"
        if phase == "train" and self.training_is_over(state, r):
            return "trial" if self.options.tune == "decide" else "cool"
        if phase == "compared":
            return "cool"
        if phase == "cool" and self.cooling_is_over(state, r):
            return "end"
        return None

    def _may_be_asked(self, state: State, r: Round) -> bool:
        """Whether the winner has been trained enough to test augmentations on it.

        Only what was spent on the winner counts, not what the race spent on other sizes. Where the
        race was expensive, the test comes while there is still budget to train with its result.
        """
        (size,) = state.meta["live"]
        work = state.meta["work"]
        if not work[size]:
            return False
        own_share = work[size] / sum(work.values())
        if own_share * r.progress >= self.options.changes_after:
            return True
        asking = cost_of_asking(len(state.meta["changes"]), self.options, r.unit)
        after_one_more = r.spent + self.training_cost(state) * (1 + asking)
        return self.training_is_over(state, replace(r, spent=after_one_more))

    def _slice_is_over(self, state: State, r: Round) -> bool:
        """Whether the slice's share is spent and one more round would put any size ahead.

        The same holds for the first look, which comes within the first slice.
        """
        meta = state.meta
        if r.progress < slices_at_next_look(state) * self.options.slice_share:
            return False
        work = [meta["work"][size] for size in meta["live"]]
        most = max(work)
        all_raced = min(work) > meta["raced"]
        behind = [size for size in meta["live"] if work_after(state, size) <= most]
        return all_raced and not behind

    def cost_of_trials(self, state: State, r: Round) -> float:
        if self.options.tune != "decide":
            return 0.0
        epochs = self.options.trial_epochs / self.options.epochs
        everybody = times_the_work(r, epochs) * times_the_clients(r)
        return everybody * self.training_cost(state)

    def least_afterwards(self, state: State, r: Round) -> float:
        least = super().least_afterwards(state, r)
        if self.options.tune != "never":
            least += self._tuning_cost(state, r)
        return least

    def end_of_cooling(self, state: State, r: Round) -> float:
        """Cooling leaves fine-tuning its share of the budget, and at least one round."""
        if not state.meta["tune"]:
            return r.budget
        return r.budget - max(self.options.tune_share * r.budget, self._tuning_cost(state, r))

    def _tuning_cost(self, state: State, r: Round) -> float:
        """A round of fine-tuning costs as much as a round of cooling in which all clients work."""
        return self.cooling_cost(state, r) * times_the_clients(r)

    def _content_of_orders(self, state: State, r: Round) -> tuple[dict[str, Any], Meta]:
        meta = state.meta
        phase = meta["phase"]
        if phase == "judge":
            return weights_of_sizes(meta["live"], state.tensors), {"sizes": meta["live"]}
        size = self._size(state)
        instructions: dict[str, Json] = {"size": size}
        if phase == "invariance":
            instructions["changes"] = meta["changes"]
        elif phase != "compare":
            instructions |= self.training(state, r)
        return weights_of_size(size, state.tensors), instructions

    def _size(self, state: State) -> str:
        """The size that is trained this round: in the race the one that has used the least work."""
        meta = state.meta
        size: str = min(meta["live"], key=lambda size: (meta["work"][size], float(size)))
        return size

    def network_in_turn(self, state: State) -> str:
        return self._size(state)

    def training(self, state: State, r: Round) -> dict[str, Json]:
        instructions = super().training(state, r)
        if state.meta["phase"] == "trial":
            instructions["lr"] = self.options.tuning_rate
        return instructions

    @property
    def merges(self) -> Mapping[str, Merging]:
        return {
            "race": self._merge_race,
            "begin": self._merge_race,
            "judge": self._merge_judge,
            "invariance": self.merge_invariance,
            "train": self.merge_training,
            "trial": self._merge_trial,
            "compare": self._merge_compare,
            "cool": self.merge_mean,
        }

    def merge_mean(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        size = self._size(state)
        mean = aggregate(weights_of_size(size, state.tensors), replies, orders)
        return State({**state.tensors, **named_by_size(size, mean)}, state.meta)

    def _merge_race(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        size = self._size(state)
        samples = sum(total_weight(reply) for reply in replies)
        work = dict(state.meta["work"])
        work[size] += samples * state.meta["cost"][size]
        merged = self.merge_mean(state, orders, replies)
        return with_meta(merged, work=work, trained_on=samples)

    def _merge_judge(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        state = with_look(state, replies)
        progress = state.meta["spent"] / state.meta["budget"]
        slices = state.meta["slices"] + 1
        if progress < slices * self.options.slice_share:
            return state  # the first look: nothing is decided yet
        live = state.meta["live"]
        survivors = (len(live) + 1) // 2
        if slices == SLICES:
            survivors = 1
        at_the_end = {size: expected_at_the_end(state, size) for size in live}
        best = sorted(live, key=lambda size: (at_the_end[size], float(size)))[:survivors]
        best.sort(key=float)
        loss = state.meta["loss"]
        counts = {}
        for place, size in enumerate(live):
            sums = total([sums_in(reply, place) for reply in replies])
            counts[size] = sums_as_counts(sums, loss)
            counts[size][f"expected {loss}"] = at_the_end[size]
        size_decision = decision(f"size, slice {slices}", live, counts, ", ".join(best))
        tensors = weights_of_sizes(best, state.tensors)
        judged_state = decided(State(tensors, state.meta), size_decision)
        return with_meta(judged_state, live=best, slices=slices)

    def _merge_trial(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        merged = self.merge_mean(state, orders, replies)
        tried = sorted(reply.client for reply in replies)
        return with_meta(merged, phase="compare", tried=tried)

    def _merge_compare(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        counts = {}
        for name in ("up", "down", "samples"):
            counts[name] = sum(reply.meta[name] for reply in replies)
        tune = is_decisive(counts["up"], counts["down"])
        chosen = "fine-tune" if tune else "one network"
        tuning_decision = decision("fine-tuning", ["fine-tune", "one network"], counts, chosen)
        return with_meta(decided(state, tuning_decision), phase="compared", tune=tune)

    def serve(self, state: State, client: int) -> Order:
        size = self._size(state)
        return Order(client, "evaluate", weights_of_size(size, state.tensors), {"size": size})

    def note(self, state: State, r: Round) -> Meta:
        return {"phase": state.meta["phase"], "size": float(self._size(state))}

    def sections(self, state: State) -> Sections:
        return Sections(decisions=decisions_in(state))


def work_after(state: State, size: str) -> float:
    """The work of a size after one more round of the race, in MACs."""
    meta = state.meta
    return float(meta["work"][size] + meta["cost"][size] * meta["trained_on"])


def slices_at_next_look(state: State) -> float:
    """How many slices will be over when clients score all sizes the next time."""
    meta = state.meta
    has_looked = any(meta["curves"].values())
    if not has_looked:
        return FIRST_LOOK
    return float(meta["slices"] + 1)


def with_look(state: State, replies: Collection[Reply]) -> State:
    """The state with one more point on the learning curve of every size."""
    meta = state.meta
    curves = dict(meta["curves"])
    for place, size in enumerate(meta["live"]):
        sums = total([sums_in(reply, place) for reply in replies])
        curves[size] = [*curves[size], [meta["work"][size], nll_of(sums)]]
    raced = max(meta["work"].values())
    return with_meta(state, phase="race", curves=curves, raced=raced)


def expected_at_the_end(state: State, size: str) -> float:
    """The negative log-likelihood of a size that all the rest of the budget is spent on."""
    meta = state.meta
    work_so_far = sum(meta["work"].values())
    remaining_work = work_so_far * (meta["budget"] / meta["spent"] - 1)
    curve = [Point(*point) for point in meta["curves"][size]]
    return expected(curve, meta["work"][size] + remaining_work)


def nll_of(sums: ValidationSums) -> float:
    """The mean over samples; 0 without samples, so that no size is better than another."""
    return sums.nll / max(1, sums.samples)


def stages(task: Task) -> tuple[Stage, ...]:
    options = AutoOptions(**task.options)
    return Stage("train", Auto(options)), Stage("tune", Tune(options), share=None)


auto = Recipe(
    "auto: size, augmentation, fine-tuning and stopping decided on validation; client prior",
    AutoOptions,
    stages,
    supports_regression=True,
    has_macs_formula=True,
)

"""auto: a network of the right size, decided on validation samples while it is trained.

Its paper is docs/auto.md. One stage trains, in phases under one budget:

1. `race`: several widths of a network are trained in turns, so that each takes the same MACs. After
   each of two slices of the budget clients judge them, and the better half goes on.
2. `invariance`: changes of samples that the winner bears are trained with from here on.
3. `train`: federated averaging at a constant rate, until three quarters of the budget are spent or
   validation figures stop improving.
4. `trial`, `compare`: every client fine-tunes for a few epochs, then compares its own network with
   the mean of all of them.
5. `cool`: the rate falls to 0; clients train on what they had held back, too.

Then, if the trial spoke for it, every client fine-tunes. In all of it a client's scores are shifted
by its own proportions of classes (learning/prior.py), and what it says of validation samples are
sums.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.learning.judging import Judged, is_decisive
from fedloom.learning.training import weights_of
from fedloom.methods.auto_client import AutoClient
from fedloom.methods.auto_frame import (
    built,
    cost_of,
    in_state,
    of_size,
    sizes_within,
    without_others,
)
from fedloom.methods.auto_options import AutoOptions
from fedloom.methods.auto_tune import Tune
from fedloom.records.sections import Sections
from fedloom.stages.decisions import decision, decisions_in, judged_in, total
from fedloom.stages.phases import InPhases, Merging, decided, total_weight, with_meta
from fedloom.types import Json, Meta, Order, Reply, Round, Setup, State, Task

KINDS = {"race": "train", "train": "train", "cool": "train"}  # of orders, by phase

LEAST_OF_DECIDING = 1.5  # rounds, for every one that decides something


@dataclass(frozen=True)
class Auto(InPhases, AutoClient):
    """Race, invariance, training and the trial of fine-tuning."""

    def check_rounds(self, rounds: float | None) -> None:
        least = ceil(LEAST_OF_DECIDING * self._deciding_rounds)
        if rounds is not None and rounds < least:
            raise FedloomError(
                f"--rounds must be at least {least} for auto with {len(self.options.sizes)} sizes: "
                "two thirds of them decide",
                f"got {rounds:g}",
                "ask for more rounds, or name fewer sizes=",
            )

    @property
    def _deciding_rounds(self) -> int:
        """The fewest rounds that a race and all other decisions take."""
        sizes = len(self.options.sizes)
        rounds = 0
        if sizes > 1:  # every size once, then clients judge them
            rounds += sizes + 1
        if sizes > 2:  # the same for the better half
            rounds += (sizes + 1) // 2 + 1
        if self.options.decides_changes:
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
            tensors |= in_state(size, weights_of(built(task, self.options, size)))
        meta: dict[str, Json] = {
            **self.first_meta(task),
            "phase": "race",
            "live": live,
            "cost": {size: cost_of(task, self.options, size).macs for size in live},
            "work": dict.fromkeys(live, 0.0),
            "slices": 0,
            "trained_on": 0.0,  # samples, in the last round of the race
            "raced": 0.0,  # the most that any size had worked when the last slice ended
            "tune": self.options.tune == "always",
        }
        return State(tensors, meta)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        state = self.ready(state, r)
        phase: str = state.meta["phase"]
        if phase == "end":
            return None
        tensors, meta = self._asked(state, r)
        clients: Sequence[int] = r.cohort()
        if phase == "compare":
            clients = state.meta["tried"]
        return state, [Order(client, KINDS.get(phase, phase), tensors, meta) for client in clients]

    def next_phase(self, state: State, r: Round) -> str | None:
        meta = state.meta
        phase = meta["phase"]
        if phase == "race" and len(meta["live"]) == 1:
            return "invariance"
        if phase == "race" and self._slice_is_over(state, r):
            return "judge"
        if phase == "invariance" and not self.asks_for_changes(state):
            return "train"
        if phase == "tried changes":
            return "train"
        if phase == "train" and self.training_is_over(state, r):
            return "trial" if self.options.tune == "decide" else "cool"
        if phase == "compared":
            return "cool"
        if phase == "cool" and r.spent >= meta["until"]:
            return "end"
        return None

    def _slice_is_over(self, state: State, r: Round) -> bool:
        """Its share is spent, and no size could be trained once more without being ahead."""
        meta = state.meta
        if r.progress < (meta["slices"] + 1) * self.options.slice_share:
            return False
        work = [meta["work"][size] for size in meta["live"]]
        most = max(work)
        all_raced = min(work) > meta["raced"]
        behind = [size for size in meta["live"] if work_after(state, size) <= most]
        return all_raced and not behind

    def cost_of_trials(self, state: State, r: Round) -> float:
        if self.options.tune != "decide":
            return 0.0
        return self.options.trial_epochs / self.options.epochs * round_cost(state, r)

    def end_of_cooling(self, state: State, r: Round) -> float:
        if not state.meta["tune"]:
            return r.budget
        return (1 - self.options.tune_share) * r.budget

    def _asked(self, state: State, r: Round) -> tuple[dict[str, Any], Meta]:
        """What this round's orders bring."""
        meta = state.meta
        phase = meta["phase"]
        if phase == "judge":
            return without_others(meta["live"], state.tensors), {"sizes": meta["live"]}
        size = self._size(state)
        about: dict[str, Json] = {"size": size}
        if phase == "invariance":
            about["changes"] = meta["changes"]
        elif phase != "compare":
            about |= self.training(state, r)
        return of_size(size, state.tensors), about

    def _size(self, state: State) -> str:
        """The network of this round: in the race the one that has worked least."""
        meta = state.meta
        size: str = min(meta["live"], key=lambda size: (meta["work"][size], float(size)))
        return size

    def training(self, state: State, r: Round) -> dict[str, Json]:
        about = super().training(state, r)
        if state.meta["phase"] == "trial":
            about["lr"] = self.options.tuning_rate
        return about

    @property
    def merges(self) -> Mapping[str, Merging]:
        return {
            "race": self._merge_race,
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
        mean = aggregate(of_size(size, state.tensors), replies, orders)
        return State({**state.tensors, **in_state(size, mean)}, state.meta)

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
        live = state.meta["live"]
        sums = {}
        for place, size in enumerate(live):
            sums[size] = total([judged_in(reply, place) for reply in replies])
        slices = state.meta["slices"] + 1
        kept = 1 if slices == 2 else (len(live) + 1) // 2
        best = sorted(live, key=lambda size: (nll_of(sums[size]), float(size)))[:kept]
        counts = {size: dict(sums[size]._asdict()) for size in live}
        best.sort(key=float)
        taken = decision(f"size, slice {slices}", live, counts, ", ".join(best))
        raced = max(state.meta["work"].values())
        tensors = without_others(best, state.tensors)
        judged_state = decided(State(tensors, state.meta), taken)
        return with_meta(judged_state, phase="race", live=best, slices=slices, raced=raced)

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
        taken = decision("fine-tuning", ["fine-tune", "one network"], counts, chosen)
        return with_meta(decided(state, taken), phase="compared", tune=tune)

    def serve(self, state: State, client: int) -> Order:
        size = self._size(state)
        return Order(client, "evaluate", of_size(size, state.tensors), {"size": size})

    def note(self, state: State, r: Round) -> Meta:
        return {"phase": state.meta["phase"], "size": float(self._size(state))}

    def sections(self, state: State) -> Sections:
        return Sections(decisions=decisions_in(state))


# Small things


def work_after(state: State, size: str) -> float:
    """How much a size of the race will have worked after one more round, in MACs."""
    meta = state.meta
    return float(meta["work"][size] + meta["cost"][size] * meta["trained_on"])


def round_cost(state: State, r: Round) -> float:
    """Of a round of training so far, in the budget's unit."""
    rounds: int = state.meta["rounds"]
    if not rounds:
        return 0.0
    return float(r.spent - state.meta["began"]) / rounds


def nll_of(sums: Judged) -> float:
    """Of a sample. Without samples no size is better than another."""
    return sums.nll / max(1, sums.samples)


def stages(task: Task) -> tuple[Stage, ...]:
    options = AutoOptions(**task.options)
    return Stage("train", Auto(options)), Stage("tune", Tune(options), share=None)


auto = Recipe(
    "auto: a size by a race, the client prior, augmentation, tuning and the end by validation",
    AutoOptions,
    stages,
    foretells_numbers=True,
)

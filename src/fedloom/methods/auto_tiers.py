"""auto-tiers: trains networks for all device tiers at once, with the decisions of `auto`.

The widths are nested: a narrow network consists of the first channels of every layer of the widest
one. In each round every client receives a width drawn at random, whatever its tier, and trains it.
Every weight becomes the mean over the clients that held it, and every width has its own BN
statistics. If a client always trained its tier's width, the outer channels would learn only from
the clients with large devices. At the end every client uses the widest network that its tier's
limit allows: limits concern using a network, not training it. A device that cannot train a width
declines the order.

One stage, in phases that share one budget (docs/auto.md, stages/phases.py):

1. `begin`: training without augmentation, for a quarter of the budget (`changes_after`).
2. `invariance`: clients measure which augmentations leave the answers of the widest network intact.
   Training uses those from then on.
3. `train`: a constant learning rate, until three quarters of the budget are spent or the validation
   figures stop improving. A client scores the width that it received, so a figure is over all.
4. `judge`: clients score all widths on validation samples that have not been trained on yet.
5. `cool`: the learning rate decays to 0. Clients now train on their validation samples, too.

Throughout, a client adds the logarithm of its own class proportions to its scores
(learning/prior.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import field_validator
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, Tiered
from fedloom.learning.averaging import server_step
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.judging import ValidationSums, held_back, validation_sums
from fedloom.learning.prior import fold_shift, shifted
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import final_weights, train
from fedloom.learning.width_costs import NestedNetwork, WidthOptions, inside_of, tiered
from fedloom.learning.widths import Nested, inside_in, key_of, statistics_prefix, widths_in
from fedloom.nets.nesting import is_statistic
from fedloom.records.sections import Sections
from fedloom.stages.decisions import (
    INVARIANCE_FIELDS,
    JUDGE_FIELDS,
    PRIVACY_NOTES,
    TRAINING_META,
    DecisionOptions,
    assumptions_of,
    changes_reply,
    decision,
    decisions_in,
    dishonest_sums,
    judging_macs,
    shift_of,
    sums_as_counts,
    sums_in,
    sums_reply,
    total,
)
from fedloom.stages.phases import InPhases, Merging, decided, with_meta
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors

LEAST_ROUNDS = 8  # with fewer rounds, none would be left for cooling


class AutoTiersOptions(WidthOptions, DecisionOptions):
    """The options of `auto-tiers`."""

    usual_widths = (0.5, 0.7, 1.0)

    @field_validator("widths")
    @classmethod
    def _rise(cls, widths: list[float] | None) -> list[float] | None:
        """Widths may be given in any order; the narrowest is for the smallest devices."""
        if widths is None:
            return None
        if not widths or min(widths) <= 0 or max(widths) > 1:
            raise ValueError("widths above 0 and up to 1, such as .5,.7,1")
        return sorted(widths)


@dataclass(frozen=True)
class AutoTiers(InPhases, Nested):
    options: AutoTiersOptions

    fields = {
        "train": Fields(tensors=("*",), meta=TRAINING_META, writes=False),
        "judge": JUDGE_FIELDS,
        "invariance": INVARIANCE_FIELDS,
    }
    privacy_notes = PRIVACY_NOTES

    def check_rounds(self, rounds: float | None) -> None:
        if rounds is not None and rounds < LEAST_ROUNDS:
            raise FedloomError(
                f"--rounds must be at least {LEAST_ROUNDS} for auto-tiers: "
                "two of them are for decisions, and the last quarter ends training",
                f"got {rounds:g}",
                "ask for more rounds",
            )

    def least_work(
        self,
        task: Task,
        unit: str,
        times_the_clients: float,
        budget_in_rounds: bool = False,
    ) -> float | None:
        return float(LEAST_ROUNDS)

    # The server

    def init(self, setup: Setup, previous: State | None) -> State:
        state = super().init(setup, previous)
        return with_meta(state, phase="begin", **self.first_meta(setup.task))

    def next_phase(self, state: State, r: Round) -> str | None:
        phase = state.meta["phase"]
        if phase == "begin" and not self.asks_for_changes(state):
            return "train"
        if phase == "begin" and r.progress >= self.options.changes_after:
            return "invariance"
        if phase == "tried changes":
            return "train"
        if phase == "train" and self.training_is_over(state, r):
            return "judge"
        if phase == "judged":
            return "cool"
        if phase == "cool" and self.cooling_is_over(state, r):
            return "end"
        return None

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        state = self.ready(state, r)
        phase = state.meta["phase"]
        if phase == "end":
            return None
        if phase == "invariance":
            return state, self._invariance_orders(state, r)
        if phase == "judge":
            return state, self._judge_orders(state, r)
        return state, self._training_orders(state, r)

    def _training_orders(self, state: State, r: Round) -> list[Order]:
        """Every client gets a width drawn at random."""
        clients = r.cohort()
        widths = widths_in(state)
        draws = r.rng("widths").integers(len(widths), size=len(clients))
        training = self.training(state, r)
        tensors: dict[float, Tensors] = {}  # shared by all orders of one width
        regions = {}
        orders = []
        for client, draw in zip(clients, draws, strict=True):
            width = widths[draw]
            if width not in tensors:
                tensors[width] = self.part(state, width)
                regions[width] = inside_in(state, width).region() or None
            meta = {"width": width, **training}
            orders.append(Order(client, "train", tensors[width], meta, regions[width]))
        return orders

    def _invariance_orders(self, state: State, r: Round) -> list[Order]:
        widest = max(widths_in(state))
        tensors = self.part(state, widest)
        meta = {"width": widest, "changes": state.meta["changes"]}
        return [Order(client, "invariance", tensors, meta) for client in r.cohort()]

    def _judge_orders(self, state: State, r: Round) -> list[Order]:
        """The widest network, which contains all others, and the BN statistics of every width."""
        widths = widths_in(state)
        widest = max(widths)
        tensors = self.part(state, widest)
        for width in widths:
            prefix = statistics_prefix(width)
            tensors.update(with_prefix(prefix, without_prefix(prefix, state.tensors)))
        meta = {"width": widest, "widths": widths}
        return [Order(client, "judge", tensors, meta) for client in r.cohort()]

    @property
    def merges(self) -> Mapping[str, Merging]:
        return {
            "begin": self.merge_mean,
            "invariance": self.merge_invariance,
            "train": self.merge_training,
            "judge": self._merge_judge,
            "cool": self.merge_mean,
        }

    def merge_mean(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        return server_step(self.options, state, orders, replies)

    def _merge_judge(
        self, state: State, orders: Sequence[Order], replies: Collection[Reply]
    ) -> State:
        """A tier's width follows from its limit; the sums show what a narrower width loses."""
        counts: dict[str, Json] = {}
        for place, width in enumerate(widths_in(state)):
            sums = total([sums_in(reply, place) for reply in replies])
            counts[key_of(width)] = sums_as_counts(sums, state.meta["loss"])
        chosen = []
        for row in state.meta["tiers"]:
            chosen.append(f"tier {row['tier']}: {key_of(row['width'])}")
        size_decision = decision("size per tier", list(counts), counts, ", ".join(chosen))
        return with_meta(decided(state, size_decision), phase="judged")

    def note(self, state: State, r: Round) -> Meta:
        return {"phase": state.meta["phase"]}

    def assumptions(self, task: Task) -> tuple[str, ...]:
        return assumptions_of(self.options, task)

    def sections(self, state: State) -> Sections:
        return replace(super().sections(state), decisions=decisions_in(state))

    # A client

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """A client cannot have counted more validation samples than it has samples."""
        networks = len(order.meta.get("widths", []))
        return dishonest_sums(order, networks, reply, samples)

    def client(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, State | None]:
        self.check_device(order, run)
        handlers: Mapping[str, Callable[[Order, Samples, ClientRun], Reply]] = {
            "train": self._train,
            "judge": self._judge,
            "invariance": self._try_changes,
        }
        return handlers[order.kind](order, data, run), None

    def _train(self, order: Order, data: Samples, run: ClientRun) -> Reply:
        parts = held_back(data, self.options.held_back)
        samples = data if order.meta["whole"] else parts.train
        sums = ValidationSums(0.0, 0, 0)
        if order.meta["validate"]:
            sums = validation_sums(
                self.network(order, data, None, run), parts.validation, run.device
            )
        width = order.meta["width"]
        options = self.options.model_copy(update={"augment": order.meta["augment"]})
        net = self.received(order, width, run)
        with shifted(net, shift_of(self.options, data, run.task)):
            trained = train(net, samples, options, order.meta["lr"], run)
        meta = {"loss": trained.loss, **sums._asdict()}
        return Reply(order.client, in_order(net, width), len(samples), meta)

    def _judge(self, order: Order, data: Samples, run: ClientRun) -> Reply:
        validation = held_back(data, self.options.held_back).validation
        nested = NestedNetwork.of(run.task, self.options)
        sums = []
        for width in order.meta["widths"]:
            weights = inside_of(nested, width, order.meta["width"]).take(order.tensors)
            weights.update(without_prefix(statistics_prefix(width), order.tensors))
            net = self.model(run.task, width, weights)
            fold_shift(net, shift_of(self.options, data, run.task))
            sums.append(validation_sums(net, validation, run.device))
        return sums_reply(order, data, sums)

    def _try_changes(self, order: Order, data: Samples, run: ClientRun) -> Reply:
        net = self.network(order, data, None, run)
        return changes_reply(net, order, data, self.options, run)

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        if order.kind == "judge":
            widths = order.meta["widths"]
            return sum(judging_macs(self._cost(task, width), order, reply) for width in widths)
        cost = self._cost(task, order.meta["width"])
        computed = judging_macs(cost, order, reply)
        if order.kind == "train":
            computed += cost.of_training(samples_of(reply), self.options)
        return computed

    def _cost(self, task: Task, width: float) -> SampleCost:
        return SampleCost.of(self.model(task, width), task, self.options)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """The client's network, with its prior folded into the scores."""
        net = super().network(order, data, own, run)
        fold_shift(net, shift_of(self.options, data, run.task))
        return net


def in_order(net: nn.Module, width: float) -> dict[str, torch.Tensor]:
    """The tensors of a trained network, under the names that they had in the order."""
    tensors = {}
    for name, tensor in final_weights(net).items():
        if is_statistic(name):
            name = f"{statistics_prefix(width)}{name}"
        tensors[name] = tensor
    return tensors


def tiers_of(task: Task) -> Tiered:
    return tiered(task, AutoTiersOptions(**task.options))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", AutoTiers(AutoTiersOptions(**task.options))),)


auto_tiers = Recipe(
    "auto-tiers: nested widths, one drawn for every client and round, with auto's decisions",
    AutoTiersOptions,
    stages,
    tiered=tiers_of,
    has_macs_formula=True,
)

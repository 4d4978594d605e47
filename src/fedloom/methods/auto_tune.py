"""The last stage of `auto`: every client fine-tunes, if the trial favoured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, shared
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.personal import FineTuned
from fedloom.learning.prior import shifted
from fedloom.learning.private_state import momentum_in, own_state, weights_or
from fedloom.learning.training import train
from fedloom.methods.auto_networks import network_of_size, network_with_prior, weights_of_size
from fedloom.methods.auto_options import AutoOptions
from fedloom.records.sections import Sections
from fedloom.stages.decisions import assumptions_of, decisions_in, shift_of
from fedloom.stages.phases import times_the_clients, with_meta
from fedloom.types import Meta, Order, Reply, Round, Setup, State, Task


@dataclass(frozen=True)
class Tune(FineTuned):
    """Fine-tuning at every client, if the trial favoured it; otherwise nothing."""

    options: AutoOptions

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None
        size = previous.meta["live"][0]
        handed_on = ("tune", "stopped", "budget", "augment", "decisions")
        meta = {name: previous.meta[name] for name in handed_on}
        # A round of fine-tuning costs as much as a round of cooling in which all clients work.
        paid: float = previous.meta["cooling"]
        return State(
            weights_of_size(size, previous.tensors),
            {**meta, "size": size, "started": [], "rounds": 0, "paid": paid},
        )

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if not state.meta["tune"] or self._is_over(state, r):
            return None
        planned = super().plan(with_meta(state, rounds=state.meta["rounds"] + 1), r)
        if planned is None:
            return None
        state, orders = planned
        network = {"size": state.meta["size"], "augment": state.meta["augment"]}
        return state, [replace(order, meta={**order.meta, **network}) for order in orders]

    def _is_over(self, state: State, r: Round) -> bool:
        """Whether one more round would end further from the stage's share than this moment.

        The first round is planned if at least half of it can be paid.
        """
        rounds: int = state.meta["rounds"]
        if not rounds:
            cost = state.meta["paid"] * times_the_clients(r)
            return bool(r.progress >= 1 or r.spent + cost / 2 > r.budget)
        cost = r.spent / rounds
        return bool(r.spent + cost / 2 > self._most(state, r.budget))

    def _most(self, state: State, remaining: float) -> float:
        """What the stage may spend: what remains, or after a plateau `tune_share` of the run."""
        if not state.meta["stopped"]:
            return remaining
        share = self.options.tune_share
        trained = state.meta["budget"] - remaining
        return float(min(remaining, share / (1 - share) * trained))

    def rate(self, r: Round) -> float:
        return self.options.tuning_rate

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        options = self.options.model_copy(update={"augment": order.meta["augment"]})
        net = network_of_size(
            run.task, self.options, order.meta["size"], weights_or(own, order.tensors)
        )
        with shifted(net, shift_of(self.options, data, run.task)):
            trained = train(net, data, options, order.meta["lr"], run, momentum=momentum_in(own))
        return own_state(net, trained.momentum)

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        cost = SampleCost.of(
            network_of_size(task, self.options, order.meta["size"]), task, self.options
        )
        return cost.of_training(samples_of(reply), self.options)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state), {"size": state.meta["size"]})

    def assumptions(self, task: Task) -> tuple[str, ...]:
        return assumptions_of(self.options, task)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        weights = weights_or(own, order.tensors)
        return network_with_prior(run.task, self.options, order.meta["size"], weights, data)

    def note(self, state: State, r: Round) -> Meta:
        return {"phase": "tune", "size": float(state.meta["size"])}

    def sections(self, state: State) -> Sections:
        return Sections(decisions=decisions_in(state))

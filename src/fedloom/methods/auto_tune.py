"""The last stage of `auto`: every client fine-tunes, if the trial spoke for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, shared
from fedloom.learning.personal import FineTuned
from fedloom.learning.prior import shifted
from fedloom.learning.private_state import momentum_in, own_state, weights_or
from fedloom.learning.training import train
from fedloom.methods.auto_frame import answering, built, of_size
from fedloom.methods.auto_options import AutoOptions
from fedloom.records.sections import Sections
from fedloom.stages.decisions import assumptions_of, decisions_in, shift_of
from fedloom.types import Meta, Order, Round, Setup, State, Task


@dataclass(frozen=True)
class Tune(FineTuned):
    """The last stage: every client fine-tunes, if the trial spoke for it."""

    options: AutoOptions

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None
        size = previous.meta["live"][0]
        kept = ("tune", "progress", "augment", "decisions")
        meta = {name: previous.meta[name] for name in kept}
        return State(of_size(size, previous.tensors), {**meta, "size": size, "started": []})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if not state.meta["tune"] or r.progress >= self._share_of_rest(state):
            return None
        planned = super().plan(state, r)
        if planned is None:
            return None
        state, orders = planned
        about = {"size": state.meta["size"], "augment": state.meta["augment"]}
        return state, [replace(order, meta={**order.meta, **about}) for order in orders]

    def _share_of_rest(self, state: State) -> float:
        """How much of what training left fine-tuning may take: its share of what both take."""
        trained: float = state.meta["progress"]
        share = self.options.tune_share
        wanted = share / (1 - share) * trained
        return min(1.0, wanted / max(1 - trained, wanted))

    def rate(self, r: Round) -> float:
        return self.options.tuning_rate

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        options = self.options.model_copy(update={"augment": order.meta["augment"]})
        net = built(run.task, self.options, order.meta["size"], weights_or(own, order.tensors))
        with shifted(net, shift_of(self.options, data, run.task)):
            trained = train(net, data, options, order.meta["lr"], run, momentum=momentum_in(own))
        return own_state(net, trained.momentum)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state), {"size": state.meta["size"]})

    def assumptions(self, task: Task) -> tuple[str, ...]:
        return assumptions_of(self.options, task)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        weights = weights_or(own, order.tensors)
        return answering(run.task, self.options, order.meta["size"], weights, data)

    def note(self, state: State, r: Round) -> Meta:
        return {"phase": "tune", "size": float(state.meta["size"])}

    def sections(self, state: State) -> Sections:
        return Sections(decisions=decisions_in(state))

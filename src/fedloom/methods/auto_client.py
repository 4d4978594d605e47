"""The client side of `auto`: a client trains, and scores networks on its validation samples.

See docs/auto.md. Beside weights, a client replies only sums over its validation samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method
from fedloom.learning.averaging import received_statistics
from fedloom.learning.formula import SampleCost, samples_of
from fedloom.learning.judging import (
    ValidationSums,
    answers,
    disagreement,
    held_back,
    validation_sums,
)
from fedloom.learning.prior import shifted
from fedloom.learning.training import final_weights, train, weights_of
from fedloom.methods.auto_networks import network_of_size, network_with_prior, weights_of_size
from fedloom.methods.auto_options import AutoOptions
from fedloom.stages.decisions import (
    INVARIANCE_FIELDS,
    JUDGE_FIELDS,
    PRIVACY_NOTES,
    TRAINING_META,
    assumptions_of,
    changes_reply,
    dishonest_sums,
    judging_macs,
    shift_of,
    sums_reply,
)
from fedloom.types import Fields, Order, Reply, State, Task


class Trained(NamedTuple):
    net: nn.Module
    loss: float


@dataclass(frozen=True)
class AutoClient(Method):
    """The client side of `auto`."""

    options: AutoOptions

    fields = {
        "train": Fields(tensors=("*",), meta=TRAINING_META, writes=False),
        "judge": JUDGE_FIELDS,
        "invariance": INVARIANCE_FIELDS,
        "trial": Fields(tensors=("*",), meta=("loss",), writes=True),
        "compare": Fields(meta={"up": int, "down": int, "samples": int}, writes=False),
    }
    privacy_notes = PRIVACY_NOTES

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """A client cannot have counted more validation samples than it has samples."""
        networks = len(order.meta.get("sizes", []))
        return dishonest_sums(order, networks, reply, samples)

    def client(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, State | None]:
        handlers: Mapping[str, Callable[..., tuple[Reply, State | None]]] = {
            "train": self._train,
            "judge": self._judge,
            "invariance": self._try_changes,
            "trial": self._try_tuning,
            "compare": self._compare,
        }
        return handlers[order.kind](order, data, own, run)

    def _train(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, None]:
        parts = held_back(data, self.options.held_back)
        samples = data if order.meta["whole"] else parts.train
        sums = ValidationSums(0.0, 0, 0)
        if order.meta["validate"]:
            sums = validation_sums(
                self.network(order, data, None, run), parts.validation, run.device
            )
        trained = self._trained(order, samples, data, run, self.options.epochs)
        meta = {"loss": trained.loss, **sums._asdict()}
        return Reply(order.client, final_weights(trained.net), len(samples), meta), None

    def _trained(
        self, order: Order, samples: Samples, data: Samples, run: ClientRun, epochs: int
    ) -> Trained:
        options = self.options.model_copy(
            update={"augment": order.meta["augment"], "epochs": epochs}
        )
        net = network_of_size(run.task, self.options, order.meta["size"], order.tensors)
        with (
            shifted(net, shift_of(self.options, data, run.task)),
            received_statistics(net, samples, options, run),
        ):
            trained = train(net, samples, options, order.meta["lr"], run)
        return Trained(net, trained.loss)

    def _judge(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, None]:
        validation = held_back(data, self.options.held_back).validation
        sums = []
        for size in order.meta["sizes"]:
            weights = weights_of_size(size, order.tensors)
            net = network_with_prior(run.task, self.options, size, weights, data)
            sums.append(validation_sums(net, validation, run.device))
        return sums_reply(order, data, sums), None

    def _try_changes(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, None]:
        net = self.network(order, data, None, run)
        return changes_reply(net, order, data, self.options, run), None

    def _try_tuning(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, State]:
        """Fine-tune for a few epochs; keep the result to compare it with all clients' mean."""
        samples = held_back(data, self.options.held_back).train
        trained = self._trained(order, samples, data, run, self.options.trial_epochs)
        reply = Reply(
            order.client, final_weights(trained.net), len(samples), {"loss": trained.loss}
        )
        return reply, State(weights_of(trained.net))

    def _compare(
        self, order: Order, data: Samples, own: State | None, run: ClientRun
    ) -> tuple[Reply, None]:
        """Compare the client's own network of the trial with the mean of all clients' networks."""
        validation = held_back(data, self.options.held_back).validation
        if own is None or not len(validation):
            no_counts = {"up": 0, "down": 0, "samples": 0}
            return Reply(order.client, weight=len(data), meta=no_counts), None
        size = order.meta["size"]
        own_net = network_with_prior(run.task, self.options, size, own.tensors, data)
        own_answers = answers(own_net, validation, run.device)
        mean_net = network_with_prior(run.task, self.options, size, order.tensors, data)
        mean_answers = answers(mean_net, validation, run.device)
        counts = disagreement(own_answers, mean_answers, validation)
        return Reply(order.client, weight=len(data), meta=dict(counts._asdict())), None

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        if order.kind == "judge":
            sizes = order.meta["sizes"]
            return sum(judging_macs(self._cost(task, size), order, reply) for size in sizes)
        cost = self._cost(task, order.meta["size"])
        computed = judging_macs(cost, order, reply)
        options = self.options
        if order.kind == "trial":
            options = options.model_copy(update={"epochs": options.trial_epochs})
        if order.kind in ("train", "trial"):
            computed += cost.of_averaged_training(samples_of(reply), options)
        return computed

    def _cost(self, task: Task, size: str) -> SampleCost:
        return SampleCost.of(network_of_size(task, self.options, size), task, self.options)

    def assumptions(self, task: Task) -> tuple[str, ...]:
        return assumptions_of(self.options, task)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """The shared network; a client's own network of the trial is only for comparison."""
        return network_with_prior(run.task, self.options, order.meta["size"], order.tensors, data)

"""Whether the round may use a reply: admission's rules, with what the client has described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from fedloom.federation.protocol import admission
from fedloom.federation.protocol.basic_replies import refuse_description, refuse_evaluation
from fedloom.federation.protocol.method import Method
from fedloom.federation.server.settings import Settings
from fedloom.metrics.metric import metric_of
from fedloom.types import ClientDescription, Order, Reply


@dataclass(frozen=True)
class ReplyCheck:
    """Checks the replies of a round's clients, which `described` bounds."""

    settings: Settings
    method: Method
    described: Mapping[int, ClientDescription]

    def __call__(self, reply: Reply, order: Order, expected: admission.Expected) -> str | None:
        """Why this reply is refused, or None if it may be used."""
        trained_on = 0
        most_samples: float = inf
        if order.client in self.described:
            samples = self.described[order.client].samples
            trained_on = samples.train
            most_samples = samples.total
        reason = admission.refuse(
            reply,
            order,
            expected,
            self.method.most_weight(order, trained_on),
            self.method.most_steps(order, trained_on),
        )
        if reason is not None:
            return reason
        if order.kind == "describe":
            return self._refuse_description(reply)
        if order.kind == "evaluate":
            task = self.settings.task
            metric = metric_of(task.kind)
            return refuse_evaluation(reply.meta, most_samples, metric, len(task.labels))
        return admission.refuse_by_method(self.method, order, reply, trained_on)

    def _refuse_description(self, reply: Reply) -> str | None:
        settings = self.settings
        reason = refuse_description(reply.meta, settings.task, settings.histograms)
        if reason is not None:
            return reason
        return self._refuse_counts(reply)

    def _refuse_counts(self, reply: Reply) -> str | None:
        """Refuse a client that describes more samples than it had when the run began.

        Its samples bound the weight that it may claim.
        """
        if not self.settings.registered:
            return None
        registered = self.settings.registered[reply.client]
        samples = ClientDescription.from_json(reply.meta).samples
        if samples.train <= registered.train and samples.total <= registered.total:
            return None
        described = f"it describes {samples.train} samples to train on of {samples.total}"
        before = f"when the run began it had {registered.train} of {registered.total}"
        return f"{described}; {before}"

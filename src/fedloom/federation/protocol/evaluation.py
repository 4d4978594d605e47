"""Evaluations: the reply of a client to an evaluate order, and what the server keeps of it.

Admission checks a reply before anything reads it as an `EvaluationReply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedloom.metrics.figures import Figures
from fedloom.types import Json


@dataclass(frozen=True)
class EvaluationReply:
    """A client's metrics on the part of its data that the order named."""

    personal: Figures  # of the model that the client uses
    shared: Figures | None  # of the shared model; None: the method has none
    # How many samples of each class (rows) were predicted as each class (columns); None: not sent.
    confusion: list[list[int]] | None = None

    def to_meta(self) -> dict[str, Json]:
        """The evaluation as the reply's meta carries it."""
        meta: dict[str, Json] = {"personal": self.personal.to_json(), "shared": None}
        if self.shared is not None:
            meta["shared"] = self.shared.to_json()
        if self.confusion is not None:
            meta["confusion"] = self.confusion
        return meta

    @classmethod
    def from_meta(cls, meta: Mapping[str, Json], metric: str) -> EvaluationReply:
        shared = None
        if meta["shared"] is not None:
            shared = Figures.from_json(meta["shared"], metric)
        personal = Figures.from_json(meta["personal"], metric)
        return cls(personal, shared, meta.get("confusion"))


@dataclass(frozen=True)
class NetworkFacts:
    """What the observer of a simulation may record about a network.

    The sites of a deployment do not send these facts.
    """

    params: int | None = None
    macs: int | None = None  # per sample
    architecture: Json = None  # the name of a fixed network, or a searched one as JSON
    head: str | None = None  # how its classifier reads the last feature map; None: not known
    # The routes of the client's test samples, with their costs; None: all take the same route.
    routes: Json = None

    def to_json(self) -> dict[str, Json]:
        facts: dict[str, Json] = {
            "params": self.params,
            "macs": self.macs,
            "architecture": self.architecture,
        }
        if self.head is not None:
            facts["head"] = self.head
        if self.routes is not None:
            facts["routes"] = self.routes
        return facts

    @classmethod
    def from_json(cls, facts: Json) -> NetworkFacts:
        """The facts in an envelope, which may be null."""
        if facts is None:
            return cls()
        return cls(
            facts["params"],
            facts["macs"],
            facts["architecture"],
            facts.get("head"),
            facts.get("routes"),
        )


@dataclass(frozen=True)
class ModelEvaluation:
    """The evaluation of one model on one client's data."""

    figures: Figures | None = None  # None if there is a reason
    confusion: list[list[int]] | None = None
    network: NetworkFacts = NetworkFacts()
    reason: str | None = None  # why there are no figures


@dataclass(frozen=True)
class ClientEvaluation:
    """All that a client has evaluated at one time."""

    client: int
    own: ModelEvaluation  # of the model that the client uses
    shared: Figures | None = None  # of the shared model, which the same reply contains
    # Of the models that the method names, with one order for each, in the final evaluation only.
    named: Mapping[str, ModelEvaluation] = field(default_factory=dict)

    @classmethod
    def unanswered(cls, client: int, reason: str) -> ClientEvaluation:
        return cls(client, ModelEvaluation(reason=reason))

    @classmethod
    def answered(cls, client: int, reply: EvaluationReply, facts: Json) -> ClientEvaluation:
        network = NetworkFacts.from_json(facts)
        own = ModelEvaluation(reply.personal, reply.confusion, network)
        return cls(client, own, reply.shared)

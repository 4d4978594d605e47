"""The metadata of init.state: which run a new run starts from, and how its network is built.

It is written when the new run is created (runs/warm_start.py), and read there and for newcomers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.errors import FedloomError
from fedloom.reading import Unreadable
from fedloom.records.record import Count, Record
from fedloom.records.result_parts import Input
from fedloom.types import Json


def own_prefix(prefix: str, client: int) -> str:
    """The prefix of the names of a client's private tensors, where several clients have some."""
    return f"{prefix}{client}/"


class FromClient(Record):
    """A client of the finished run whose model a newcomer starts with."""

    client: Count
    own: dict[str, Any] | None  # the metadata of its private state; None: it has no such state


class WarmStart(Record):
    """What is taken from the finished run.

    The hash in a configuration covers these fields in this order.
    """

    method: str
    options: dict[str, Any]
    seed: int
    stage: Count  # index into the method's stages
    meta: dict[str, Any]  # of its final state
    own: dict[str, Any] | None  # the metadata of the private state of the client of --init
    input: Input
    prefix: str  # of the names of that client's private tensors
    # What the method needs besides tensors to build the network of a tier or a search.
    order: dict[str, Any] | None = None
    # The client whose model each newcomer starts with, in their order; None: all start with the
    # same model. Names of such a client's private tensors begin with the prefix and its number.
    clients: list[FromClient] | None = None
    client: Count | None = None  # in the message to one newcomer, the client whose model it gets

    def for_newcomer(self, chosen: FromClient) -> WarmStart:
        """This warm start for the newcomer that starts with the chosen client's model."""
        fields = self.given_fields()
        del fields["clients"]
        return WarmStart(**{**fields, "own": chosen.own, "client": chosen.client})

    def with_order(self, order: Mapping[str, Any], stage: int) -> WarmStart:
        """This warm start for a network that the method of this stage builds from such an order."""
        return WarmStart(**{**self.given_fields(), "order": dict(order), "stage": stage})

    @classmethod
    def read(cls, raw: Mapping[str, Json]) -> WarmStart:
        """Check the metadata of a state. Anything else is a FedloomError."""
        try:
            return cls.checked(dict(raw), names={})
        except Unreadable as error:
            rule = "what a run begins with must say which run it was taken from"
            raise FedloomError(rule, str(error), "start a new run with --init") from None

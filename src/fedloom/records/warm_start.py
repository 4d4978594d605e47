"""What init.state says beside its tensors: which run was gone on from, and how its network is made.

It is written when the new run is made (runs/warm_start.py), and read there and by newcomers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.errors import FedloomError
from fedloom.reading import Unreadable
from fedloom.records.record import Count, Record
from fedloom.records.result import Input
from fedloom.types import Json


def own_prefix(prefix: str, client: int) -> str:
    """What names of a client's private tensors begin with, where there are those of several."""
    return f"{prefix}{client}/"


class FromClient(Record):
    """A client of the finished run whose model a newcomer begins with."""

    client: Count
    own: dict[str, Any] | None  # of its private state, beside tensors; None: it has none


class WarmStart(Record):
    """Of the finished run. The hash in a configuration covers these fields in this order."""

    method: str
    options: dict[str, Any]
    seed: int
    stage: Count  # index into the method's stages
    meta: dict[str, Any]  # of its final state
    own: dict[str, Any] | None  # of the private state of the client that --init takes
    input: Input
    prefix: str  # what the names of that client's private tensors begin with
    # What the method needs beside tensors to make the network, if it is a tier's or a search's.
    order: dict[str, Any] | None = None
    # Whose model each newcomer begins with, in their order; None: all begin alike. Names of such a
    # client's private tensors begin with the prefix and its number.
    clients: list[FromClient] | None = None
    client: Count | None = None  # whose model it is, where one newcomer is told

    def for_newcomer(self, chosen: FromClient) -> WarmStart:
        """The same for the newcomer that begins with this client's model."""
        fields = self.given()
        del fields["clients"]
        return WarmStart(**{**fields, "own": chosen.own, "client": chosen.client})

    def with_order(self, order: Mapping[str, Any], stage: int) -> WarmStart:
        """The same for a network that the method of this stage makes of such an order."""
        return WarmStart(**{**self.given(), "order": dict(order), "stage": stage})

    @classmethod
    def read(cls, raw: Mapping[str, Json]) -> WarmStart:
        try:
            return cls.checked(dict(raw), names={})
        except Unreadable as error:
            rule = "what a run begins with must say which run it was taken from"
            raise FedloomError(rule, str(error), "start a new run with --init") from None

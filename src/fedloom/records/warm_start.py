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

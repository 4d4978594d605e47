"""How often the samples of a client take each operation: `architectures/client-K.routes.json`."""

from __future__ import annotations

from pathlib import Path

from fedloom.reading import read_large_json
from fedloom.records.record import Count, Figure, Record, object_in


class EdgeRoutes(Record):
    """The operations of one edge, their cost per sample, and the share of samples taking each."""

    slot: str
    ops: list[str]
    macs: list[Count]
    share: list[Figure]
    share_by_class: dict[str, list[Figure]]  # by label, for the labels that the client has


class ClientRoutes(Record):
    """The mean cost of a sample is fixed_macs + Σ share · macs."""

    fixed_macs: Count  # of the parts that every sample goes through
    edges: list[EdgeRoutes]

    @classmethod
    def read(cls, folder: Path, client: int) -> ClientRoutes:
        """Read a client's file. Raises Unreadable if it is missing or damaged."""
        return cls.checked(object_in(read_large_json(folder / file_of(client)), "it"), {})


def file_of(client: int) -> str:
    return f"architectures/client-{client}.routes.json"

"""How often the samples of a client take each operation: `architectures/client-K.routes.json`."""

from __future__ import annotations

from pathlib import Path

from fedloom.reading import read_large_json
from fedloom.records.record import Count, Figure, Record, object_in


class EdgeRoutes(Record):
    """One edge: its operations, what each costs a sample, and the share of samples that take it."""

    slot: str
    ops: list[str]
    macs: list[Count]
    share: list[Figure]
    share_by_class: dict[str, list[Figure]]  # by label, of those that the client has


class ClientRoutes(Record):
    """fixed_macs + Σ share · macs is the mean cost of a sample."""

    fixed_macs: Count  # of what every sample goes through
    edges: list[EdgeRoutes]

    @classmethod
    def read(cls, folder: Path, client: int) -> ClientRoutes:
        """Raises Unreadable: it is not there, or damaged."""
        return cls.checked(object_in(read_large_json(folder / file_of(client)), "it"), {})


def file_of(client: int) -> str:
    return f"architectures/client-{client}.routes.json"

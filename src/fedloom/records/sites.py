"""sites.json of a federation's run: what its sites reported about their data at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedloom.reading import Unreadable, bounded, read_large_json
from fedloom.records.mistakes import readable
from fedloom.records.record import object_in
from fedloom.types import Json

NAME = "sites.json"


@dataclass(frozen=True)
class Sites:
    facts: dict[str, dict[str, Json]]  # by the site's name, as `deploy.terms.Facts` describes them

    @property
    def names(self) -> list[str]:
        """The names of the sites, in the order of their numbers."""
        return sorted(self.facts)

    @classmethod
    def from_json(cls, raw: Json) -> Sites:
        """Read the content of the file. Raises Unreadable."""
        sites = bounded(object_in(raw, "it"))
        for name, facts in sites.items():
            object_in(facts, f"`{readable(name)}`")
        if not sites:
            raise Unreadable("it names no site")
        return cls(sites)

    @classmethod
    def read(cls, folder: Path) -> Sites:
        """Read the file. Raises Unreadable if the run is no federation's or the file is damaged."""
        return cls.from_json(read_large_json(folder / NAME))


def own_test_shares(folder: Path, share: float) -> dict[str, float]:
    """The test shares of sites whose policy chose another than the run's, by site."""
    try:
        facts = Sites.read(folder).facts
    except Unreadable:
        return {}
    shares = {}
    for name in sorted(facts):
        test = facts[name].get("test")
        if isinstance(test, float) and test != share:
            shares[name] = test
    return shares

"""What a network may cost, and whether it does: for device tiers, and for searches that must stay within one.

>>> estimator = Estimator(model_of(task), profile)
>>> Limit(params=100_000, latency_ms=2.0).fits(estimator.figures(arch))
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import NamedTuple

from fedloom.cost.profile import Profile
from fedloom.cost.steps import Steps
from fedloom.errors import FedloomError, unknown
from fedloom.nets.model import Model
from fedloom.types import Arch

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Figures(NamedTuple):
    """What a network costs; None: not known."""

    params: float
    macs: float | None = None
    latency_ms: float | None = None


@dataclass(frozen=True)
class Limit:
    """The most that a network may cost; None: as much as it likes."""

    params: float | None = None
    macs: float | None = None
    latency_ms: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """`params=100k,macs=5M,latency_ms=2`"""
        names, given = [part.name for part in fields(cls)], dict[str, float]()
        for word in text.split(","):
            name, _, value = word.partition("=")
            found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMG]?)", value)
            if name not in names:
                raise unknown("a limit", name, names)
            if found is None or float(found[1]) == 0 or name in given:
                todo = "try --limit params=100k,macs=5M,latency_ms=2"
                raise FedloomError(f"limit {name} must be one number above 0", f"got {word!r}", todo)
            given[name] = float(found[1]) * UNITS[found[2]]
        return cls(**given)

    def over(self, found: Figures) -> list[str]:
        """The names of what is too much. A figure that nobody knows is over any limit of it."""
        pairs = [(part.name, getattr(self, part.name), getattr(found, part.name)) for part in fields(self)]
        return [name for name, most, value in pairs if most is not None and (value is None or value > most)]

    def fits(self, found: Figures) -> bool:
        return not self.over(found)


class Estimator:
    """The cost of any architecture that is part of one supernet, in a few milliseconds and without building it.

    Parameters and MACs are by formula; the latency is the sum of a profile's operations, None without one.
    """

    def __init__(self, model: Model, profile: Profile | None = None, name: str = "the profile") -> None:
        self.steps, self.profile, self.name = Steps(model), profile, name

    def figures(self, arch: Arch) -> Figures:
        net = self.steps.net
        cost = net.space.cost(net.shape, net.classes, arch, net.size, affine=net.affine)
        return Figures(cost.params, cost.macs, self.latency_ms(arch))

    def latency_ms(self, arch: Arch) -> float | None:
        if self.profile is None:
            return None
        self.steps.net.space.check(arch)
        return self.profile.latency_ms(self.steps.of(arch), self.name)

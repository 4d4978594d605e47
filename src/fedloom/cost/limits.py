"""Limits on what a network may cost, and estimates of what it does cost.

Device tiers have such limits, and so do searches for one device.

>>> estimator = Estimator(model_of(task, searched), profile)
>>> Limit(params=100_000, latency_ms=2.0).fits(estimator.figures(arch))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from fedloom.cost.profile import Profile
from fedloom.cost.steps import Steps
from fedloom.errors import FedloomError, unknown
from fedloom.nets.model import Model
from fedloom.reading import parse_number
from fedloom.types import Arch, Json


class Figures(NamedTuple):
    """What a network costs; None: unknown."""

    params: float
    macs: float | None = None
    latency_ms: float | None = None


@dataclass(frozen=True)
class Limit:
    """The most that a network may cost; None: unlimited."""

    params: float | None = None
    macs: float | None = None
    latency_ms: float | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Parse a limit such as `params=100k,macs=5M,latency_ms=2`."""
        names = [field.name for field in fields(cls)]
        limits: dict[str, float] = {}
        advice = "try --limit params=100k,macs=5M,latency_ms=2"
        for assignment in text.split(","):
            name, _, value = assignment.strip().partition("=")
            if name not in names:
                raise unknown("a limit", name, names)
            if name in limits:
                rule = f"limit {name} must be given once"
                raise FedloomError(rule, f"got {text!r}", advice)
            number = parse_number(value)
            if number is None or number == 0:
                rule = f"limit {name} must be one number above 0"
                raise FedloomError(rule, f"got {assignment!r}", advice)
            limits[name] = number
        return cls(**limits)

    def over(self, figures: Figures) -> list[str]:
        """The names of the figures that exceed their limit. An unknown figure exceeds any limit."""
        names = []
        for field in fields(self):
            most = getattr(self, field.name)
            figure = getattr(figures, field.name)
            if most is None:
                continue
            if figure is None or figure > most:
                names.append(field.name)
        return names

    def fits(self, figures: Figures) -> bool:
        return not self.over(figures)

    def tighter(self, other: Limit) -> Limit:
        """The limit that allows what both limits allow."""
        limits: dict[str, float | None] = {}
        for field in fields(self):
            both = [getattr(self, field.name), getattr(other, field.name)]
            limits[field.name] = min((most for most in both if most is not None), default=None)
        return Limit(**limits)


@dataclass(frozen=True)
class DeviceLimit:
    """What a network may cost on a device now, as its owner or an order says."""

    most: Limit = Limit()
    unsupported: frozenset[str] = frozenset()  # operations that it cannot compute

    def tighter(self, other: DeviceLimit) -> DeviceLimit:
        """The limit that allows what both limits allow."""
        return DeviceLimit(self.most.tighter(other.most), self.unsupported | other.unsupported)

    def to_plain(self) -> dict[str, Json]:
        """This limit as a value that orders can hold, without what is unlimited."""
        plain: dict[str, Json] = {}
        for field in fields(self.most):
            most = getattr(self.most, field.name)
            if most is not None:
                plain[field.name] = most
        if self.unsupported:
            plain["unsupported"] = sorted(self.unsupported)
        return plain

    @classmethod
    def from_plain(cls, raw: Mapping[str, Json]) -> DeviceLimit:
        limits = dict(raw)
        unsupported = frozenset(limits.pop("unsupported", ()))
        return cls(Limit(**limits), unsupported)


class Estimator:
    """Estimates the cost of any architecture that is part of one supernet.

    An estimate takes a few milliseconds, as no network is built. Parameters and MACs follow from
    formulas. The latency is the sum over the operations in a profile, or None without a profile.
    """

    def __init__(
        self,
        model: Model,
        profile: Profile | None = None,
        name: str = "the profile",
    ) -> None:
        self.steps = Steps(model)
        self.profile = profile
        self.name = name

    def figures(self, arch: Arch) -> Figures:
        net = self.steps.net
        cost = net.space.cost(net.shape, net.classes, arch, net.size, affine=net.affine)
        return Figures(cost.params, cost.macs, self.latency_ms(arch))

    def latency_ms(self, arch: Arch) -> float | None:
        if self.profile is None:
            return None
        self.steps.net.space.check(arch)
        return self.profile.latency_ms(self.steps.of(arch), self.name)

"""A site's policy.toml: what the site agrees to, and what a network may cost on its device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from fedloom import reading
from fedloom.config.histograms import EXACT, USUAL_HISTOGRAMS, checked_histograms
from fedloom.config.models import validated
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.errors import FedloomError
from fedloom.options import Options

POLICY = """# What this site agrees to. Orders beyond it are refused, and the refusal says why.

methods = ["*"]          # names of methods that may run here, e.g. ["fedavg", "fednas"]
fields = ["*"]           # plain values of a reply that may leave, e.g. ["loss", …]: \
see docs/deploy.md
tensors = ["*"]          # tensors of a reply that may leave, by name, e.g. ["net.*"]
histograms = "laplace:1.0"  # how label counts may leave: exact, none, or with noise of this E
rounds = 1000            # of one run, at most
megabytes = 1024         # of one message, in either direction
resize = 512             # pixels a side, up to which a run may have images resized here

# What a network may cost on this device. The tighter of this and an order's own limit counts.
# [device]
# macs = "100M"            # of one sample
# params = "1M"
# latency_ms = 20          # by a profile that the run names
# unsupported = ["OPERATION"]  # that it cannot compute, by name: see `fedloom space show`
"""


def amount_in(value: object) -> object:
    """The number that a text such as `100M` stands for. Other values are left to the schema."""
    if not isinstance(value, str):
        return value
    number = reading.parse_number(value)
    if number is None:
        raise ValueError("a number, or one like 100k, 5M or 1.5G")
    return number


Amount = Annotated[float, BeforeValidator(amount_in), Field(gt=0)]


class DevicePolicy(Options):
    """What a network may cost on the site's device. A missing value means no limit."""

    macs: Amount | None = None
    params: Amount | None = None
    latency_ms: Amount | None = None
    unsupported: list[str] = []

    def limit(self) -> DeviceLimit:
        most = Limit(params=self.params, macs=self.macs, latency_ms=self.latency_ms)
        return DeviceLimit(most, frozenset(self.unsupported))


class Policy(Options):
    """A site's policy.toml."""

    methods: list[str]
    fields: list[str]
    tensors: list[str] = ["*"]
    histograms: str = USUAL_HISTOGRAMS
    rounds: int
    megabytes: float
    resize: int = 512
    device: DevicePolicy = DevicePolicy()

    @field_validator("histograms", mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> str:
        return checked_histograms(value)

    def allows_histograms(self, asked: str) -> bool:
        """Whether label counts may leave in the way that a run asks for.

        Noise with another E would be another draw, and several draws reveal more than one.
        """
        if self.histograms == EXACT:
            return True
        return self.histograms == asked


def read_policy(path: Path) -> Policy:
    try:
        raw = reading.read_toml(path)
    except reading.Unreadable as error:
        rule = f"{path} must be a site's policy in TOML"
        raise FedloomError(rule, f"{error}", "fix or restore it") from None
    policy: Policy = validated(Policy, raw)
    return policy

"""A site's policy.toml: what the site agrees to, and what a network may cost on its device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from fedloom import reading
from fedloom.config.histograms import EXACT, USUAL_HISTOGRAMS, checked_histograms
from fedloom.config.models import validated
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.errors import FedloomError
from fedloom.options import Options

USUAL_MIN_PART = 20
# What policies have named since they bound computation. Kits of earlier versions lack them.
NEW_NAMES = (
    "approve",
    "test",
    "min_part",
    "divisions",
    "classes",
    "experiments",
    "evaluations",
    "gigabytes",
    "seconds",
    "memory",
    "parameters",
    "sizes",
)

POLICY = """# What this site agrees to. Orders beyond it are refused, and the refusal says why.

methods = ["*"]          # names of methods that may run here, e.g. ["fedavg", "fednas"]
fields = ["*"]           # plain values of a reply that may leave, e.g. ["loss", …]: \
see docs/deploy.md
tensors = ["*"]          # tensors of a reply that may leave, by name, e.g. ["net.*"]
histograms = "laplace:1.0"  # how label counts may leave: exact, none, or with noise of this E
approve = "policy"       # "ask": take part in an experiment only when its operator has approved it

test = 0.2               # share of the samples that are tested on; a run's own share is not used
min_part = 20            # least samples of any part that is trained on or whose figures leave
divisions = 20           # in how many ways the samples may be divided (each seed is one), ever
classes = 100            # of a table's label, at most: their names leave to the server
experiments = 1000       # that this site takes part in, ever

rounds = 1000            # of one run, at most; the site counts how often it trains
evaluations = 5000       # of one run, at most
gigabytes = 1000         # of all messages of one run, in both directions
megabytes = 1024         # of one message, in either direction
seconds = 3600           # of work on one order
memory = "16G"           # bytes that work on one order may take
parameters = "1G"        # of all networks that exist at a time, such as a whole supernet
resize = 512             # pixels a side, up to which a run may have images resized here
sizes = 20               # different sizes to which runs may resize images, ever: each fills disk

# What a network may cost on this device. The tighter of this and an order's own limit counts.
# [device]
# macs = "100M"            # of one sample
# params = "1M"
# latency_ms = 20          # by a profile that the run names
# unsupported = ["OPERATION"]  # that it cannot compute, by name: see `fedloom space show`
"""


def amount_in(value: object) -> object:
    """The number that a text such as `100M` stands for. Other values are left to the schema."""
    if isinstance(value, bool):
        raise ValueError("a number, or one like 100k, 5M or 1.5G")
    if not isinstance(value, str):
        return value
    number = reading.parse_number(value)
    if number is None:
        raise ValueError("a number, or one like 100k, 5M or 1.5G")
    return number


# The largest values that a policy may name. Each is far beyond any machine or run, and small enough
# for the system calls and products that it ends up in.
MOST_SECONDS = 366 * 86_400.0  # a year
MOST_MEMORY = 1e15  # bytes
MOST_GIGABYTES = 1e9
MOST_MEGABYTES = 1e6
MOST_COST = 1e18  # of a network, in any of its units
MOST_COUNT = 1_000_000_000
MOST_PIXELS = 100_000  # a side

AMOUNT = BeforeValidator(amount_in)
Cost = Annotated[float, AMOUNT, Field(gt=0, le=MOST_COST)]


class DevicePolicy(Options):
    """What a network may cost on the site's device. A missing value means no limit."""

    macs: Cost | None = None
    params: Cost | None = None
    latency_ms: Cost | None = None
    unsupported: list[str] = []

    def limit(self) -> DeviceLimit:
        most = Limit(params=self.params, macs=self.macs, latency_ms=self.latency_ms)
        return DeviceLimit(most, frozenset(self.unsupported))


Whole = Annotated[int, Field(strict=True, ge=1, le=MOST_COUNT)]


class Policy(Options):
    """A site's policy.toml. What an older kit's file does not name has the value given here."""

    methods: list[str]
    fields: list[str]
    tensors: list[str] = ["*"]
    histograms: str = USUAL_HISTOGRAMS
    approve: Literal["ask", "policy"] = "policy"
    # None: an older kit. A run's own share is used, and each is another way to divide samples.
    test: Annotated[float, Field(gt=0, lt=1)] | None = None
    min_part: Whole = USUAL_MIN_PART
    divisions: Whole = 20
    classes: Whole = 100
    experiments: Whole = 1000
    rounds: Whole
    evaluations: Whole = 5000
    gigabytes: Annotated[float, AMOUNT, Field(gt=0, le=MOST_GIGABYTES)] = 1000.0
    megabytes: Annotated[float, AMOUNT, Field(gt=0, le=MOST_MEGABYTES)]
    seconds: Annotated[float, AMOUNT, Field(gt=0, le=MOST_SECONDS)] = 3600.0
    memory: Annotated[float, AMOUNT, Field(gt=0, le=MOST_MEMORY)] = 16e9
    parameters: Cost = 1e9
    resize: Annotated[int, Field(strict=True, ge=1, le=MOST_PIXELS)] = 512
    sizes: Whole = 20
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
    try:
        policy: Policy = validated(Policy, raw)
    except FedloomError as error:
        advice = error.advice.replace("--help for what it takes", "docs/deploy.md for every line")
        raise FedloomError(f"in {path}, {error.rule}", error.found, advice) from None
    return policy


def notices_of_policy(policy: Policy) -> list[str]:
    """What whoever starts a site should know about a policy of an earlier version."""
    missing = [name for name in NEW_NAMES if name not in policy.model_fields_set]
    if not missing:
        return []
    notices = [
        f"policy.toml does not name {', '.join(missing)}: the usual limits apply, such as at least "
        f"{policy.min_part} samples in every part that is trained on or whose figures leave "
        f"(min_part = {policy.min_part})"
    ]
    if policy.test is None:
        notices.append(
            "policy.toml does not name test: each run chooses the share of samples that are "
            "tested on; add `test = 0.2` to choose it here"
        )
    return notices

"""An experiment's configuration.

It is one closed schema for flags, TOML files, `--set a.b=c` and the Python API.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedloom import reading
from fedloom.config.flags import NAMES, NORM_BOUND
from fedloom.config.histograms import (
    NONE,
    USUAL_HISTOGRAMS,
    HistogramRule,
    checked_histograms,
)
from fedloom.errors import FedloomError, shortened, unknown
from fedloom.options import Absent, section_of
from fedloom.reading import parse_number

Unit = Literal["rounds", "macs", "bytes", "wan", "seconds"]
Limit = Literal["seconds", "wan", "bytes", "macs"]
LIMITS: tuple[str, ...] = get_args(Limit)
Fit = Literal["stretch", "crop", "pad"]  # images that are not square, into a square
TableTask = Literal["auto", "classification", "regression"]  # what a table's label is
Sink = Literal["tensorboard", "mlflow", "wandb"]
SET_LATER = "set when the run is made"
# What decides who is together in a cluster, where the method does not; or a JSON file does.
CLUSTER_RULES = ("labels", "updates", "speed", "random", "alike", "round")
BY_LABELS = ("labels", "alike")  # these look at what clients tell of their labels
LEAST_SIDE = 4  # of a resized image, in pixels
MOST_SIDE = 4096


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class DataConfig(Section):
    name: str = Field(
        "digits",
        description="a data set's name, a file or folder (docs/data.md), or file.py:Name",
    )
    dir: str | None = Field(
        None,
        description="folder that relative paths are looked for in",
    )
    clients: int | None = Field(
        None,
        ge=1,
        description="how many clients (8, or one a site or group)",
    )
    partition: str = Field(
        "dirichlet:0.2",
        description="iid, dirichlet:ALPHA, … (see `fedloom list partitions`); sites or natural "
        "where the data has them and nothing is asked for",
    )
    resize: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=LEAST_SIDE,
        le=MOST_SIDE,
        description="make images so many pixels high and wide (as they are)",
    )
    fit: Annotated[Fit, Absent("stretch")] = Field(
        "stretch",
        description="with resize, images that are not square: stretch, crop or pad them",
    )
    skip_bad: Annotated[bool, Absent(False)] = Field(
        False,
        description="leave out image and .wav files that cannot be read, and record which",
    )
    label: Annotated[str | None, Absent(None)] = Field(
        None,
        description="of a table: the column of labels (label)",
    )
    task: Annotated[TableTask, Absent("auto")] = Field(
        "auto",
        description="of a table: classification, regression, or auto, by the label column",
    )
    ignore: Annotated[list[str], Absent([])] = Field(
        [],
        description="of a table: columns to leave out",
    )
    categorical: Annotated[list[str], Absent([])] = Field(
        [],
        description="of a table: columns of numbers that are categories",
    )
    parts: Literal["own", "official"] | None = Field(
        None,
        description="test parts: own (default), or the data set's",
    )
    test: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="share of each client's samples kept for testing",
    )
    min_samples: int = Field(
        10,
        ge=4,
        description="samples that every client must have",
    )
    server_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of all samples for a central validation set",
    )
    split: str | None = Field(
        None,
        description="a split file to use instead of making one",
    )
    classes: int | None = Field(
        None,
        ge=2,
        description="number of classes, if labels may not show all",
    )
    mean: list[float] | None = Field(
        None,
        description="per channel, in raw units: input normalisation",
    )
    std: list[float] | None = Field(
        None,
        description="per channel, in raw units: input normalisation",
    )

    @field_validator("ignore", "categorical", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """`a,b` as well as a list."""
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        names: list[str] = []
        for text in value:
            names += [name.strip() for name in str(text).split(",") if name.strip()]
        return names


class BudgetConfig(Section):
    rounds: int = Field(
        20,
        ge=1,
        le=10**9,
        description="rounds of the whole run, all stages together",
    )
    equal: Unit = Field(
        "rounds",
        description="what the budget is counted in",
    )
    amount: float | None = Field(
        None,
        gt=0,
        description="the budget in MACs, bytes or simulated seconds",
    )
    limits: Annotated[dict[Limit, Annotated[float, Field(gt=0)]] | None, Absent(None)] = Field(
        None,
        description="what the run may spend at most: seconds=3600 (simulated), wan=50M, bytes, "
        "macs",
    )
    participation: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the clients that work in a round",
    )

    @field_validator("limits", mode="before")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        """`seconds=3600,wan=50M`, or several such texts, as well as a table."""
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        limits: dict[str, float] = {}
        for text in value:
            for part in str(text).split(","):
                name, _, amount = part.partition("=")
                number = parse_number(amount)
                if name not in LIMITS or number is None or name in limits:
                    known = ", ".join(LIMITS)
                    raise ValueError(f"each of {known} once, as in seconds=3600,wan=50M")
                limits[name] = number
        return limits


class EngineConfig(Section):
    kind: Literal["local", "flower-sim"] = Field(
        "local",
        description="where clients run",
    )
    federation: str | None = Field(
        None,
        description="folder of a real federation, whose sites are the clients",
    )
    workers: int | None = Field(
        None,
        ge=0,
        le=256,
        description="worker processes (one a core; 0: none)",
    )
    device: str = Field(
        "cpu",
        description="torch device of the clients",
    )
    topology: str | None = Field(
        None,
        description="flat, clustered or clustered:GROUPSxHOPS (the method's own, or flat)",
    )
    deadline: float | None = Field(
        None,
        gt=0,
        description="seconds after which a client is late (never; in a federation 600)",
    )
    min_replies: int | None = Field(
        None,
        ge=1,
        description="replies a round needs (1; in a federation all clients of the round but one)",
    )
    lost_state: Literal["refuse", "fresh"] = Field(
        "refuse",
        description="what if a client lost its state",
    )
    norm_bound: Annotated[float | Literal["off"], Absent("off")] = Field(
        NORM_BOUND,
        description="refuse an update so many times larger than usual; off: accept any finite one",
    )
    max_weight_share: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        le=1,
        description="cap on a client's share of a round's weight, never below an equal one (none)",
    )

    @field_validator("norm_bound", mode="before")
    @classmethod
    def _bound(cls, value: Any) -> Any:
        if value == "off":
            return value
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError("a number above 1, or off") from None
        if not 1 < number < inf:
            raise ValueError("a number above 1, or off")
        return number


class EvaluateConfig(Section):
    every: int | None = Field(
        None,
        ge=1,
        description="rounds between evaluations (a twentieth of the rounds)",
    )
    clients: int = Field(
        100,
        ge=1,
        description="clients evaluated during the run; at the end all, or 1,000",
    )
    select: Literal["last", "best"] = Field(
        "last",
        description="report the last round, or the best on validation",
    )
    hold: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="share of a client's rest held back by select = best or hold_back",
    )
    hold_back: Annotated[bool, Absent(False)] = Field(
        False,
        description="hold it back with select = last too, and judge the reported round on it",
    )
    profile: str | None = Field(
        None,
        description="a device profile: every client's network gets its latency on it",
    )
    sinks: list[Sink] | None = Field(
        None,
        description="where rounds are mirrored to: tensorboard, mlflow, wandb",
    )

    @field_validator("sinks", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """`a,b` as well as a list; each once."""
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, list):
            return value
        return list(dict.fromkeys(value))


class LatencyConfig(Section):
    """What operations take by a device profile, in milliseconds."""

    fixed: float = Field(ge=0)
    rows: list[list[float]]  # by layer and operation


# A limit of a tier: a number, or `max`, which every network fits.
MostOfTier = Annotated[float, Field(gt=0)] | Literal["max"] | None


class TierInFile(Section):
    """One tier in a file of tiers."""

    name: str = Field("", description="what tables call it")
    share: float | None = Field(None, gt=0, le=1, description="of the clients; all or none say it")
    macs: MostOfTier = Field(None, description="the most MACs of a sample, or max")
    macs_paper: MostOfTier = Field(None, description="the same as FedorAS counts them")
    params: MostOfTier = Field(None, description="the most parameters, or max")
    latency_ms: MostOfTier = Field(None, description="the most milliseconds of a sample, or max")
    profile: str | None = Field(None, description="of a device of it (that of --profile)")
    unsupported: list[str] = Field([], description="operations that its devices do not have")


class TierConfig(TierInFile):
    """The same in a run's configuration."""

    latency: LatencyConfig | None = Field(
        None,
        description=f"what operations take on that device; {SET_LATER}",
    )


class TiersConfig(Section):
    limits: Annotated[str | None, Absent(None)] = Field(
        None,
        description="of the devices' tiers: 121M,222M,max, a number of tiers, or a TOML file",
    )
    cost: Annotated[Literal["macs", "macs_paper", "params", "latency_ms"] | None, Absent(None)] = (
        Field(
            None,
            description="what limits count (by default what the space's paper counts, or MACs); "
            "latency_ms: by the device of --profile",
        )
    )
    shares: Annotated[list[float] | None, Absent(None)] = Field(
        None,
        description="of the clients, by tier (equal)",
    )
    file: Annotated[str | None, Absent(None)] = Field(
        None,
        description="a JSON file with the tier of every client, from 1",
    )
    unsupported: Annotated[list[str], Absent([])] = Field(
        [],
        description="operations that no device has",
    )
    table: Annotated[list[TierConfig] | None, Absent(None)] = Field(
        None,
        description=f"what a TOML file of tiers says; {SET_LATER}",
    )
    latencies: Annotated[list[LatencyConfig] | None, Absent(None)] = Field(
        None,
        description=f"of operations by --profile, if cost is latency_ms: one; {SET_LATER}",
    )
    assigned: Annotated[list[int] | None, Absent(None)] = Field(
        None,
        description=f"the tier of every client, from a file; {SET_LATER}",
    )

    @field_validator("shares", "unsupported", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """`a,b` as well as a list; in a variant, where commas part options, `a/b`."""
        if isinstance(value, str):
            return value.replace("/", ",").split(",")
        return value

    @property
    def latency(self) -> LatencyConfig | None:
        """What operations take on the device of all tiers; a table's tiers have their own."""
        if not self.latencies:
            return None
        return self.latencies[0]

    @property
    def is_given(self) -> bool:
        """Whether anybody asked for tiers of their own."""
        return self != TiersConfig()


class DeviceConfig(Section):
    """One row of a file of devices. Links are in bytes a second."""

    macs_per_second: float = Field(gt=0)
    lan: float = Field(gt=0)
    wan_down: float = Field(gt=0)
    wan_up: float = Field(gt=0)
    place: str = ""


class DevicesConfig(Section):
    """The clients' devices: tiers can be made of their speeds."""

    table: Annotated[str | None, Absent(None)] = Field(
        None,
        description="equal, phones (drawn by the seed) or a CSV file, for the simulated clock "
        "(equal); tiers are then by speed",
    )
    rows: Annotated[list[DeviceConfig] | None, Absent(None)] = Field(
        None,
        description=f"what that file says, by client; {SET_LATER}",
    )


class IntervalConfig(Section):
    """A row of a file of availability, in seconds."""

    client: int = Field(ge=0)
    begin: float = Field(ge=0)
    end: float = Field(gt=0)


class FaultConfig(Section):
    """A row of a file of faults."""

    round: int = Field(ge=1)
    hop: int = Field(ge=0)
    client: int = Field(ge=0)


class ClockConfig(Section):
    """The simulated clock: who is there, who leaves, who is late."""

    availability: Annotated[str, Absent("always")] = Field(
        "always",
        description="always, duty:ON,OFF in simulated seconds, or a CSV file of intervals",
    )
    intervals: Annotated[list[IntervalConfig] | None, Absent(None)] = Field(
        None,
        description=f"what that file says; {SET_LATER}",
    )
    period: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description=f"seconds after which it begins anew; {SET_LATER}",
    )
    dropout: Annotated[float, Absent(0.0)] = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that a client leaves during its work of a round",
    )
    faults: Annotated[str | None, Absent(None)] = Field(
        None,
        description="a CSV file of clients that leave: round,hop,client",
    )
    fault_rows: Annotated[list[FaultConfig] | None, Absent(None)] = Field(
        None,
        description=f"what that file says; {SET_LATER}",
    )
    overselect: Annotated[float, Absent(1.0)] = Field(
        1.0,
        ge=1,
        le=100,
        description="how many times as many clients are asked as a round waits for",
    )
    round_deadline: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description="simulated seconds of a round after which a client is late (never)",
    )


class TopologyConfig(Section):
    """Clusters of clients: who is together, who aggregates, and who takes over."""

    clusters: Annotated[str | None, Absent(None)] = Field(
        None,
        description="labels, updates, speed, random, alike, round, or a JSON file of client ids "
        "(the method's choice, or round)",
    )
    histograms: Annotated[str, Absent(USUAL_HISTOGRAMS)] = Field(
        USUAL_HISTOGRAMS,
        description="what clients tell of their labels, if clusters need it: exact, laplace:E, "
        "none",
    )
    cluster_size: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=1,
        description="the most clients of a cluster, Q (as many as make the clusters equal)",
    )
    h_max: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description="simulated seconds that a cluster's round may take, H^max (any)",
    )
    recluster: Annotated[int, Absent(10)] = Field(
        10,
        ge=1,
        description="rounds between two clusterings, R",
    )
    aggregator: Annotated[Literal["delay", "random", "lowest"], Absent("lowest")] = Field(
        "delay",
        description="who aggregates: the member with the shortest round, a drawn one, the lowest",
    )
    heartbeat: Annotated[float, Absent(10.0)] = Field(
        10.0,
        gt=0,
        description="simulated seconds between two looks at an aggregator",
    )
    misses: Annotated[int, Absent(2)] = Field(
        2,
        ge=1,
        description="looks in vain after which another member takes over",
    )
    phases: Annotated[Literal["serial", "parallel"], Absent("serial")] = Field(
        "serial",
        description="a device trains and then searches, or does both at once (Eq. 10)",
    )
    relay: Annotated[Literal["server"] | None, Absent(None)] = Field(
        None,
        description="server: a federation's server does the aggregators' work",
    )
    assigned: Annotated[list[list[int]] | None, Absent(None)] = Field(
        None,
        description=f"the clusters of that file; {SET_LATER}",
    )

    @field_validator("clusters")
    @classmethod
    def _rule_or_file(cls, value: str | None) -> str | None:
        if value is None or value in CLUSTER_RULES or is_cluster_file(value):
            return value
        raise ValueError(f"one of {', '.join(CLUSTER_RULES)}, or a .json file of client ids")

    @field_validator("histograms", mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> str:
        return checked_histograms(value)

    @property
    def histogram_rule(self) -> HistogramRule | None:
        """What every client is asked for before the first round; None: nothing of its labels."""
        if self.clusters not in BY_LABELS or self.histograms == NONE:
            return None
        return HistogramRule.parse(self.histograms)


def is_cluster_file(clusters: str) -> bool:
    return clusters.endswith(".json") or "/" in clusters


class InitConfig(Section):
    run: str = Field(
        description="a finished run whose shared weights this one begins with",
    )
    client: int | None = Field(
        None,
        ge=0,
        description="for adapt: begin with this client's own model",
    )
    tier: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=1,
        description="for adapt: begin with the network of this tier of devices",
    )
    search: Annotated[str | None, Absent(None)] = Field(
        None,
        description="for adapt: begin with the network that `fedloom search` found, by its name",
    )
    clients: Annotated[list[int] | None, Absent(None)] = Field(
        None,
        description="for adapt: newcomer by newcomer, the client whose own model it begins with",
    )
    hash: str | None = Field(
        None,
        description=f"of what was taken; {SET_LATER}",
    )
    seen: int | None = Field(
        None,
        ge=0,
        description=f"test samples that it was trained on, where that can be told; {SET_LATER}",
    )


class Experiment(Section):
    """Everything that decides a run's result. `options` are the method's own."""

    method: str = "fedavg"
    seed: int = Field(
        0,
        ge=0,
        le=2**63 - 1,
        description="the root of every random draw",
    )
    options: dict[str, Any] = Field(default_factory=dict)
    data: DataConfig = DataConfig()
    budget: BudgetConfig = BudgetConfig()
    engine: EngineConfig = EngineConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    tiers: TiersConfig = TiersConfig()
    devices: DevicesConfig = DevicesConfig()
    topology: TopologyConfig = TopologyConfig()
    clock: ClockConfig = ClockConfig()
    init: InitConfig | None = None

    @property
    def is_federated(self) -> bool:
        """Whether its clients are the sites of a real federation."""
        return self.engine.federation is not None

    def check_data_at_hand(self, purpose: str, advice: str) -> None:
        """Refuses a run of a federation, whose samples are where its sites are."""
        if self.is_federated:
            rule = f"the data must be at hand for {purpose}"
            raise FedloomError(rule, f"the sites of {self.engine.federation} keep theirs", advice)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def read_toml(path: Path) -> dict[str, Any]:
    """A configuration file, parsed but not yet checked."""
    try:
        return reading.read_toml(path)
    except reading.Unreadable as error:
        rule = f"{path} must be a readable TOML file"
        raise FedloomError(rule, f"{error}", "mend it, or check --config") from None


def assign(tree: dict[str, Any], path: str, value: Any) -> None:
    """`a.b = value` in nested dictionaries."""
    *sections, last = path.split(".")
    for section in sections:
        below = tree.setdefault(section, {})
        if not isinstance(below, dict):
            rule = f"`{path}` must name an option"
            raise FedloomError(rule, f"{section} is no section", "see the list in --help")
        tree = below
    tree[last] = value


def parse_assignment(text: str) -> tuple[str, Any]:
    """`a.b=c`, as in --set."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        rule = "--set must look like a.b=value"
        raise FedloomError(rule, f"got {text!r}", "try --set options.lr=0.1")
    return path.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Lists and null are read as JSON.

    Anything else stays text, which the schema turns into its own type.
    """
    if text == "null":
        return None
    if not text.startswith(("[", "{")):
        return text
    try:
        return reading.bounded(reading.parse_json(text))
    except reading.Unreadable as error:
        found = f"got {shortened(text, 80)!r}, and {error}"
        raise FedloomError("a list or table must be JSON", found, "try [0.5, 0.5]") from None


def plain(value: Any) -> Any:
    """A keyword of the Python API as a file or flag would give it."""
    if isinstance(value, Path):
        return str(value)
    return value


def validated(schema: type[BaseModel], raw: Mapping[str, Any], prefix: str = "") -> Any:
    """`raw` as `schema`, or the one error that a user can meet.

    It names the option, what it must be, and what it was.
    """
    try:
        return schema.model_validate(dict(raw))
    except ValidationError as error:
        raise explain(schema, error, prefix) from None


def explain(schema: type[BaseModel], error: ValidationError, prefix: str) -> FedloomError:
    """The first thing that is wrong, by the name of the flag where there is one."""
    mistake = error.errors(include_url=False)[0]
    path = [str(part) for part in mistake["loc"]]
    option = ".".join(part for part in path if not part.isdecimal())  # of a flag's several values
    name = shortened(NAMES.get(option, prefix + ".".join(path)), 80)
    if mistake["type"] == "extra_forbidden":
        return unknown(f"option `{name}`", path[-1], fields_at(schema, path[:-1]))
    advice = "see --help for what it takes"
    if mistake["type"] == "missing":
        return FedloomError(f"`{name}` must be given", "it is missing", advice)
    rule = mistake["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    rule = rule.partition(", unable to parse")[0]  # the value is named anyway
    value = shortened(repr(mistake["input"]), 80)
    return FedloomError(f"`{name}` must be {rule}", f"got {value}", advice)


def fields_at(schema: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        section = section_of(schema.model_fields[part])
        assert section is not None  # an unknown name was found in it
        schema = section
    return list(schema.model_fields)

"""An experiment's configuration.

Flags, TOML files, `--set a.b=c` and the Python API all share this one closed schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError, field_validator

from fedloom.config.file_rows import (
    DeviceConfig,
    FaultConfig,
    IntervalConfig,
    LatencyConfig,
    TierConfig,
)
from fedloom.config.flags import NAMES, NORM_BOUND
from fedloom.config.section import SET_LATER, Section
from fedloom.config.topology import TopologyConfig
from fedloom.errors import FedloomError, shortened, unknown
from fedloom.options import Absent, section_of
from fedloom.reading import parse_number

Unit = Literal["rounds", "macs", "bytes", "wan", "seconds"]
Limit = Literal["seconds", "wan", "bytes", "macs"]
LIMITS: tuple[str, ...] = get_args(Limit)
Fit = Literal["stretch", "crop", "pad"]  # how images that are not square become square
TableTask = Literal["auto", "classification", "regression"]  # how a table's label is read
Sink = Literal["tensorboard", "mlflow", "wandb"]
LEAST_SIDE = 4  # smallest and largest side of a resized image, in pixels
MOST_SIDE = 4096


class DataConfig(Section):
    name: str = Field(
        "digits",
        description="a data set's name, a file or folder (docs/data.md), or file.py:Name",
    )
    dir: str | None = Field(
        None,
        description="folder in which relative paths are looked for",
    )
    clients: int | None = Field(
        None,
        ge=1,
        description="number of clients (8, or one per site or group)",
    )
    partition: str = Field(
        "dirichlet:0.2",
        description="iid, dirichlet:ALPHA, … (see `fedloom list partitions`); sites or natural "
        "if the data has them and no rule is given",
    )
    resize: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=LEAST_SIDE,
        le=MOST_SIDE,
        description="height and width that images are resized to, in pixels (unchanged)",
    )
    fit: Annotated[Fit, Absent("stretch")] = Field(
        "stretch",
        description="how resize treats images that are not square: stretch, crop or pad",
    )
    skip_bad: Annotated[bool, Absent(False)] = Field(
        False,
        description="leave out image and .wav files that cannot be read, and record which",
    )
    label: Annotated[str | None, Absent(None)] = Field(
        None,
        description="tables: the column that holds the labels (label)",
    )
    task: Annotated[TableTask, Absent("auto")] = Field(
        "auto",
        description="tables: classification, regression, or auto, by the label column",
    )
    ignore: Annotated[list[str], Absent([])] = Field(
        [],
        description="tables: columns to leave out",
    )
    categorical: Annotated[list[str], Absent([])] = Field(
        [],
        description="tables: numeric columns that hold categories",
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
        description="input normalisation: mean of each channel, in raw units",
    )
    std: list[float] | None = Field(
        None,
        description="input normalisation: standard deviation of each channel, in raw units",
    )

    @field_validator("mean", "std", mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        """Accept one number as well as a list of them."""
        if isinstance(value, str | int | float):
            return [value]
        return value

    @field_validator("ignore", "categorical", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """Accept `a,b` as well as a list."""
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
        description="rounds of the whole run, over all stages",
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
        description="share of the clients that take part in a round",
    )

    @field_validator("limits", mode="before")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        """Accept `seconds=3600,wan=50M`, or several such texts, as well as a table."""
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
                    names = ", ".join(LIMITS)
                    raise ValueError(f"each of {names} once, as in seconds=3600,wan=50M")
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
        description="worker processes (one per core; 0: none)",
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
        description="what to do if a client lost its state: refuse it, or give it a fresh one",
    )
    norm_bound: Annotated[float | Literal["off"], Absent("off")] = Field(
        NORM_BOUND,
        description="refuse an update this many times larger than usual; off: accept any finite "
        "one",
    )
    max_weight_share: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        le=1,
        description="cap on a client's share of a round's weight, never below an equal share "
        "(none)",
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
        description="share of a client's samples outside its test part that select = best or "
        "hold_back keeps for validation",
    )
    hold_back: Annotated[bool, Absent(False)] = Field(
        False,
        description="keep that share with select = last too, and evaluate the reported round on it",
    )
    profile: str | None = Field(
        None,
        description="a device profile, by which the latency of every client's network is estimated",
    )
    sinks: list[Sink] | None = Field(
        None,
        description="where rounds are mirrored to: tensorboard, mlflow, wandb",
    )
    sink_paths: Annotated[bool | None, Absent(None)] = Field(
        None,
        description="whether sinks also get paths of this machine (no)",
    )

    @field_validator("sinks", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """Accept `a,b` as well as a list, and drop repetitions."""
        if isinstance(value, str):
            value = value.split(",")
        if not isinstance(value, list):
            return value
        return list(dict.fromkeys(value))


class TiersConfig(Section):
    limits: Annotated[str | None, Absent(None)] = Field(
        None,
        description="limits of the device tiers (121M,222M,max), the number of tiers, or a TOML "
        "file of them",
    )
    cost: Annotated[Literal["macs", "macs_paper", "params", "latency_ms"] | None, Absent(None)] = (
        Field(
            None,
            description="unit of the limits (that of the space's paper, or MACs); latency_ms is by "
            "the device of --profile",
        )
    )
    shares: Annotated[list[float] | None, Absent(None)] = Field(
        None,
        description="share of the clients in each tier (equal)",
    )
    file: Annotated[str | None, Absent(None)] = Field(
        None,
        description="a JSON file with the tier of every client, from 1",
    )
    unsupported: Annotated[list[str], Absent([])] = Field(
        [],
        description="operations that no device supports",
    )
    table: Annotated[list[TierConfig] | None, Absent(None)] = Field(
        None,
        description=f"content of the TOML file of tiers; {SET_LATER}",
    )
    latencies: Annotated[list[LatencyConfig] | None, Absent(None)] = Field(
        None,
        description="if cost is latency_ms, a list with the operations' latencies by --profile; "
        f"{SET_LATER}",
    )
    assigned: Annotated[list[int] | None, Absent(None)] = Field(
        None,
        description=f"the tier of every client, from a file; {SET_LATER}",
    )

    @field_validator("shares", "unsupported", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """Accept `a,b` as well as a list; and `a/b` in a variant, where commas separate options."""
        if isinstance(value, str):
            return value.replace("/", ",").split(",")
        return value

    @property
    def latency(self) -> LatencyConfig | None:
        """Latencies on the one device of all tiers; the tiers of a table have their own."""
        if not self.latencies:
            return None
        return self.latencies[0]

    @property
    def is_given(self) -> bool:
        """Whether the user set any option of tiers."""
        return self != TiersConfig()


class DevicesConfig(Section):
    """The clients' devices: tiers can be made of their speeds."""

    table: Annotated[str | None, Absent(None)] = Field(
        None,
        description="equal, phones (drawn by the seed) or a CSV file, for the simulated clock "
        "(equal); tiers are then assigned by speed",
    )
    rows: Annotated[list[DeviceConfig] | None, Absent(None)] = Field(
        None,
        description=f"content of that file, client by client; {SET_LATER}",
    )


class ClockConfig(Section):
    """The simulated clock: which clients are available, drop out, or are late."""

    availability: Annotated[str, Absent("always")] = Field(
        "always",
        description="always, duty:ON,OFF in simulated seconds, or a CSV file of intervals",
    )
    intervals: Annotated[list[IntervalConfig] | None, Absent(None)] = Field(
        None,
        description=f"content of that file; {SET_LATER}",
    )
    period: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description=f"seconds after which availability repeats; {SET_LATER}",
    )
    dropout: Annotated[float, Absent(0.0)] = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that a client drops out during its work of a round",
    )
    faults: Annotated[str | None, Absent(None)] = Field(
        None,
        description="a CSV file of clients that drop out: round,hop,client",
    )
    fault_rows: Annotated[list[FaultConfig] | None, Absent(None)] = Field(
        None,
        description=f"content of that file; {SET_LATER}",
    )
    overselect: Annotated[float, Absent(1.0)] = Field(
        1.0,
        ge=1,
        le=100,
        description="ratio of the clients that are asked to those that a round waits for",
    )
    round_deadline: Annotated[float | None, Absent(None)] = Field(
        None,
        gt=0,
        description="simulated seconds of a round after which a client is late (never)",
    )


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
        description="for adapt: for each new client, the client whose own model it begins with",
    )
    hash: str | None = Field(
        None,
        description=f"hash of the weights that were taken; {SET_LATER}",
    )
    seen: int | None = Field(
        None,
        ge=0,
        description="number of test samples that those weights were trained on, if known; "
        f"{SET_LATER}",
    )


class Experiment(Section):
    """Everything that determines a run's result. `options` are the method's own."""

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
        """Whether the clients are the sites of a real federation."""
        return self.engine.federation is not None

    def check_data_at_hand(self, purpose: str, advice: str) -> None:
        """Refuse a run of a federation, whose samples never leave its sites."""
        if self.is_federated:
            rule = f"the data must be at hand for {purpose}"
            raise FedloomError(rule, f"the sites of {self.engine.federation} keep theirs", advice)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def validated(schema: type[BaseModel], raw: Mapping[str, Any], prefix: str = "") -> Any:
    """Validate `raw` against `schema`.

    Users meet one kind of error, which names the option, what it must be, and what it was.
    """
    try:
        return schema.model_validate(dict(raw))
    except ValidationError as error:
        raise explain(schema, error, prefix) from None


def explain(schema: type[BaseModel], error: ValidationError, prefix: str) -> FedloomError:
    """Describe the first mistake, by the name of the flag if the option has one."""
    mistake = error.errors(include_url=False)[0]
    path = [str(part) for part in mistake["loc"]]
    # a flag with several values: the place of the value is not part of the option's name
    option = ".".join(part for part in path if not part.isdecimal())
    name = shortened(NAMES.get(option, prefix + ".".join(path)), 80)
    if mistake["type"] == "extra_forbidden":
        return unknown(f"option `{name}`", path[-1], field_names_at(schema, path[:-1]))
    advice = "see --help for what it takes"
    if mistake["type"] == "missing":
        return FedloomError(f"`{name}` must be given", "it is missing", advice)
    rule = mistake["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    rule = rule.partition(", unable to parse")[0]  # the sentence names the value anyway
    value = shortened(repr(mistake["input"]), 80)
    if not path:  # a rule about several options
        return FedloomError(rule, f"got {value}", advice)
    return FedloomError(f"`{name}` must be {rule}", f"got {value}", advice)


def field_names_at(schema: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        section = section_of(schema.model_fields[part])
        assert section is not None  # pydantic met an unknown name inside it
        schema = section
    return list(schema.model_fields)

"""The device tiers of a run: their limits, and which clients are in which tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from fedloom import reading
from fedloom.config.file_rows import DeviceConfig, LatencyConfig, TierConfig, TierInFile
from fedloom.config.models import DevicesConfig, TiersConfig, validated
from fedloom.cost.devices import Device, devices_of, is_file, tiers_by_speed
from fedloom.cost.tiers import check_rising, check_shares, dealt
from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.method import Tiered
from fedloom.spaces.cost_table import LimitUnit
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Tier, TierDeal, UnitCosts

LARGEST = "max"  # a limit that no path exceeds
LATENCY: Literal["latency_ms"] = "latency_ms"
UNITS: tuple[LimitUnit, ...] = ("macs", "macs_paper", "params", LATENCY)


def with_files_read(config: TiersConfig) -> TiersConfig:
    """The configuration with the content of its files, which resumed runs and sites do not need."""
    changes: dict[str, object] = {}
    if config.table is None and config.limits is not None and config.limits.endswith(".toml"):
        changes["table"] = read_table(Path(config.limits))
    if config.assigned is None and config.file is not None:
        changes["assigned"] = read_assigned(Path(config.file))
    return config.model_copy(update=changes)


def devices_read(config: DevicesConfig, clients: int, seed: int) -> DevicesConfig:
    """The configuration with the rows of its file, which a resumed run does not need then."""
    if config.table is None or config.rows is not None or not is_file(config.table):
        return config
    rows = []
    for device in devices_of(config.table, clients, seed):
        rows.append(DeviceConfig(**asdict(device)))
    return config.model_copy(update={"rows": rows})


def devices_in(config: DevicesConfig, clients: int, seed: int) -> list[Device] | None:
    """The device of every client; None if the configuration has no devices."""
    if config.table is None:
        return None
    if config.rows is None:
        return devices_of(config.table, clients, seed)
    return [Device(**row.model_dump()) for row in config.rows]


def read_table(path: Path) -> list[TierConfig]:
    """Read the `[[tier]]` sections of a TOML file."""
    try:
        raw = reading.read_toml(path)
    except reading.Unreadable as error:
        rule = f"{path} must be a readable TOML file of tiers"
        raise FedloomError(rule, f"{error}", "correct it, or check --tiers") from None
    sections = raw.get("tier")
    if not isinstance(sections, list) or not sections or set(raw) != {"tier"}:
        rule = f"{path} must have a section [[tier]] for each tier, and nothing else"
        raise FedloomError(rule, f"it has {', '.join(raw) or 'nothing'}", "see docs/fedoras.md")
    table = []
    for number, section in enumerate(sections, start=1):
        where = f"{path}, tier {number}"
        if not isinstance(section, dict):
            raise FedloomError(f"{where} must be a section", "it is a value", "see docs/fedoras.md")
        tier: TierInFile = validated(TierInFile, with_numbers(section), f"{where}: ")
        table.append(TierConfig(**tier.model_dump()))
    return table


def with_numbers(section: Mapping[str, Any]) -> dict[str, Any]:
    """Accept limits such as "60k", as the flag does."""
    numbers = dict(section)
    for unit in UNITS:
        value = section.get(unit)
        if isinstance(value, str):
            # what is not a number stays, and is refused when the section is validated
            numbers[unit] = reading.parse_number(value) or value
    return numbers


def read_assigned(path: Path) -> list[int]:
    rule = f"{path} must be a JSON list with the tier of every client, from 1"
    try:
        raw = reading.parse_json(path.read_text())
    except (OSError, UnicodeDecodeError, reading.Unreadable) as error:
        raise FedloomError(rule, f"{error}", "correct it, or check --tier-file") from None
    if not isinstance(raw, list) or not all(type(tier) is int and tier >= 1 for tier in raw):
        raise FedloomError(rule, "it holds something else", "correct it, e.g. [1, 1, 2, 2]")
    return raw


def deal_of(
    config: TiersConfig,
    tiered: Tiered,
    clients: int,
    seed: int,
    devices: Sequence[Device] | None = None,
) -> TierDeal:
    """The tiers of the configuration, or the usual ones, and the clients dealt to them.

    `devices` are those of all clients, if their speeds decide about tiers.
    """
    config = with_files_read(config)
    for name in config.unsupported:
        check_operation(name, tiered)
    limits = limits_of(config, tiered, seed)
    shares = shares_of(config, len(limits), tiered.rule)
    tiers = []
    for number, (limit, share) in enumerate(zip(limits, shares, strict=True), start=1):
        tier = tier_of(config, tiered, number, limit, share)
        check_latency(tier)
        tiers.append(tier)
    for tier in tiers:
        check_leaves_a_path(tier, tiered)
    return TierDeal(tuple(tiers), tuple(tier_of_clients(config, shares, clients, seed, devices)))


def tier_of(
    config: TiersConfig,
    tiered: Tiered,
    number: int,
    limit: Mapping[str, float],
    share: float,
) -> Tier:
    """One tier, with its name, its unsupported operations and its latencies, if it has its own."""
    if config.table is None:
        unsupported = tuple(config.unsupported)
        return Tier(number, limit, share, "", unsupported, unit_costs(config.latency, tiered))
    described = config.table[number - 1]
    for operation in described.unsupported:
        check_operation(operation, tiered)
    unsupported = (*config.unsupported, *described.unsupported)
    latency = unit_costs(described.latency, tiered)
    return Tier(number, limit, share, described.name, unsupported, latency)


def unit_costs(latency: LatencyConfig | None, tiered: Tiered) -> UnitCosts | None:
    """A configuration's latencies as costs of this space's operations."""
    if latency is None:
        return None
    sizes = [len(row) for row in latency.rows]
    if sizes != [len(names) for names in tiered.names]:
        raise FedloomError(
            "the latencies in a run's configuration must be those of its space",
            "they are those of another one",
            "start a new run, which reads the profile again",
        )
    return UnitCosts(latency.fixed, tuple(tuple(row) for row in latency.rows))


def check_latency(tier: Tier) -> None:
    """A limit in milliseconds needs a device profile."""
    if LATENCY in tier.limit and tier.latency is None:
        raise no_profile(f"tier {tier.number} has a limit in {LATENCY} but no profile")


def no_profile(problem: str) -> FedloomError:
    return FedloomError(
        f"a limit in {LATENCY} must have the profile of a device that covers the space",
        problem,
        "measure one with `fedloom profile --space …`, and add --profile NAME, "
        "or profile = NAME to its [[tier]]",
    )


def check_operation(name: str, tiered: Tiered) -> None:
    """Refuse an unknown operation. A fixed network has no operations to choose from."""
    if tiered.choice == "width":
        return
    if name not in tiered.operations:
        raise unknown("an operation of --unsupported", name, tiered.operations)


# Limits


def limits_of(config: TiersConfig, tiered: Tiered, seed: int) -> list[dict[str, float]]:
    """The limits of every tier, from the smallest devices on."""
    if config.table is not None:
        if config.cost is not None:
            rule = "--cost must be left out where a file of tiers says what each limit counts"
            raise FedloomError(rule, f"got {config.cost}", "leave it out")
        return limits_in_table(config.table, tiered)
    unit: LimitUnit = config.cost or tiered.rule.unit
    latency = unit_costs(config.latency, tiered)
    if unit == LATENCY and latency is None:
        raise no_profile("there is none")
    if config.limits is None:
        numbers = tiered.rule.limits_of(tiered.table, unit, seed, latency)
        check_rising(numbers, unit)
    elif config.limits.isdigit():
        numbers = limits_for(int(config.limits), tiered, unit, seed, latency)
        check_rising(numbers, unit)
    else:
        numbers = parse_limits(config.limits, tiered, unit, latency)
    limits: list[dict[str, float]] = []
    for number in numbers:
        limits.append({unit: number})
    return limits


def limits_for(
    tiers: int,
    tiered: Tiered,
    unit: LimitUnit,
    seed: int,
    latency: UnitCosts | None,
) -> list[float]:
    """The limits that the space's rule gives so many tiers."""
    if tiers < 1:
        raise FedloomError("--tiers must ask for at least one tier", "got 0", "try --tiers 2")
    numbers = tiered.rule.for_tiers(tiers).limits_of(tiered.table, unit, seed, latency)
    if len(numbers) < tiers:
        raise FedloomError(
            f"--tiers {tiers} must give as many different limits",
            f"the paths of this space are so alike in {unit} that there are {len(numbers)}",
            "ask for fewer, or give limits yourself",
        )
    return numbers


def parse_limits(
    text: str,
    tiered: Tiered,
    unit: LimitUnit,
    latency: UnitCosts | None,
) -> list[float]:
    """Parse limits such as `121M,222M,max`, which must rise.

    A fixed network may cost less than a limit that is meant for other methods. Then a final `max`
    is raised to that limit.
    """
    costs = tiered.table.in_unit(unit, latency)
    texts = [part.strip() for part in text.replace("/", ",").split(",")]
    numbers = [parse_limit(part, costs) for part in texts]
    if tiered.choice == "width" and texts[-1] == LARGEST:
        check_rising(numbers[:-1], unit)
        numbers[-1] = max(numbers)
        return numbers
    check_rising(numbers, unit)
    return numbers


def parse_limit(text: str, costs: UnitCosts) -> float:
    if text == LARGEST:
        return float(costs.dearest())
    number = reading.parse_number(text)
    if number is None or number <= 0:
        rule = "--tiers must be limits such as 121M,222M,max, a number of tiers, or a TOML file"
        raise FedloomError(rule, f"got {text!r}", "correct it")
    return number


def limits_in_table(table: Sequence[TierConfig], tiered: Tiered) -> list[dict[str, float]]:
    limits = []
    for number, described in enumerate(table, start=1):
        limit: dict[str, float] = {}
        for unit in UNITS:
            amount = getattr(described, unit)
            if amount == LARGEST:
                amount = tiered.table.in_unit(unit, latency_of(described, tiered)).dearest()
            if amount is not None:
                limit[unit] = float(amount)
        if not limit:
            rule = f"every tier of a file must have a limit: {', '.join(UNITS)}"
            raise FedloomError(rule, f"tier {number} has none", "give it one")
        limits.append(limit)
    for unit in UNITS:
        check_rising([limit[unit] for limit in limits if unit in limit], unit)
    return limits


def latency_of(described: TierConfig, tiered: Tiered) -> UnitCosts | None:
    """How long operations take on the tier's device; without a profile `max` is not known."""
    latency = unit_costs(described.latency, tiered)
    if latency is None and described.latency_ms == LARGEST:
        raise no_profile(f"a tier has a limit in {LATENCY} but no profile")
    return latency


def check_leaves_a_path(tier: Tier, tiered: Tiered) -> None:
    """Refuse a limit that even the cheapest path exceeds."""
    for unit, most in tier.limit.items():
        in_unit = tiered.table.in_unit(unit, tier.latency)  # type: ignore[arg-type]
        least = float(in_unit.fixed)
        for layer, names in enumerate(tiered.names):
            costs = []
            for name, cost in zip(names, in_unit.rows[layer], strict=True):
                if name not in tier.unsupported:
                    costs.append(cost)
            if not costs:
                raise FedloomError(
                    "every layer must keep an operation that the devices support",
                    f"layer {layer + 1} has none for tier {tier.number}",
                    "shorten --unsupported",
                )
            least += min(costs)
        if least > most:
            raise FedloomError(
                f"the limit of tier {tier.number} must leave at least one {tiered.choice}",
                f"it is {most:,.10g} {unit}, and the cheapest {tiered.choice} has {least:,.10g}",
                "raise it",
            )


# Shares, and who is in which tier


def shares_of(config: TiersConfig, tiers: int, rule: TierRule) -> list[float]:
    """The tiers' shares of the clients.

    If the user gives neither limits nor shares, they are the tier rule's, as in its paper.
    """
    shares = config.shares
    in_file = shares_in_table(config.table or ())
    if in_file is not None and shares is not None:
        raise FedloomError(
            "the shares of tiers must be given in one place",
            "got --shares and `share` in the file of tiers",
            "leave one of them out",
        )
    if shares is None:
        shares = in_file
    is_paper = config.limits is None and config.table is None and config.assigned is None
    if shares is None and is_paper and rule.shares is not None:
        shares = list(rule.shares)
    if shares is None:
        return [1 / tiers] * tiers
    if config.assigned is not None:
        raise FedloomError(
            "a client's tier must be decided in one way",
            "got --tier-file and shares of tiers",
            "leave one of them out",
        )
    check_shares(shares, tiers)
    return list(shares)


def shares_in_table(table: Sequence[TierConfig]) -> list[float] | None:
    """The shares in a file of tiers; None if no tier has one."""
    shares = [tier.share for tier in table if tier.share is not None]
    if not shares:
        return None
    if len(shares) != len(table):
        raise FedloomError(
            "every tier of a file must have a `share`, or none",
            f"{len(shares)} of {len(table)} do",
            "correct it",
        )
    return shares


def tier_of_clients(
    config: TiersConfig,
    shares: Sequence[float],
    clients: int,
    seed: int,
    devices: Sequence[Device] | None,
) -> list[int]:
    """The tier of every client: by the configuration, by its device's speed, or drawn by shares."""
    if config.assigned is not None:
        check_assigned(config.assigned, clients, len(shares), devices)
        return list(config.assigned)
    if devices is not None:
        return tiers_by_speed(devices, shares, seed)
    return dealt(shares, clients, seed)


def check_assigned(
    assigned: Sequence[int],
    clients: int,
    tiers: int,
    devices: Sequence[Device] | None,
) -> None:
    """Refuse a file of tiers that does not fit the clients and the tiers."""
    if devices is not None:
        raise FedloomError(
            "a client's tier must be decided in one way",
            "got --tier-file and --devices",
            "leave one of them out",
        )
    if len(assigned) != clients:
        raise FedloomError(
            f"--tier-file must name a tier for each of the {clients} clients",
            f"it has {len(assigned)}",
            "correct it",
        )
    highest = max(assigned)
    if highest > tiers:
        raise FedloomError(
            f"--tier-file must name tiers from 1 to {tiers}",
            f"it names {highest}",
            "correct it, or give more limits",
        )
    empty = set(range(1, tiers + 1)) - set(assigned)
    if empty:
        raise FedloomError(
            "every tier must have a client",
            f"tier {min(empty)} has none in --tier-file",
            "correct it, or leave the tier out",
        )

"""The tiers of a run's devices: what was asked for, made into limits and a deal of the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedloom import reading
from fedloom.config.models import (
    DeviceConfig,
    DevicesConfig,
    TierConfig,
    TiersConfig,
    validated,
)
from fedloom.cost.devices import Device, devices_of, is_file, tiers_by_speed
from fedloom.cost.limits import parse_number
from fedloom.cost.tiers import check_rising, check_shares, dealt
from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.method import Tiered
from fedloom.spaces.cost_table import Unit
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Tier, TierDeal

LARGEST = "max"  # a limit that every path fits
UNITS: tuple[Unit, ...] = ("macs", "macs_paper", "params")


def with_files_read(config: TiersConfig) -> TiersConfig:
    """What the files that it names say, so that a resume and a site need none of them."""
    changes: dict[str, object] = {}
    if config.table is None and config.limits is not None and config.limits.endswith(".toml"):
        changes["table"] = read_table(Path(config.limits))
    if config.assigned is None and config.file is not None:
        changes["assigned"] = read_assigned(Path(config.file))
    return config.model_copy(update=changes)


def devices_read(config: DevicesConfig, clients: int, seed: int) -> DevicesConfig:
    """With the rows of the file that it names, so that a resume needs it no more."""
    if config.table is None or config.rows is not None or not is_file(config.table):
        return config
    rows = []
    for device in devices_of(config.table, clients, seed):
        rows.append(DeviceConfig(**asdict(device)))
    return config.model_copy(update={"rows": rows})


def devices_in(config: DevicesConfig, clients: int, seed: int) -> list[Device] | None:
    """Of every client; None: nobody asked for any."""
    if config.table is None:
        return None
    if config.rows is None:
        return devices_of(config.table, clients, seed)
    return [Device(**row.model_dump()) for row in config.rows]


def read_table(path: Path) -> list[TierConfig]:
    """`[[tier]]` sections."""
    try:
        raw = reading.read_toml(path)
    except reading.Unreadable as error:
        rule = f"{path} must be a readable TOML file of tiers"
        raise FedloomError(rule, f"{error}", "mend it, or check --tiers") from None
    sections = raw.get("tier")
    if not isinstance(sections, list) or not sections or set(raw) != {"tier"}:
        rule = f"{path} must have a section [[tier]] for each tier, and nothing else"
        raise FedloomError(rule, f"it has {', '.join(raw) or 'nothing'}", "see docs/fedoras.md")
    return [validated(TierConfig, section, "tier.") for section in sections]


def read_assigned(path: Path) -> list[int]:
    rule = f"{path} must be a JSON list with the tier of every client, from 1"
    try:
        raw = reading.parse_json(path.read_text())
    except (OSError, UnicodeDecodeError, reading.Unreadable) as error:
        raise FedloomError(rule, f"{error}", "mend it, or check --tier-file") from None
    if not isinstance(raw, list) or not all(type(tier) is int and tier >= 1 for tier in raw):
        raise FedloomError(rule, "it holds something else", "mend it, e.g. [1, 1, 2, 2]")
    return raw


def deal_of(
    config: TiersConfig,
    tiered: Tiered,
    clients: int,
    seed: int,
    devices: Sequence[Device] | None = None,
) -> TierDeal:
    """The tiers that were asked for, or the usual ones, and the clients dealt to them.

    `devices`: of every client, if their speeds are to decide.
    """
    config = with_files_read(config)
    for name in config.unsupported:
        check_operation(name, tiered)
    limits = limits_of(config, tiered, seed)
    shares = shares_of(config, len(limits), tiered.rule)
    tiers = []
    for number, limit in enumerate(limits, start=1):
        name = ""
        unsupported = list(config.unsupported)
        if config.table is not None:
            described = config.table[number - 1]
            name = described.name
            for operation in described.unsupported:
                check_operation(operation, tiered)
            unsupported.extend(described.unsupported)
        tiers.append(Tier(number, limit, shares[number - 1], name, tuple(unsupported)))
    for tier in tiers:
        check_leaves_a_path(tier, tiered)
    return TierDeal(tuple(tiers), tuple(assigned(config, shares, clients, seed, devices)))


def check_operation(name: str, tiered: Tiered) -> None:
    """A fixed network has no operations to choose from, so it lacks none of them either."""
    if tiered.choice == "width":
        return
    if name not in tiered.operations:
        raise unknown("an operation of --unsupported", name, tiered.operations)


# Limits


def limits_of(config: TiersConfig, tiered: Tiered, seed: int) -> list[dict[str, float]]:
    """Of every tier, from the smallest devices on."""
    if config.table is not None:
        return limits_in_table(config.table)
    unit = config.cost or tiered.rule.unit
    if config.limits is None:
        numbers = tiered.rule.limits_of(tiered.table, unit, seed)
    elif config.limits.isdigit():
        count = int(config.limits)
        if count < 1:
            raise FedloomError("--tiers must ask for at least one tier", "got 0", "say --tiers 2")
        numbers = rule_for(count, tiered.rule).limits_of(tiered.table, unit, seed)
    else:
        numbers = []
        for word in config.limits.replace("/", ",").split(","):
            numbers.append(limit_in(word.strip(), tiered, unit))
    check_rising(numbers, unit)
    limits: list[dict[str, float]] = []
    for number in numbers:
        limits.append({unit: number})
    return limits


def rule_for(count: int, rule: TierRule) -> TierRule:
    """The space's own rule for the paper's number of tiers; the usual one for any other."""
    if count == rule.tiers:
        return rule
    return TierRule.usual(count, rule.unit)


def limit_in(word: str, tiered: Tiered, unit: Unit) -> float:
    if word == LARGEST:
        return float(tiered.table.dearest(unit))
    number = parse_number(word)
    if number is None or number <= 0:
        rule = "--tiers must be limits such as 121M,222M,max, a number of tiers, or a TOML file"
        raise FedloomError(rule, f"got {word!r}", "mend it")
    return number


def limits_in_table(table: Sequence[TierConfig]) -> list[dict[str, float]]:
    limits = []
    for number, described in enumerate(table, start=1):
        limit: dict[str, float] = {}
        for unit in UNITS:
            amount = getattr(described, unit)
            if amount is not None:
                limit[unit] = float(amount)
        if not limit:
            rule = "every tier of a file must have a limit: macs, macs_paper or params"
            raise FedloomError(rule, f"tier {number} has none", "give it one")
        limits.append(limit)
    for unit in UNITS:
        check_rising([limit[unit] for limit in limits if unit in limit], unit)
    return limits


def check_leaves_a_path(tier: Tier, tiered: Tiered) -> None:
    """A limit that no path fits is named before anything is trained."""
    for unit, most in tier.limit.items():
        least = float(tiered.table.fixed.of(unit))  # type: ignore[arg-type]
        for layer, names in enumerate(tiered.names):
            costs = []
            for name, cost in zip(names, tiered.table.rows[layer], strict=True):
                if name not in tier.unsupported:
                    costs.append(cost.of(unit))  # type: ignore[arg-type]
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
    """Where nobody gives limits or shares, the rule's own, which are those of a paper."""
    shares = config.shares
    if config.limits is None and config.table is None and rule.shares is not None:
        shares = shares or list(rule.shares)
    if config.table is not None:
        given = [tier.share for tier in config.table if tier.share is not None]
        if given and shares is None:
            shares = given
    if shares is None:
        return [1 / tiers] * tiers
    check_shares(shares, tiers)
    return list(shares)


def assigned(
    config: TiersConfig,
    shares: Sequence[float],
    clients: int,
    seed: int,
    devices: Sequence[Device] | None,
) -> list[int]:
    if config.assigned is None:
        if devices is None:
            return dealt(shares, clients, seed)
        return tiers_by_speed(devices, shares, seed)
    if devices is not None:
        raise FedloomError(
            "a client's tier must be decided in one way",
            "got --tier-file and --devices",
            "leave one of them out",
        )
    if len(config.assigned) != clients:
        raise FedloomError(
            f"--tier-file must name a tier for each of the {clients} clients",
            f"it has {len(config.assigned)}",
            "mend it",
        )
    highest = max(config.assigned)
    if highest > len(shares):
        raise FedloomError(
            f"--tier-file must name tiers from 1 to {len(shares)}",
            f"it names {highest}",
            "mend it, or give more limits",
        )
    empty = set(range(1, len(shares) + 1)) - set(config.assigned)
    if empty:
        raise FedloomError(
            "every tier must have a client",
            f"tier {min(empty)} has none in --tier-file",
            "mend it, or leave the tier out",
        )
    return list(config.assigned)

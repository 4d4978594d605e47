"""Tiers of a federation's sites, by what they tell of their devices.

A site is of the highest tier all of whose networks its `[device]` allows. One that tells no limit
is of the highest tier; one that allows less than the first tier asks for is of the first, and
declines what does not fit. An operation that one site of a tier does not support is left out of the
tier's paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedloom.config.models import TiersConfig
from fedloom.cost.limits import DeviceLimit
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Tiered
from fedloom.runs.tiers import check_leaves_a_path, deal_of
from fedloom.spaces.cost_table import CostTable, Unit
from fedloom.types import Tier, TierDeal

COUNTED: tuple[Unit, ...] = ("macs", "params")  # of a device's limits, those that a table can tell


@dataclass(frozen=True)
class SiteTiers:
    """The tiers of a federation's run, and what its operator should hear of them."""

    deal: TierDeal
    notices: tuple[str, ...]


def tiers_of_sites(
    config: TiersConfig,
    tiered: Tiered,
    devices: Mapping[str, DeviceLimit],
    seed: int,
) -> SiteTiers:
    """In the order of the sites' numbers, which is that of their names."""
    names = sorted(devices)
    deal = deal_of(config, tiered, len(names), seed)
    of_client = list(deal.of_client)
    notices = []
    if config.assigned is None:
        of_client = []
        for name in names:
            number = tier_for(devices[name], deal.tiers, tiered.table)
            of_client.append(number or 1)
            if number is None:
                notices.append(too_small(name, deal.tiers[0]))
    tiers = []
    for tier in deal.tiers:
        own = []
        for name, number in zip(names, of_client, strict=True):
            if number == tier.number:
                own.append(devices[name])
        tiers.append(without_unsupported(tier, own, tiered))
        if not own:
            notices.append(f"tier {tier.number} has no site of its own")
    return SiteTiers(TierDeal(tuple(tiers), tuple(of_client)), tuple(notices))


def too_small(name: str, first: Tier) -> str:
    limit = ", ".join(f"{most:,.10g} {unit}" for unit, most in first.limit.items())
    text = f"the [device] of {name} allows less than tier 1 asks for ({limit})"
    return f"{text}: it is of tier 1, and declines networks that do not fit"


def tier_for(device: DeviceLimit, tiers: Sequence[Tier], table: CostTable) -> int | None:
    """The highest tier all of whose networks the device allows; None: not even the first."""
    number = None
    for tier in tiers:
        if allows(device, tier, table):
            number = tier.number
    return number


def allows(device: DeviceLimit, tier: Tier, table: CostTable) -> bool:
    """Whether the device allows every network within the tier's limits."""
    for unit in COUNTED:
        most = getattr(device.most, unit)
        if most is not None and dearest_within(tier, unit, table) > most:
            return False
    latency = device.most.latency_ms
    if latency is None or "latency_ms" not in tier.limit:
        return True  # a latency that the run does not limit is nobody's to tell
    return tier.limit["latency_ms"] <= latency


def dearest_within(tier: Tier, unit: Unit, table: CostTable) -> float:
    """A bound on what the tier's networks cost in this unit."""
    bounds = [float(table.dearest(unit))]
    if unit in tier.limit:
        bounds.append(tier.limit[unit])
    if unit == "macs" and "macs_paper" in tier.limit:
        bounds.append(tier.limit["macs_paper"])  # which counts no less
    return min(bounds)


def without_unsupported(tier: Tier, own: Sequence[DeviceLimit], tiered: Tiered) -> Tier:
    """The tier without what one of its own sites does not support."""
    missing: set[str] = set()
    for limit in own:
        missing |= limit.unsupported & tiered.operations
    missing -= set(tier.unsupported)
    if not missing:
        return tier
    narrower = replace(tier, unsupported=(*tier.unsupported, *sorted(missing)))
    try:
        check_leaves_a_path(narrower, tiered)
    except FedloomError as error:
        raise FedloomError(
            f"all sites of tier {tier.number} must have a path in common",
            f"one does not support {', '.join(sorted(missing))} ({error})",
            "ask the sites, or give another --tier-file",
        ) from None
    return narrower

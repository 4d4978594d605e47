"""The device tiers of a federation's sites, by the limits that the sites report.

A site belongs to the highest tier all of whose networks its `[device]` section allows. A site that
reports no limit belongs to the highest tier. A site that allows less than the first tier needs
belongs to the first tier, and declines networks that do not fit. An operation that one site of a
tier does not support is left out of the tier's paths.
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

COUNTED: tuple[Unit, ...] = ("macs", "params")  # the limits of a device that a cost table covers


@dataclass(frozen=True)
class SiteTiers:
    """The tiers of a federation's run, and notices about them for its operator."""

    deal: TierDeal
    notices: tuple[str, ...]


def tiers_of_sites(
    config: TiersConfig,
    tiered: Tiered,
    devices: Mapping[str, DeviceLimit],
    seed: int,
) -> SiteTiers:
    """The tier of each site, in the order of the sites' numbers, which is that of their names."""
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
        devices_of_tier = []
        for name, number in zip(names, of_client, strict=True):
            if number == tier.number:
                devices_of_tier.append(devices[name])
        tiers.append(without_unsupported(tier, devices_of_tier, tiered))
        if not devices_of_tier:
            notices.append(f"no site belongs to tier {tier.number}")
    return SiteTiers(TierDeal(tuple(tiers), tuple(of_client)), tuple(notices))


def too_small(name: str, first: Tier) -> str:
    """The notice for a site whose device allows less than the first tier needs."""
    limit = ", ".join(f"{most:,.10g} {unit}" for unit, most in first.limit.items())
    text = f"the [device] section of {name} allows less than tier 1 needs ({limit})"
    return f"{text}: the site is put into tier 1, and declines networks that do not fit"


def tier_for(device: DeviceLimit, tiers: Sequence[Tier], table: CostTable) -> int | None:
    """The highest tier all of whose networks the device allows, or None if there is none."""
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
        return True  # if the run does not limit latency, its networks' latency is unknown
    return tier.limit["latency_ms"] <= latency


def dearest_within(tier: Tier, unit: Unit, table: CostTable) -> float:
    """An upper bound on what the tier's networks cost in this unit."""
    bounds = [float(table.dearest(unit))]
    if unit in tier.limit:
        bounds.append(tier.limit[unit])
    if unit == "macs" and "macs_paper" in tier.limit:
        bounds.append(tier.limit["macs_paper"])  # this count is never below `macs`
    return min(bounds)


def without_unsupported(tier: Tier, devices: Sequence[DeviceLimit], tiered: Tiered) -> Tier:
    """The tier without operations that one of its sites does not support."""
    missing: set[str] = set()
    for limit in devices:
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

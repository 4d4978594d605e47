"""What files that options name hold: tiers, devices, times of availability, and faults.

A run keeps their content in its own configuration, so that it needs the files only once.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedloom.config.section import SET_LATER, Section


class LatencyConfig(Section):
    """How long operations take according to a device profile, in milliseconds."""

    fixed: float = Field(ge=0)
    rows: list[list[float]]  # by layer and operation


# A limit of a tier: a number, or `max`, which no network exceeds.
MostOfTier = Annotated[float, Field(gt=0)] | Literal["max"] | None


class TierInFile(Section):
    """One tier in a file of tiers."""

    name: str = Field("", description="what tables call it")
    share: float | None = Field(
        None, gt=0, le=1, description="share of the clients; all tiers must give it, or none"
    )
    macs: MostOfTier = Field(None, description="most MACs per sample, or max")
    macs_paper: MostOfTier = Field(None, description="most MACs as FedorAS counts them, or max")
    params: MostOfTier = Field(None, description="most parameters, or max")
    latency_ms: MostOfTier = Field(None, description="most milliseconds per sample, or max")
    profile: str | None = Field(
        None, description="device profile of the tier's devices (that of --profile)"
    )
    unsupported: list[str] = Field([], description="operations that its devices do not support")


class TierConfig(TierInFile):
    """One tier in a run's configuration."""

    latency: LatencyConfig | None = Field(
        None,
        description=f"how long operations take on that device; {SET_LATER}",
    )


class DeviceConfig(Section):
    """One row of a file of devices. Links are in bytes per second."""

    macs_per_second: float = Field(gt=0)
    lan: float = Field(gt=0)
    wan_down: float = Field(gt=0)
    wan_up: float = Field(gt=0)
    place: str = ""


class IntervalConfig(Section):
    """A row of a file of availability; times are in seconds."""

    client: int = Field(ge=0)
    begin: float = Field(ge=0)
    end: float = Field(gt=0)


class FaultConfig(Section):
    """A row of a file of faults."""

    round: int = Field(ge=1)
    hop: int = Field(ge=0)
    client: int = Field(ge=0)

"""Tier limits in milliseconds: how long operations take on the tiers' devices, by their profiles.

Profiles are read once, and their numbers go into the run's configuration. So a resumed run has the
limits and paths that it began with, even if a profile has changed, and clients need no file.
"""

from __future__ import annotations

from fedloom.config.file_rows import LatencyConfig, TierConfig
from fedloom.config.models import TiersConfig
from fedloom.cost.latencies import operation_latencies
from fedloom.cost.steps import model_of
from fedloom.errors import FedloomError
from fedloom.methods import searched
from fedloom.runs.profiles import find
from fedloom.runs.tiers import LATENCY, no_profile
from fedloom.types import Task


def with_latencies_read(config: TiersConfig, profile: str | None, task: Task) -> TiersConfig:
    """Read the latencies that limits need. `profile` is for tiers that name no other profile."""
    if config.table is None:
        if config.cost != LATENCY or config.latency is not None:
            return config
        if profile is None:
            raise no_profile("there is no --profile")
        return config.model_copy(update={"latencies": [latencies_by(profile, task)]})
    table = []
    for number, tier in enumerate(config.table, start=1):
        table.append(with_latency_read(tier, number, profile, task))
    return config.model_copy(update={"table": table})


def with_latency_read(tier: TierConfig, number: int, profile: str | None, task: Task) -> TierConfig:
    if tier.latency_ms is None and tier.profile is not None:
        raise FedloomError(
            f"the profile of tier {number} must come with a limit in {LATENCY}",
            "there is none",
            "add one, or leave the profile out",
        )
    if tier.latency_ms is None or tier.latency is not None:
        return tier
    name = tier.profile or profile
    if name is None:
        raise no_profile(f"tier {number} has a limit in {LATENCY} but no profile")
    return tier.model_copy(update={"latency": latencies_by(name, task)})


def latencies_by(profile: str, task: Task) -> LatencyConfig:
    model = model_of(task, searched(task))
    if model is None:
        raise FedloomError(
            f"a limit in {LATENCY} must be on networks of a search space",
            f"{task.method} trains another one here",
            "limit macs or params instead",
        )
    costs = operation_latencies(model, find(profile), f"profile {profile}")
    return LatencyConfig(fixed=costs.fixed, rows=[list(row) for row in costs.rows])

"""Sections of result.json that a method's own words fill. Other methods leave them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.records.decision import Decision
from fedloom.records.result import FinalGroup, SearchSummary, SupernetFacts, TierResult


def tuned_model(tier: int) -> str:
    """The name of a tier's network among the models that every client is asked for."""
    return f"tier-{tier}"


def supernet_model(tier: int) -> str:
    """The name of the same network with the supernet's weights, before tuning."""
    return f"supernet-{tier}"


def other_model(tier: int, place: int) -> str:
    """The name of a network that is trained beside a tier's own, by its place among scores."""
    return f"tier-{tier}-place-{place}"


@dataclass(frozen=True)
class Sections:
    """What a method knows of its result beside figures: those are the run's to add."""

    tiers: tuple[TierResult, ...] = ()
    tier_of: tuple[int, ...] = ()  # by client
    ops: tuple[dict[str, int], ...] = ()  # samples through each operation, by layer
    search: SearchSummary | None = None
    final: FinalGroup | None = None
    supernet: SupernetFacts | None = None
    # By stage, bytes of the whole network that orders did not bring; None: orders bring it whole.
    left_out: Mapping[str, int] | None = None
    decisions: tuple[Decision, ...] = ()  # what was chosen on validation data, in its order

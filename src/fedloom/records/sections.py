"""Sections of result.json that only some methods fill. Other methods leave them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.records.decision import Decision
from fedloom.records.result import FinalGroup, SearchSummary, SupernetFacts, TierResult


def tuned_model(tier: int) -> str:
    """The name of a tier's network among the models that every client is asked to evaluate."""
    return f"tier-{tier}"


def supernet_model(tier: int) -> str:
    """The name of the same network with the supernet's weights, before tuning."""
    return f"supernet-{tier}"


def other_model(tier: int, place: int) -> str:
    """The name of a network that is trained in addition to a tier's own, by its rank in scores."""
    return f"tier-{tier}-place-{place}"


@dataclass(frozen=True)
class Sections:
    """What a method contributes to its result; the run adds the figures."""

    tiers: tuple[TierResult, ...] = ()
    tier_of: tuple[int, ...] = ()  # by client
    ops: tuple[dict[str, int], ...] = ()  # samples through each operation, by layer
    search: SearchSummary | None = None
    final: FinalGroup | None = None
    supernet: SupernetFacts | None = None
    # By stage, the bytes of the network that orders left out; None: orders have the whole network.
    left_out: Mapping[str, int] | None = None
    decisions: tuple[Decision, ...] = ()  # choices made on validation data, in order

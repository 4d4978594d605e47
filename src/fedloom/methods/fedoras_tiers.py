"""FedorAS: who is in which tier, and what a tier's paths may be, from the server's state."""

from __future__ import annotations

from fedloom.methods.fedoras_frame import Frame
from fedloom.searchers.tier_search import TierSpace
from fedloom.types import State, Tier


def tiers_in(state: State) -> list[Tier]:
    return [Tier.from_plain(raw) for raw in state.meta["tiers"]]


def tier_of(state: State, client: int) -> Tier:
    number = state.meta["tier_of"][client]
    return Tier.from_plain(state.meta["tiers"][number - 1])


def eligible(state: State, tier: int) -> list[int]:
    """The clients of a tier and above: those whose devices can run its network."""
    return [client for client, number in enumerate(state.meta["tier_of"]) if number >= tier]


def spaces_of(state: State) -> list[TierSpace]:
    """By tier, from the first on."""
    frame = Frame.from_plain(state.meta["frame"])
    spaces = []
    for tier in tiers_in(state):
        spaces.append(TierSpace(tier.number, frame.costs_of(tier), tuple(tier.limit.values())))
    return spaces

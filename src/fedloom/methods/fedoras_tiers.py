"""FedorAS: the tiers in the server's state: their clients, and what their paths may cost."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.methods.fedoras_frame import Frame, left_out
from fedloom.searchers.tier_search import TierSpace
from fedloom.types import Json, Order, Setup, State, Tier


def first_meta(frame: Frame, setup: Setup) -> dict[str, Json]:
    """Returns what the state of every stage says about the run."""
    assert setup.tiers is not None  # the recipe says that this method has tiers
    return {
        "frame": frame.to_plain(),
        "tiers": [tier.to_plain() for tier in setup.tiers.tiers],
        "tier_of": list(setup.tiers.of_client),
        "seed": setup.task.seed,
        "ops": frame.no_counts(),  # samples through every operation, all rounds together
        "left_out": {},  # by stage, bytes of the supernet that orders did not carry
    }


def with_left_out(state: State, stage: str, orders: Sequence[Order]) -> dict[str, Json]:
    """Returns the state's meta, to which the bytes that these orders saved are added."""
    frame = Frame.from_plain(state.meta["frame"])
    before = state.meta["left_out"]
    total = before.get(stage, 0) + left_out(frame, orders)
    return {**state.meta, "left_out": {**before, stage: total}}


def tiers_in(state: State) -> list[Tier]:
    return [Tier.from_plain(raw) for raw in state.meta["tiers"]]


def tier_of(state: State, client: int) -> Tier:
    number = state.meta["tier_of"][client]
    return Tier.from_plain(state.meta["tiers"][number - 1])


def eligible(state: State, tier: int, whom: str = "tier") -> list[int]:
    """Returns the clients of a tier and above, whose devices can run its network; or `all`."""
    if whom == "all":
        return list(range(len(state.meta["tier_of"])))
    return [client for client, number in enumerate(state.meta["tier_of"]) if number >= tier]


def highest_trained(state: State, whom: str = "tier") -> int:
    """Returns the highest tier for whose network a client is eligible.

    It is called often, so it makes no list.
    """
    if whom == "all":
        return len(state.meta["tiers"])
    highest: int = max(state.meta["tier_of"])
    return highest


def spaces_of(state: State) -> list[TierSpace]:
    """Returns what each tier's paths cost and their limits, from the first tier on."""
    frame = Frame.from_plain(state.meta["frame"])
    spaces = []
    for tier in tiers_in(state):
        spaces.append(TierSpace(tier.number, frame.costs_of(tier), tuple(tier.limit.values())))
    return spaces

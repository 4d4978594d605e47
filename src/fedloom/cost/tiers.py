"""Tiers of devices: checks of their limits and shares, and the tier of each client."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fedloom.errors import FedloomError
from fedloom.rng import rng

SUM_TOLERANCE = 1e-6


def check_shares(shares: Sequence[float], tiers: int) -> None:
    if len(shares) != tiers:
        raise FedloomError(
            f"the shares of tiers must be a number for each of the {tiers} tiers",
            f"got {len(shares)}",
            "give as many, or leave it out for equal shares",
        )
    if min(shares) <= 0 or abs(sum(shares) - 1) > SUM_TOLERANCE:
        raise FedloomError(
            "the shares of tiers must be numbers above 0 that sum to 1",
            f"they are {', '.join(f'{share:g}' for share in shares)} and sum to {sum(shares):g}",
            "correct them, e.g. 0.5,0.5",
        )


def check_rising(limits: Sequence[float], unit: str) -> None:
    for lower, higher in pairwise(limits):
        if higher <= lower:
            raise FedloomError(
                "the limits of tiers must rise",
                f"{higher:,.10g} {unit} follows {lower:,.10g}",
                "give them from the smallest devices to the largest",
            )


def sizes_of_tiers(shares: Sequence[float], clients: int) -> list[int]:
    """How many clients each tier has, by the method of largest remainders: the sum is exact."""
    exact = [share * clients for share in shares]
    sizes = [int(number) for number in exact]
    remainders = [number - size for number, size in zip(exact, sizes, strict=True)]
    by_remainder = sorted(range(len(shares)), key=lambda tier: -remainders[tier])
    for tier in by_remainder[: clients - sum(sizes)]:
        sizes[tier] += 1
    return sizes


def dealt(shares: Sequence[float], clients: int, seed: int) -> list[int]:
    """The tier of every client, counted from 1; the seed deals them at random."""
    tiers = []
    for number, size in enumerate(sizes_of_tiers(shares, clients), start=1):
        tiers.extend([number] * size)
    order = rng(seed, "tiers").permutation(clients)
    return [tiers[place] for place in order.tolist()]

"""`--max-weight-share`: a cap on the share of a round's weight that one client can have.

Clients report themselves how many samples they trained on. With a cap, the weight of a client that
claims more than a share S of the round's total weight is lowered until it has the share S of the
*new* total. The other clients keep their weights, bit for bit. With K clients of positive weight,
S is at least 1/K, where all weights are equal.

The cap considers all replies of a hop together, so it is a pure function of their weights. It does
not depend on the order of arrival, the number of workers, or whether the run was resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from fedloom.types import Weight

TOLERANCE = 1e-12  # relative; a weight this close to the cap counts as equal to it


@dataclass(frozen=True)
class Capped:
    """The clients whose weights were lowered."""

    # Their new weights.
    weights: Mapping[int, Weight] = field(default_factory=dict)
    # The share of the total that each of them claimed; with weights by key, the largest share.
    shares: Mapping[int, float] = field(default_factory=dict)


def capped(claimed: Mapping[int, Weight], share: float) -> Capped:
    """Cap the weights of one hop, which are by client.

    Weights by key are capped separately for each key, among the clients that weigh it.
    """
    by_key: dict[str, dict[int, float]] = {}
    for client, weight in claimed.items():
        weight_by_key = weight if isinstance(weight, Mapping) else {"": weight}
        for key, value in weight_by_key.items():
            by_key.setdefault(key, {})[client] = value
    lowered: dict[int, dict[str, float]] = {}
    shares: dict[int, float] = {}
    for key, weights in by_key.items():
        most = level(list(weights.values()), share)
        total = fsum(weights.values())
        for client, value in weights.items():
            if value > most * (1 + TOLERANCE):
                lowered.setdefault(client, {})[key] = most
                shares[client] = max(value / total, shares.get(client, 0.0))
    new = {client: replaced(claimed[client], lowered[client]) for client in sorted(lowered)}
    return Capped(new, {client: shares[client] for client in sorted(shares)})


def replaced(weight: Weight, lowered: Mapping[str, float]) -> Weight:
    """A client's weight after the cap. `lowered` has the new values by key."""
    if isinstance(weight, Mapping):
        return {**weight, **lowered}
    return lowered[""]


def level(weights: Sequence[float], share: float) -> float:
    """The weight at which clients are capped; infinity if no client is.

    If the m largest weights are capped at c and R is the sum of the others, then c is the share
    `share` of m·c + R, so c = share · R / (1 − m·share). The right m is the smallest one for which
    none of the other weights exceeds c.
    """
    falling = sorted((weight for weight in weights if weight > 0), reverse=True)
    if not falling:
        return inf
    share = max(share, 1 / len(falling))
    for count, largest in enumerate(falling):
        if count * share >= 1:
            break
        most = share * fsum(falling[count:]) / (1 - count * share)
        if largest <= most * (1 + TOLERANCE):
            if count == 0:
                return inf
            return most
    return falling[-1]

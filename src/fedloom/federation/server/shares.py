"""No client has more than its share of a round's weight: `--max-weight-share`.

A client says itself how many samples it trained on. With a cap, whoever claims more than a share S
of the round's whole weight is counted as if it had claimed less, just so much that it has S of the
*new* total; the others keep their weights to the bit. With K clients that weigh anything, S is
never below 1/K: then all weigh the same.

The cap looks at all replies of a hop together, so it is a pure function of their weights: neither
the order in which they arrived nor the number of workers nor a resume changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, inf

from fedloom.types import Weight

TOLERANCE = 1e-12  # relative; a weight so near the cap is as good as on it


@dataclass(frozen=True)
class Capped:
    """Whose weight was lowered, and to what."""

    # The new weights of the clients whose weight was lowered.
    weights: Mapping[int, Weight] = field(default_factory=dict)
    # The share of the total that each of them claimed; by key: its largest one.
    shares: Mapping[int, float] = field(default_factory=dict)


def capped(claimed: Mapping[int, Weight], share: float) -> Capped:
    """The weights of one hop, by client.

    Weights by key are capped key by key, over the clients that weigh it.
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
    """One client's weight with what was lowered of it."""
    if isinstance(weight, Mapping):
        return {**weight, **lowered}
    return lowered[""]


def level(weights: Sequence[float], share: float) -> float:
    """The weight above which a client is capped; infinite if nobody is.

    With the m largest capped at c and R the sum of the others, c is `share` of m·c + R: c = share ·
    R / (1 − m·share). The right m is the smallest for which nobody left exceeds c.
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

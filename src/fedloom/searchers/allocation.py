"""The allocation of sub-spaces to clusters: FINCH's Algorithm 3 and its Eq. 12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceCost:
    """R of Eq. 12: the share of the bandwidth and of the allowed MACs that a sub-space uses."""

    bandwidth: float  # B: the bytes per transfer that the budget allows
    most_macs: float  # FLOPS_max
    weigh: float  # ε

    def of(self, size: float, macs: float) -> float:
        """Returns R of a sub-space with this many bytes (B_j) and MACs."""
        bandwidth_share = size / self.bandwidth
        macs_share = macs / self.most_macs
        return self.weigh * bandwidth_share + (1 - self.weigh) * macs_share


def worths_of(accuracies: Sequence[float | None], costs: Sequence[float]) -> list[float]:
    """Returns c/R of every sub-space; if any of them has no score, 1/R of all.

    With 1/R only for itself, a sub-space without a score would come before all others, as if its
    accuracy were 1.
    """
    worths = []
    for accuracy, cost in zip(accuracies, costs, strict=True):
        if accuracy is None:
            return [1 / other for other in costs]
        worths.append(accuracy / cost)
    return worths


def allotted(levels: Sequence[float], worths: Sequence[float]) -> list[int]:
    """Algorithm 3: returns the sub-space of every cluster.

    Clusters are sorted by increasing non-IID level and sub-spaces by decreasing worth, so the worst
    and most expensive sub-space goes to the most skewed cluster. Ties keep their order.
    """
    clusters = sorted(range(len(levels)), key=lambda cluster: (levels[cluster], cluster))
    spaces = sorted(range(len(worths)), key=lambda space: (-worths[space], space))
    space_of_cluster = [0] * len(levels)
    for cluster, space in zip(clusters, spaces, strict=True):
        space_of_cluster[cluster] = space
    return space_of_cluster

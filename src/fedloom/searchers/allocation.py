"""Which sub-space goes to which cluster: FINCH's Algorithm 3 and its Eq. 12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceCost:
    """R of Eq. 12: what a sub-space takes of the bandwidth and of the MACs that there are."""

    bandwidth: float  # B: bytes of one transfer that the budget allows
    most_macs: float  # FLOPS_max
    weigh: float  # ε

    def of(self, size: float, macs: float) -> float:
        """Of a sub-space of so many bytes (B_j) and MACs."""
        of_bandwidth = size / self.bandwidth
        of_macs = macs / self.most_macs
        return self.weigh * of_bandwidth + (1 - self.weigh) * of_macs


def worths_of(accuracies: Sequence[float | None], costs: Sequence[float]) -> list[float]:
    """c/R of every sub-space. Unless all of them were scored, they are judged by R alone.

    One without a score would stand before all others, as if its accuracy were 1.
    """
    worths = []
    for accuracy, cost in zip(accuracies, costs, strict=True):
        if accuracy is None:
            return [1 / other for other in costs]
        worths.append(accuracy / cost)
    return worths


def allotted(levels: Sequence[float], worths: Sequence[float]) -> list[int]:
    """Algorithm 3: the sub-space of every cluster.

    Clusters go by increasing non-IID level, sub-spaces by decreasing worth, so the worst and
    dearest goes to the most skewed cluster. Of equals the first comes first.
    """
    clusters = sorted(range(len(levels)), key=lambda cluster: (levels[cluster], cluster))
    spaces = sorted(range(len(worths)), key=lambda space: (-worths[space], space))
    chosen = [0] * len(levels)
    for cluster, space in zip(clusters, spaces, strict=True):
        chosen[cluster] = space
    return chosen

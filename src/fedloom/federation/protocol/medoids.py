"""k-medoids on the distances between clients' labels (FINCH, Eq. 6), with limited group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

MOST_TURNS = 20  # iterations of k-medoids, which may cycle because cluster sizes are limited


def medoid_groups(shares: np.ndarray, size: int, first: int) -> list[list[int]]:
    """Groups of similar rows, at most `size` in each; a row is the shares of a client's labels.

    Rows join their nearest medoid that has room, the nearest pairs first. The first medoids are far
    apart, beginning with the row `first`.
    """
    medoids = medoids_apart(shares, ceil(len(shares) / size), first)
    groups: list[list[int]] = []
    for _ in range(MOST_TURNS):
        groups = dealt_to(medoids, shares, size)
        middles = [middle_of(group, shares) for group in groups]
        if middles == medoids:
            break
        medoids = middles
    return groups


def medoids_apart(shares: np.ndarray, count: int, first: int) -> list[int]:
    """`count` places, each as far as possible from those before it."""
    medoids = [first]
    to_nearest = distances_between(shares, shares[[first]])[:, 0]
    to_nearest[first] = -1.0  # so that it is not chosen again
    while len(medoids) < count:
        farthest = int(to_nearest.argmax())
        medoids.append(farthest)
        to_farthest = distances_between(shares, shares[[farthest]])[:, 0]
        to_nearest = np.minimum(to_nearest, to_farthest)
        to_nearest[medoids] = -1.0
    return medoids


def dealt_to(medoids: Sequence[int], shares: np.ndarray, size: int) -> list[list[int]]:
    """Assign every client to a medoid. The medoid comes first, then the others as they joined."""
    groups = [[medoid] for medoid in medoids]
    waiting = set(range(len(shares))) - set(medoids)
    distances = distances_between(shares, shares[list(medoids)])
    for pair in np.argsort(distances, axis=None, kind="stable").tolist():
        if not waiting:
            break
        place, number = divmod(pair, len(medoids))
        if place in waiting and len(groups[number]) < size:
            groups[number].append(place)
            waiting.remove(place)
    return groups


def middle_of(group: Sequence[int], shares: np.ndarray) -> int:
    """The member with the smallest total distance to the others."""
    places = sorted(group)
    rows = shares[places]
    return places[int(distances_between(rows, rows).sum(axis=1).argmin())]


def distances_between(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Eq. 6 between each row and each of the others. Rows are shares of labels."""
    from scipy.spatial.distance import cdist  # here: it imports slowly, and few runs need it

    distances: np.ndarray = cdist(rows, others, "cityblock")
    return distances

"""Clusters that a user assigns in a JSON file: lists of client ids, which are the population."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom import reading
from fedloom.errors import FedloomError


def read_clusters(path: Path, population: int) -> list[tuple[int, ...]]:
    rule = f"{path} must be a JSON list of clusters, each a list of client ids"
    advice = "fix it, e.g. [[0, 3], [1, 2]]"
    try:
        raw = reading.read_json(path)
    except reading.Unreadable as error:
        raise FedloomError(rule, str(error), "fix it, or check --clusters") from None
    if not isinstance(raw, list) or not raw:
        raise FedloomError(rule, "it is not a list, or an empty one", advice)
    for number, members in enumerate(raw, start=1):
        if not isinstance(members, list) or not members:
            raise FedloomError(rule, f"cluster {number} is not a list, or an empty one", advice)
        if not all(type(client) is int for client in members):
            raise FedloomError(rule, f"cluster {number} has an entry that is not an id", advice)
    clusters = [tuple(members) for members in raw]
    check_assigned(clusters, population, str(path))
    return clusters


def check_assigned(clusters: Sequence[Sequence[int]], population: int, source: str) -> None:
    """Raise an error unless every client is in exactly one cluster."""
    seen: set[int] = set()
    for members in clusters:
        for client in members:
            if not 0 <= client < population:
                rule = f"{source} must name clients from 0 to {population - 1}"
                raise FedloomError(rule, f"it names {client}", "fix it")
            if client in seen:
                rule = f"{source} must name every client once"
                raise FedloomError(rule, f"it names client {client} twice", "fix it")
            seen.add(client)
    for client in range(population):
        if client not in seen:
            rule = f"{source} must name each of the {population} clients"
            raise FedloomError(rule, f"it leaves client {client} out", "add it to a cluster")

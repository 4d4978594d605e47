"""Clients by who the samples come from: a writer, a speaker, a role, a site."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, seats
from fedloom.data.partitions.rule import Ask, client_count
from fedloom.errors import FedloomError
from fedloom.rng import rng


def sites(ask: Ask) -> tuple[np.ndarray, int]:
    """Every site of the data is one client."""
    names, todo = ask.source.group_names, "leave --clients out"
    if ask.source.groups is None:
        must = "`--partition sites` must have data that comes in sites"
        todo = "give a folder with one .npz a site as --data"
        raise FedloomError(must, f"{ask.source.name} has none", todo)
    if ask.clients not in (None, len(names)):
        must = f"`--partition sites` must have one client a site, {len(names)} in all"
        raise FedloomError(must, f"got {ask.clients}", todo)
    owner = ask.source.groups[ask.indices]
    sizes = np.bincount(owner, minlength=len(names))
    if sizes.min() < ask.min_samples:
        must = f"each site must have at least {ask.min_samples} samples"
        found = f"{names[sizes.argmin()]} has {sizes.min()}"
        raise FedloomError(must, found, "leave this site out or lower min_samples")
    return owner, len(names)


def natural(ask: Ask) -> tuple[np.ndarray, int]:
    """A group is a client; to reach another number, large groups are cut into shards or whole groups are joined."""
    if ask.source.groups is None:
        must, found = "`--partition natural` must have data that says who each sample comes from", "does not"
        raise FedloomError(must, f"{ask.source.name} {found}", "try iid or dirichlet:0.5")
    group = ask.source.groups[ask.indices]
    sizes = np.bincount(group, minlength=len(ask.source.group_names))
    clients = len(sizes) if ask.clients is None else client_count(ask)
    if clients > len(sizes):
        return cut(ask, group, sizes, clients), clients
    if clients < len(sizes):
        return join(ask, sizes, clients)[group], clients
    if sizes.min() < ask.min_samples:
        raise too_small(ask, sizes)
    return group, clients


def too_small(ask: Ask, sizes: np.ndarray) -> FedloomError:
    fits, grouping, least = most_joined(ask, sizes), ask.source.grouping, int(sizes.argmin())
    must = f"each {grouping} must have at least {ask.min_samples} samples to be a client"
    few = int((sizes < ask.min_samples).sum())
    found = f"{few} of {len(sizes)} have fewer ({ask.source.group_names[least]} has {sizes[least]})"
    lower = f"--min-samples {sizes[least]}" if sizes[least] >= 4 else "another partition"
    todo = f"try --clients {fits}, which joins them, or {lower}" if fits else f"try {lower}"
    return FedloomError(must, found, todo)


def most_joined(ask: Ask, sizes: np.ndarray) -> int:
    """The most clients that have enough samples when whole groups are joined; 0: not even one has."""
    fits, fails = 0, len(sizes)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        enough = np.bincount(joined(ask, sizes, middle), weights=sizes).min() >= ask.min_samples
        fits, fails = (middle, fails) if enough else (fits, middle)
    return fits


def join(ask: Ask, sizes: np.ndarray, clients: int) -> np.ndarray:
    owner = joined(ask, sizes, clients)
    if np.bincount(owner, weights=sizes, minlength=clients).min() < ask.min_samples:
        raise too_small(ask, sizes)
    return owner


def joined(ask: Ask, sizes: np.ndarray, clients: int) -> np.ndarray:
    """The client of every group: the largest group first, each to the client that has least so far."""
    draws = rng(ask.seed, "partition", "natural")
    owner = np.empty(len(sizes), np.int64)
    heap = [(0, int(tie), client) for client, tie in enumerate(draws.permutation(clients))]
    heapify(heap)
    for group in np.lexsort((draws.permutation(len(sizes)), -sizes)):
        has, tie, client = heap[0]
        owner[group] = client
        heapreplace(heap, (has + int(sizes[group]), tie, client))
    return owner


def cut(ask: Ask, group: np.ndarray, sizes: np.ndarray, clients: int) -> np.ndarray:
    """Shards of one group each, in the order of groups; the largest groups are cut most often."""
    draws = rng(ask.seed, "partition", "natural")
    count = seats(sizes, clients, draws.permutation(len(sizes)), 1, np.maximum(sizes, 1))
    shards = np.concatenate([equal_sizes(int(size), int(parts)) for size, parts in zip(sizes, count, strict=True)])
    if shards.min() < max(1, ask.min_samples):
        raise too_fine(ask, sizes)
    order = draws.permutation(len(group))
    by_group = order[np.argsort(group[order], kind="stable")]
    owner = np.empty(len(group), np.int64)
    owner[by_group] = np.repeat(np.arange(clients), shards)
    return owner


def too_fine(ask: Ask, sizes: np.ndarray) -> FedloomError:
    least = max(1, ask.min_samples)
    few = int((sizes < least).sum())
    if few:
        found, fits = f"{few} of {len(sizes)} {ask.source.grouping}s have fewer in all", most_joined(ask, sizes)
        return FedloomError(ask.must, found, f"try --clients {fits}, which joins them" if fits else "try iid")
    found = f"they are shards of {len(sizes)} {ask.source.grouping}s, which must not be mixed"
    return FedloomError(ask.must, found, f"try --clients {int((sizes // least).sum())} or fewer")

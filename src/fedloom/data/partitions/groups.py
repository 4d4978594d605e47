"""Partitions by who the samples come from: a writer, a speaker, a role, a site."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from fedloom.data.partitions.margins import equal_sizes, seats
from fedloom.data.partitions.rule import Assignment, PartitionRequest, client_count
from fedloom.errors import FedloomError
from fedloom.rng import rng


def sites(request: PartitionRequest) -> Assignment:
    """Every site of the data is one client."""
    if request.source.groups is None:
        rule = "`--partition sites` must have data that comes in sites"
        advice = "give a folder with one .npz per site as --data"
        raise FedloomError(rule, f"{request.source.name} has none", advice)
    names = request.source.group_names
    if request.clients not in (None, len(names)):
        rule = f"`--partition sites` must have one client per site, {len(names)} in all"
        advice = "leave --clients out, or mix the sites, as --partition dirichlet:0.2 does"
        raise FedloomError(rule, f"got {request.clients}", advice)
    owner = request.source.groups[request.indices]
    sizes = np.bincount(owner, minlength=len(names))
    if sizes.min() < request.min_samples:
        rule = f"each site must have at least {request.min_samples} samples"
        problem = f"{names[sizes.argmin()]} has {sizes.min()}"
        raise FedloomError(rule, problem, "leave this site out or lower min_samples")
    return Assignment(owner, len(names))


def natural(request: PartitionRequest) -> Assignment:
    """Every group is one client.

    If more clients are asked for, large groups are cut into shards; if fewer, whole groups are
    joined.
    """
    if request.source.groups is None:
        rule = "`--partition natural` must have data that says who each sample comes from"
        raise FedloomError(rule, f"{request.source.name} does not", "try iid or dirichlet:0.5")
    group = request.source.groups[request.indices]
    sizes = np.bincount(group, minlength=len(request.source.group_names))
    clients = len(sizes)
    if request.clients is not None:
        clients = client_count(request)
    if clients > len(sizes):
        return Assignment(cut(request, group, sizes, clients), clients)
    if clients < len(sizes):
        return Assignment(join(request, sizes, clients)[group], clients)
    if sizes.min() < request.min_samples:
        raise too_small(request, sizes)
    return Assignment(group, clients)


def too_small(request: PartitionRequest, sizes: np.ndarray) -> FedloomError:
    smallest = int(sizes.argmin())
    grouping = request.source.grouping
    rule = f"each {grouping} must have at least {request.min_samples} samples to be a client"
    short = int((sizes < request.min_samples).sum())
    example = f"{request.source.group_names[smallest]} has {sizes[smallest]}"
    problem = f"{short} of {len(sizes)} have fewer ({example})"
    advice = "another partition"
    if sizes[smallest] >= 4:
        advice = f"--min-samples {sizes[smallest]}"
    fits = most_joined(request, sizes)
    if fits:
        advice = f"--clients {fits}, which joins them, or {advice}"
    return FedloomError(rule, problem, f"try {advice}")


def most_joined(request: PartitionRequest, sizes: np.ndarray) -> int:
    """Returns the largest number of clients that have enough samples if whole groups are joined.

    It is 0 if not even a single client has enough.
    """
    fits = 0
    fails = len(sizes)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        samples = np.bincount(clients_of_groups(request, sizes, middle), weights=sizes)
        if samples.min() >= request.min_samples:
            fits = middle
        else:
            fails = middle
    return fits


def join(request: PartitionRequest, sizes: np.ndarray, clients: int) -> np.ndarray:
    """Joins whole groups, and returns the client of each. Refuses clients with too few samples."""
    owner = clients_of_groups(request, sizes, clients)
    if np.bincount(owner, weights=sizes, minlength=clients).min() < request.min_samples:
        raise too_small(request, sizes)
    return owner


def clients_of_groups(request: PartitionRequest, sizes: np.ndarray, clients: int) -> np.ndarray:
    """Returns the client of each group.

    The largest groups come first, and each goes to the client that has the fewest samples so far.
    """
    draws = rng(request.seed, "partition", "natural")
    owner = np.empty(len(sizes), np.int64)
    heap = [(0, int(tie), client) for client, tie in enumerate(draws.permutation(clients))]
    heapify(heap)
    for group in np.lexsort((draws.permutation(len(sizes)), -sizes)):
        samples, tie, client = heap[0]
        owner[group] = client
        heapreplace(heap, (samples + int(sizes[group]), tie, client))
    return owner


def cut(
    request: PartitionRequest, group: np.ndarray, sizes: np.ndarray, clients: int
) -> np.ndarray:
    """Cuts groups into one shard per client, and returns the client of each sample.

    A shard holds samples of a single group, and the largest groups are cut into the most shards.
    """
    draws = rng(request.seed, "partition", "natural")
    counts = seats(sizes, clients, draws.permutation(len(sizes)), 1, np.maximum(sizes, 1))
    shards_by_group = []
    for size, count in zip(sizes, counts, strict=True):
        shards_by_group.append(equal_sizes(int(size), int(count)))
    shards = np.concatenate(shards_by_group)
    if shards.min() < max(1, request.min_samples):
        raise too_fine(request, sizes)
    order = draws.permutation(len(group))
    by_group = order[np.argsort(group[order], kind="stable")]
    owner = np.empty(len(group), np.int64)
    owner[by_group] = np.repeat(np.arange(clients), shards)
    return owner


def too_fine(request: PartitionRequest, sizes: np.ndarray) -> FedloomError:
    least = max(1, request.min_samples)
    short = int((sizes < least).sum())
    groups = f"{len(sizes)} {request.source.grouping}s"
    if not short:
        problem = f"clients are shards of {groups}, which must not be mixed"
        most = int((sizes // least).sum())
        return FedloomError(request.requirement, problem, f"try --clients {most} or fewer")
    problem = f"{short} of {groups} have fewer samples than that"
    fits = most_joined(request, sizes)
    if not fits:
        return FedloomError(request.requirement, problem, "try iid")
    return FedloomError(request.requirement, problem, f"try --clients {fits}, which joins them")

"""Who is together in a cluster: pure functions, which methods and the server share.

`label_clusters` is FINCH's Algorithm 2: clusters whose labels are as those of the population.
`update_clusters` is the same greedy rule on update vectors, where nobody tells its labels;
`alike_clusters` is the counter-example, like with like. The other rules look at no data.

Distances of labels are compared exactly, by whole numbers: equal clients tie on every machine, and
the lowest id is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedloom import reading
from fedloom.errors import FedloomError

Histogram = Sequence[int]  # samples a label
Histograms = Mapping[int, Histogram]  # by client
Fits = Callable[[Sequence[int]], bool]  # whether a cluster of these members is quick enough

# Two quotients of float64 that differ by less than this share may be equal fractions.
ROUNDING = 2.0**-49
LARGEST_IN_INT64 = 2**62
MOST_TURNS = 20  # of k-medoids: with room for a few only, it may go in circles


@dataclass(frozen=True)
class Cluster:
    members: tuple[int, ...]  # in the order in which they joined
    level: float | None = None  # Eq. 7: the distance to the population; None: nobody told labels
    histogram: tuple[int, ...] | None = None  # the sum of what the server saw


@dataclass(frozen=True)
class ClientFacts:
    """What the server knows of clients when it makes clusters; a rule needs one of these."""

    histograms: Histograms = field(default_factory=dict)
    updates: Mapping[int, np.ndarray] = field(default_factory=dict)
    speeds: Mapping[int, float] = field(default_factory=dict)  # MACs a second
    assigned: Sequence[Sequence[int]] = ()  # the clusters of a file, of the whole population
    # Labels of all clients; by default the sum of `histograms`.
    population: Histogram | None = None


def clusters_by(
    rule: str,
    clients: Sequence[int],
    size: int,
    rng: np.random.Generator,
    facts: ClientFacts,
    fits: Fits | None = None,
) -> list[Cluster]:
    """The clusters of the clients that take part, by a rule of `--clusters`.

    `size` is Q, the most members of a cluster. Where histograms are known, the clusters of every
    rule have their level.
    """
    if rule == "labels":
        told = of_clients(facts.histograms, clients)
        return label_clusters(told, size, rng, fits, population=facts.population)
    if rule == "alike":
        told = of_clients(facts.histograms, clients)
        return alike_clusters(told, size, rng, facts.population)
    if rule == "updates":
        clusters = update_clusters(of_clients(facts.updates, clients), size, rng, fits)
    elif rule == "speed":
        clusters = speed_clusters(of_clients(facts.speeds, clients), size)
    elif rule == "random":
        clusters = random_clusters(clients, size, rng)
    elif rule == "round":
        clusters = round_clusters(clients, ceil(len(clients) / size))
    else:
        clusters = assigned_clusters(facts.assigned, clients)
    return with_levels(clusters, facts.histograms, facts.population)


def of_clients(facts: Mapping[int, Any], clients: Iterable[int]) -> dict[int, Any]:
    """Of those that take part, as far as they told."""
    return {client: facts[client] for client in clients if client in facts}


# Distances


def distance(counts: Histogram, population: Histogram) -> float:
    """Eq. 6: Σ_j |N_q^j / N_q − N^j / N|, from 0 to 2."""
    return float(exact_distance(never_empty(counts), never_empty(population)))


def exact_distance(counts: Histogram, population: Histogram) -> Fraction:
    """The same as a fraction: Σ_j |N_q^j · N − N^j · N_q| / (N_q · N)."""
    own_total = sum(counts)
    total = sum(population)
    difference = 0
    for own_count, count in zip(counts, population, strict=True):
        difference += abs(own_count * total - count * own_total)
    return Fraction(difference, own_total * total)


def never_empty(counts: Histogram) -> tuple[int, ...]:
    """Where noise left nothing, a row says nothing: it counts as one of each label."""
    if not any(counts):
        return (1,) * len(counts)
    return tuple(int(count) for count in counts)


def sum_of(histograms: Iterable[Histogram]) -> tuple[int, ...]:
    rows = [never_empty(histogram) for histogram in histograms]
    return tuple(sum(column) for column in zip(*rows, strict=True))


def with_levels(
    clusters: Sequence[Cluster],
    histograms: Histograms,
    population: Histogram | None = None,
) -> list[Cluster]:
    """The same clusters with what their members told of their labels.

    A cluster in which somebody told nothing stays without.
    """
    if population is None:
        population = sum_of(histograms.values())
    levelled = []
    for cluster in clusters:
        if all(member in histograms for member in cluster.members):
            counts = sum_of(histograms[member] for member in cluster.members)
            cluster = Cluster(cluster.members, distance(counts, population), counts)
        levelled.append(cluster)
    return levelled


# The greedy rule


class Balance(Protocol):
    """What one cluster after the other is filled by.

    It knows the clients that have no cluster yet, and what the cluster that grows has so far.
    """

    def begin(self, client: int) -> None:
        """The next cluster, with this client."""
        ...

    def by_nearness(self) -> Iterator[int]:
        """The clients that are left, first the one that brings the cluster nearest to all.

        They are looked for one by one: mostly the first one joins.
        """
        ...

    def join(self, client: int) -> None:
        """One of those that are left becomes a member."""
        ...


def greedy_groups(
    clients: Iterable[int],
    size: int,
    rng: np.random.Generator,
    balance: Balance,
    fits: Fits | None,
    starts: Sequence[int],
) -> list[tuple[int, ...]]:
    """Algorithm 2. A cluster is full with Q members, its first included.

    A client that would make it slower than H^max allows (`fits`) is no candidate; a cluster without
    candidates is closed. The first member is drawn from those left; `starts` name it for as many
    clusters as there are.
    """
    left = set(clients)
    given = iter(starts)
    groups = []
    while left:
        first = next(given, None)
        if first is None:
            ascending = sorted(left)
            first = ascending[int(rng.integers(len(ascending)))]
        members = [first]
        left.remove(first)
        balance.begin(first)
        while left and len(members) < size:
            nearest = nearest_that_fits(balance, members, fits)
            if nearest is None:
                break
            members.append(nearest)
            left.remove(nearest)
            balance.join(nearest)
        groups.append(tuple(members))
    return groups


def nearest_that_fits(balance: Balance, members: Sequence[int], fits: Fits | None) -> int | None:
    """None: whoever joined would make the cluster too slow.

    One that does not fit now is asked about again: with a member more the cluster may have a
    quicker aggregator.
    """
    for client in balance.by_nearness():
        if fits is None or fits([*members, client]):
            return client
    return None


# By labels


def label_clusters(
    histograms: Histograms,
    size: int,
    rng: np.random.Generator,
    fits: Fits | None = None,
    starts: Sequence[int] = (),
    population: Histogram | None = None,
) -> list[Cluster]:
    """Algorithm 2: the next member brings the cluster's labels nearest to the population's.

    The population is everybody who told, unless it is given.
    """
    check_size(size)
    if not histograms:
        return []
    if population is None:
        population = sum_of(histograms.values())
    balance = LabelBalance(histograms, never_empty(population))
    groups = greedy_groups(histograms, size, rng, balance, fits, starts)
    clusters = [Cluster(group) for group in groups]
    return with_levels(clusters, histograms, population)


class LabelBalance:
    """Eq. 6 for all clients that are left at once, in whole numbers.

    With D_i^j = N_i^j · N − N^j · N_i the distance of a cluster q with client i is
    Σ_j |D_q^j + D_i^j| / ((N_q + N_i) · N), and D_i does not change: a choice is one addition.
    """

    def __init__(self, histograms: Histograms, population: Histogram) -> None:
        ids = sorted(histograms)
        rows = [never_empty(histograms[client]) for client in ids]
        total = sum(population)
        most = max(total, sum(map(sum, rows)))
        kind: Any = np.int64
        if 2 * most * total >= LARGEST_IN_INT64:
            kind = object  # Python's own numbers, which have no end
        counts = np.array(rows, kind)
        # Rows of clients that are left stand together: one that goes leaves its place to the last.
        self.ids = np.array(ids)
        self.places = {client: place for place, client in enumerate(ids)}
        self.totals = counts.sum(axis=1)
        self.deviations = counts * total
        self.deviations -= self.totals[:, None] * np.array(population, kind)
        self.buffer = np.empty_like(self.deviations)
        self.left = len(ids)
        # Of the cluster that grows.
        self.deviation = np.zeros_like(self.deviations[0])
        self.total = 0

    def begin(self, client: int) -> None:
        self.deviation = np.zeros_like(self.deviation)
        self.total = 0
        self.join(client)

    def join(self, client: int) -> None:
        place = self.places.pop(client)
        self.deviation = self.deviation + self.deviations[place]
        self.total += int(self.totals[place])
        last = self.left - 1
        if place != last:
            self.ids[place] = self.ids[last]
            self.totals[place] = self.totals[last]
            self.deviations[place] = self.deviations[last]
            self.places[int(self.ids[place])] = place
        self.left = last

    def by_nearness(self) -> Iterator[int]:
        sums = self.buffer[: self.left]
        np.add(self.deviations[: self.left], self.deviation, out=sums)
        np.abs(sums, out=sums)
        differences = sums.sum(axis=1)
        totals = self.totals[: self.left] + self.total
        ids = self.ids[: self.left]
        while len(ids):
            nearest = nearest_of(differences, totals, ids)
            yield nearest
            others = ids != nearest
            differences = differences[others]
            totals = totals[others]
            ids = ids[others]


def nearest_of(differences: np.ndarray, totals: np.ndarray, ids: np.ndarray) -> int:
    """The id with the least difference/total. Equal fractions are seen as equal: the lowest id."""
    quotients = (differences / totals).astype(np.float64)
    near = np.flatnonzero(quotients <= quotients.min() * (1 + ROUNDING))
    if len(near) == 1 or quotients[near[0]] == 0:  # zeros are equal whatever their totals
        return int(ids[near].min())
    choices = []
    near_totals = totals[near]
    for total in np.unique(near_totals):  # of one total the least difference is the nearest
        same_total = near[near_totals == total]
        least = differences[same_total].min()
        lowest_id = ids[same_total[differences[same_total] == least]].min()
        choices.append((Fraction(int(least), int(total)), int(lowest_id)))
    return min(choices)[1]


# By updates


def update_clusters(
    updates: Mapping[int, np.ndarray],
    size: int,
    rng: np.random.Generator,
    fits: Fits | None = None,
    starts: Sequence[int] = (),
) -> list[Cluster]:
    """The same rule where nobody tells its labels.

    The next member brings the cluster's mean update nearest to the mean of all, which mixes clients
    that differ. (The likest would group like with like.)
    """
    check_size(size)
    if not updates:
        return []
    groups = greedy_groups(updates, size, rng, UpdateBalance(updates), fits, starts)
    return [Cluster(group) for group in groups]


class UpdateBalance:
    """Distances of mean updates, from inner products that are computed once.

    With v_i the update of client i less the mean of all, a cluster q with client i is at
    ‖Σ_q v + v_i‖ / (|q| + 1): the least Σ_{k∈q} 2 v_k·v_i + v_i·v_i is the nearest.
    """

    def __init__(self, updates: Mapping[int, np.ndarray]) -> None:
        self.ids = sorted(updates)
        self.places = {client: place for place, client in enumerate(self.ids)}
        rows = np.stack([np.asarray(updates[client], np.float64).ravel() for client in self.ids])
        rows -= rows.mean(axis=0)
        self.products = rows @ rows.T
        self.taken = np.zeros(len(self.ids), bool)
        self.with_cluster = np.zeros(len(self.ids))  # Σ_{k∈q} v_k·v_i

    def begin(self, client: int) -> None:
        self.with_cluster = np.zeros(len(self.ids))
        self.join(client)

    def join(self, client: int) -> None:
        place = self.places[client]
        self.taken[place] = True
        self.with_cluster = self.with_cluster + self.products[place]

    def by_nearness(self) -> Iterator[int]:
        growth = 2 * self.with_cluster + np.diagonal(self.products)
        for place in np.argsort(growth, kind="stable").tolist():  # the lowest id of equal ones
            if not self.taken[place]:
                yield self.ids[place]


# Like with like


def alike_clusters(
    histograms: Histograms,
    size: int,
    rng: np.random.Generator,
    population: Histogram | None = None,
) -> list[Cluster]:
    """k-medoids on the distance of Eq. 6 between clients: what Algorithm 2 avoids.

    No cluster has more than `size` members: clients go to their nearest medoid that has room, the
    nearest pairs first. Medoids begin far apart.
    """
    check_size(size)
    if not histograms:
        return []
    ids = sorted(histograms)
    counts = np.array([never_empty(histograms[client]) for client in ids], np.float64)
    shares = counts / counts.sum(axis=1, keepdims=True)
    medoids = medoids_apart(shares, ceil(len(ids) / size), int(rng.integers(len(ids))))
    groups: list[list[int]] = []
    for _ in range(MOST_TURNS):
        groups = dealt_to(medoids, shares, size)
        middles = [middle_of(group, shares) for group in groups]
        if middles == medoids:
            break
        medoids = middles
    clusters = []
    for group in groups:
        clusters.append(Cluster(tuple(ids[place] for place in group)))
    return with_levels(clusters, histograms, population)


def medoids_apart(shares: np.ndarray, count: int, first: int) -> list[int]:
    """So many places, each as far as can be from those before it."""
    medoids = [first]
    to_nearest = distances_between(shares, shares[[first]])[:, 0]
    to_nearest[first] = -1.0  # never again
    while len(medoids) < count:
        farthest = int(to_nearest.argmax())
        medoids.append(farthest)
        to_farthest = distances_between(shares, shares[[farthest]])[:, 0]
        to_nearest = np.minimum(to_nearest, to_farthest)
        to_nearest[medoids] = -1.0
    return medoids


def dealt_to(medoids: Sequence[int], shares: np.ndarray, size: int) -> list[list[int]]:
    """Everybody to a medoid: it stands first, the others in the order in which they came."""
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
    """The member with the least distance to the others."""
    places = sorted(group)
    rows = shares[places]
    return places[int(distances_between(rows, rows).sum(axis=1).argmin())]


def distances_between(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Eq. 6 of shares, of every row to each of the others."""
    from scipy.spatial.distance import cdist  # late: few runs need it, and it takes long to import

    distances: np.ndarray = cdist(rows, others, "cityblock")
    return distances


# Without data


def speed_clusters(speeds: Mapping[int, float], size: int) -> list[Cluster]:
    """Devices of one speed together, the fastest first: the slow ones wait for each other alone."""
    check_size(size)
    return in_turn(sorted(speeds, key=lambda client: (-speeds[client], client)), size)


def random_clusters(clients: Sequence[int], size: int, rng: np.random.Generator) -> list[Cluster]:
    check_size(size)
    return in_turn(rng.permutation(sorted(clients)).tolist(), size)


def in_turn(clients: Sequence[int], size: int) -> list[Cluster]:
    """Clusters of as many as fit, in this order; the last one has the rest."""
    clusters = []
    for begin in range(0, len(clients), size):
        clusters.append(Cluster(tuple(clients[begin : begin + size])))
    return clusters


def round_clusters(clients: Sequence[int], groups: int) -> list[Cluster]:
    """Dealt round by id, whoever takes part."""
    members: dict[int, list[int]] = {}
    for client in sorted(clients):
        members.setdefault(client % groups, []).append(client)
    return [Cluster(tuple(members[group])) for group in sorted(members)]


# By a file


def file_clusters(path: Path, population: int) -> list[Cluster]:
    """JSON: lists of client ids, which together are the population."""
    return [Cluster(members) for members in read_clusters(path, population)]


def read_clusters(path: Path, population: int) -> list[tuple[int, ...]]:
    rule = f"{path} must be a JSON list of clusters, each a list of client ids"
    advice = "mend it, e.g. [[0, 3], [1, 2]]"
    try:
        raw = reading.read_json(path)
    except reading.Unreadable as error:
        raise FedloomError(rule, str(error), "mend it, or check --clusters") from None
    if not isinstance(raw, list) or not raw:
        raise FedloomError(rule, "it is no list, or an empty one", advice)
    for number, members in enumerate(raw, start=1):
        if not isinstance(members, list) or not members:
            raise FedloomError(rule, f"cluster {number} is no list, or an empty one", advice)
        if not all(type(client) is int for client in members):
            raise FedloomError(rule, f"cluster {number} has something that is no id", advice)
    clusters = [tuple(members) for members in raw]
    check_assigned(clusters, population, str(path))
    return clusters


def check_assigned(clusters: Sequence[Sequence[int]], population: int, source: str) -> None:
    """Every client is in one cluster, and in one only."""
    seen: set[int] = set()
    for members in clusters:
        for client in members:
            if not 0 <= client < population:
                rule = f"{source} must name clients from 0 to {population - 1}"
                raise FedloomError(rule, f"it names {client}", "mend it")
            if client in seen:
                rule = f"{source} must name every client once"
                raise FedloomError(rule, f"it names client {client} twice", "mend it")
            seen.add(client)
    for client in range(population):
        if client not in seen:
            rule = f"{source} must name each of the {population} clients"
            raise FedloomError(rule, f"it leaves client {client} out", "add it to a cluster")


def assigned_clusters(
    assigned: Sequence[Sequence[int]],
    clients: Iterable[int],
) -> list[Cluster]:
    """The clusters of a file, with those of their members that take part."""
    active = set(clients)
    clusters = []
    for members in assigned:
        present = tuple(client for client in members if client in active)
        if present:
            clusters.append(Cluster(present))
    return clusters


# What was asked for


def check_size(size: int) -> None:
    if size < 1:
        rule = "the size of a cluster (topology.cluster_size) must be at least 1"
        raise FedloomError(rule, f"got {size}", "raise it")


def size_for(groups: int, clients: int) -> int:
    """Q of so many clusters: ⌈clients/groups⌉."""
    if groups > clients:
        raise FedloomError(
            "there must be a client for every cluster",
            f"{groups} clusters were asked for, and {clients} clients take part",
            f"ask for at most {clients}",
        )
    return ceil(clients / groups)


def check_h_max(h_max: float, seconds: Mapping[int, float]) -> None:
    """`seconds`: what a round takes with each client alone. H^max must leave room for that."""
    slowest = min(seconds, key=lambda client: (-seconds[client], client))
    if seconds[slowest] > h_max:
        least = f"{ceil(1000 * seconds[slowest]) / 1000:.10g}"  # never less than what it takes
        raise FedloomError(
            f"topology.h_max must be at least {least} simulated seconds",
            f"client {slowest} alone takes so long, and it is {h_max:g}",
            f"set it to {least} or more",
        )

"""How clients are grouped into clusters: pure functions, which methods and the server share.

`label_clusters` is FINCH's Algorithm 2: the labels of each cluster resemble those of the
population. `update_clusters` applies the same greedy rule to update vectors, for clients that do
not report their labels. `alike_clusters` is the counter-example: it groups similar clients. The
other rules use no data.

Distances between labels are compared exactly, as whole numbers: equal clients tie on every machine,
and the lowest id wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Protocol

import numpy as np

from fedloom.errors import FedloomError
from fedloom.federation.protocol.medoids import medoid_groups

Histogram = Sequence[int]  # samples per label
Histograms = Mapping[int, Histogram]  # by client
Fits = Callable[[Sequence[int]], bool]  # whether a cluster of these members is quick enough

# Two float64 quotients whose relative difference is smaller than this may be equal fractions.
ROUNDING = 2.0**-49
LARGEST_IN_INT64 = 2**62


@dataclass(frozen=True)
class Cluster:
    """A group of clients."""

    members: tuple[int, ...]  # in the order in which they joined
    level: float | None = None  # Eq. 7: the distance to the population; None: labels are unknown
    histogram: tuple[int, ...] | None = None  # the sum of the label counts that the server saw


@dataclass(frozen=True)
class ClientFacts:
    """What the server knows about clients when it forms clusters. A rule needs one of these."""

    histograms: Histograms = field(default_factory=dict)
    updates: Mapping[int, np.ndarray] = field(default_factory=dict)
    speeds: Mapping[int, float] = field(default_factory=dict)  # MACs per second
    assigned: Sequence[Sequence[int]] = ()  # the clusters of a file, over the whole population
    # The label counts of all clients; by default the sum of `histograms`.
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

    `size` is Q, the maximum number of members in a cluster. If histograms are known, clusters have
    their level whatever the rule.
    """
    if rule == "labels":
        histograms = of_clients(facts.histograms, clients)
        return label_clusters(histograms, size, rng, fits, population=facts.population)
    if rule == "alike":
        histograms = of_clients(facts.histograms, clients)
        return alike_clusters(histograms, size, rng, facts.population)
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
    """The facts about these clients, as far as they are known."""
    return {client: facts[client] for client in clients if client in facts}


# Distances


def distance(counts: Histogram, population: Histogram) -> float:
    """Eq. 6: Σ_j |N_q^j / N_q − N^j / N|, from 0 to 2."""
    return float(exact_distance(never_empty(counts), never_empty(population)))


def exact_distance(counts: Histogram, population: Histogram) -> Fraction:
    """Eq. 6 as a fraction: Σ_j |N_q^j · N − N^j · N_q| / (N_q · N)."""
    own_total = sum(counts)
    total = sum(population)
    difference = 0
    for own_count, count in zip(counts, population, strict=True):
        difference += abs(own_count * total - count * own_total)
    return Fraction(difference, own_total * total)


def never_empty(counts: Histogram) -> tuple[int, ...]:
    """The label counts, or one per label if all are 0.

    Noise may reduce all counts of a client to 0, and such a row contains no information.
    """
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
    """The same clusters with the level and the label counts of their members.

    A cluster with a member whose labels are unknown stays without them.
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
    """Ranks the candidates for the cluster that is being filled.

    It keeps track of the clients without a cluster and of the members of the growing cluster.
    """

    def begin(self, client: int) -> None:
        """Begin the next cluster with this client."""
        ...

    def by_nearness(self) -> Iterator[int]:
        """The clients without a cluster, by how near each would bring the cluster to the mean.

        They are found one by one, because usually the first one joins.
        """
        ...

    def join(self, client: int) -> None:
        """Make one of the clients without a cluster a member."""
        ...


def greedy_groups(
    clients: Iterable[int],
    size: int,
    rng: np.random.Generator,
    balance: Balance,
    fits: Fits | None,
    starts: Sequence[int],
) -> list[tuple[int, ...]]:
    """Algorithm 2. A cluster is full when it has Q members, including its first.

    A client that would make the cluster slower than H^max allows (`fits`) is not a candidate, and a
    cluster without candidates is closed. The first member of a cluster is drawn from the clients
    without one. `starts` names the first members of as many clusters as it has entries.
    """
    unassigned = set(clients)
    given_starts = iter(starts)
    groups = []
    while unassigned:
        first = next(given_starts, None)
        if first is None:
            ascending = sorted(unassigned)
            first = ascending[int(rng.integers(len(ascending)))]
        members = [first]
        unassigned.remove(first)
        balance.begin(first)
        while unassigned and len(members) < size:
            nearest = nearest_that_fits(balance, members, fits)
            if nearest is None:
                break
            members.append(nearest)
            unassigned.remove(nearest)
            balance.join(nearest)
        groups.append(tuple(members))
    return groups


def nearest_that_fits(balance: Balance, members: Sequence[int], fits: Fits | None) -> int | None:
    """The nearest client that can join, or None if each would make the cluster too slow.

    A client that does not fit now is considered again later, because with one more member the
    cluster may have a faster aggregator.
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

    By default the population is the sum of these histograms.
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
    """Eq. 6 for all clients without a cluster at once, in whole numbers.

    With D_i^j = N_i^j · N − N^j · N_i the distance of a cluster q with client i is
    Σ_j |D_q^j + D_i^j| / ((N_q + N_i) · N). D_i does not change, so each choice is one addition.
    """

    def __init__(self, histograms: Histograms, population: Histogram) -> None:
        ids = sorted(histograms)
        rows = [never_empty(histograms[client]) for client in ids]
        total = sum(population)
        most = max(total, sum(map(sum, rows)))
        kind: Any = np.int64
        if 2 * most * total >= LARGEST_IN_INT64:
            kind = object  # Python's integers, which have no limit
        counts = np.array(rows, kind)
        # The first `remaining` rows are those of clients without a cluster. When one of these
        # joins, the last of them takes its place.
        self.ids = np.array(ids)
        self.places = {client: place for place, client in enumerate(ids)}
        self.totals = counts.sum(axis=1)
        self.deviations = counts * total
        self.deviations -= self.totals[:, None] * np.array(population, kind)
        self.buffer = np.empty_like(self.deviations)
        self.remaining = len(ids)
        # The sums over the members of the growing cluster.
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
        last = self.remaining - 1
        if place != last:
            self.ids[place] = self.ids[last]
            self.totals[place] = self.totals[last]
            self.deviations[place] = self.deviations[last]
            self.places[int(self.ids[place])] = place
        self.remaining = last

    def by_nearness(self) -> Iterator[int]:
        sums = self.buffer[: self.remaining]
        np.add(self.deviations[: self.remaining], self.deviation, out=sums)
        np.abs(sums, out=sums)
        differences = sums.sum(axis=1)
        totals = self.totals[: self.remaining] + self.total
        ids = self.ids[: self.remaining]
        while len(ids):
            nearest = nearest_of(differences, totals, ids)
            yield nearest
            others = ids != nearest
            differences = differences[others]
            totals = totals[others]
            ids = ids[others]


def nearest_of(differences: np.ndarray, totals: np.ndarray, ids: np.ndarray) -> int:
    """The id with the smallest difference/total; among equal fractions, the lowest id."""
    quotients = (differences / totals).astype(np.float64)
    near = np.flatnonzero(quotients <= quotients.min() * (1 + ROUNDING))
    if len(near) == 1 or quotients[near[0]] == 0:  # all zeros are equal, whatever their totals
        return int(ids[near].min())
    choices = []
    near_totals = totals[near]
    for total in np.unique(near_totals):  # among equal totals the smallest difference is nearest
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
    """The same rule for clients that do not report their labels.

    The next member brings the cluster's mean update nearest to the mean of all updates, which mixes
    different clients. (Choosing the most similar client would group like with like.)
    """
    check_size(size)
    if not updates:
        return []
    groups = greedy_groups(updates, size, rng, UpdateBalance(updates), fits, starts)
    return [Cluster(group) for group in groups]


class UpdateBalance:
    """Distances between mean updates, from inner products that are computed once.

    With v_i the update of client i minus the mean of all updates, the distance of a cluster q with
    client i is ‖Σ_q v + v_i‖ / (|q| + 1). So the client with the smallest
    Σ_{k∈q} 2 v_k·v_i + v_i·v_i is the nearest.
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
        for place in np.argsort(growth, kind="stable").tolist():  # the lowest id among equals
            if not self.taken[place]:
                yield self.ids[place]


# Like with like


def alike_clusters(
    histograms: Histograms,
    size: int,
    rng: np.random.Generator,
    population: Histogram | None = None,
) -> list[Cluster]:
    """k-medoids on the distance of Eq. 6 between clients, which is what Algorithm 2 avoids.

    No cluster has more than `size` members.
    """
    check_size(size)
    if not histograms:
        return []
    ids = sorted(histograms)
    counts = np.array([never_empty(histograms[client]) for client in ids], np.float64)
    shares = counts / counts.sum(axis=1, keepdims=True)
    clusters = []
    for group in medoid_groups(shares, size, int(rng.integers(len(ids)))):
        clusters.append(Cluster(tuple(ids[place] for place in group)))
    return with_levels(clusters, histograms, population)


# Without data


def speed_clusters(speeds: Mapping[int, float], size: int) -> list[Cluster]:
    """Clusters of similarly fast devices, the fastest first.

    So only slow devices wait for slow ones.
    """
    check_size(size)
    return in_turn(sorted(speeds, key=lambda client: (-speeds[client], client)), size)


def random_clusters(clients: Sequence[int], size: int, rng: np.random.Generator) -> list[Cluster]:
    check_size(size)
    return in_turn(rng.permutation(sorted(clients)).tolist(), size)


def in_turn(clients: Sequence[int], size: int) -> list[Cluster]:
    """Clusters of `size` clients each, in this order. The last one may be smaller."""
    clusters = []
    for begin in range(0, len(clients), size):
        clusters.append(Cluster(tuple(clients[begin : begin + size])))
    return clusters


def round_clusters(clients: Sequence[int], groups: int) -> list[Cluster]:
    """Clients dealt to the groups in turn by id, whichever of them take part."""
    members: dict[int, list[int]] = {}
    for client in sorted(clients):
        members.setdefault(client % groups, []).append(client)
    return [Cluster(tuple(members[group])) for group in sorted(members)]


# As a file assigns them


def assigned_clusters(
    assigned: Sequence[Sequence[int]],
    clients: Iterable[int],
) -> list[Cluster]:
    """The clusters of a file, reduced to the members that take part."""
    active = set(clients)
    clusters = []
    for members in assigned:
        present = tuple(client for client in members if client in active)
        if present:
            clusters.append(Cluster(present))
    return clusters


# Checks of options


def check_size(size: int) -> None:
    if size < 1:
        rule = "the size of a cluster (topology.cluster_size) must be at least 1"
        raise FedloomError(rule, f"got {size}", "raise it")


def size_for(groups: int, clients: int) -> int:
    """Q for this number of clusters: ⌈clients/groups⌉."""
    if groups > clients:
        raise FedloomError(
            "there must be a client for every cluster",
            f"{groups} clusters were asked for, and {clients} clients take part",
            f"ask for at most {clients}",
        )
    return ceil(clients / groups)


def check_h_max(h_max: float, seconds: Mapping[int, float]) -> None:
    """Raise an error if H^max is shorter than a round of some client alone.

    `seconds` is how long a round takes with each client alone.
    """
    slowest = min(seconds, key=lambda client: (-seconds[client], client))
    if seconds[slowest] > h_max:
        least = f"{ceil(1000 * seconds[slowest]) / 1000:.10g}"  # rounded up
        raise FedloomError(
            f"topology.h_max must be at least {least} simulated seconds",
            f"client {slowest} alone takes that long, and it is {h_max:g}",
            f"set it to {least} or more",
        )

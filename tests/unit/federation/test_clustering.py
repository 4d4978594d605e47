"""Clusters by hand-computed numbers, and against a plain loop over exact fractions."""

import json
from fractions import Fraction
from itertools import combinations
from random import Random

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.federation.protocol.cluster_files import read_clusters
from fedloom.federation.protocol.clustering import (
    ClientFacts,
    alike_clusters,
    assigned_clusters,
    check_h_max,
    clusters_by,
    distance,
    exact_distance,
    label_clusters,
    random_clusters,
    round_clusters,
    size_for,
    speed_clusters,
    sum_of,
    update_clusters,
    with_levels,
)
from fedloom.rng import rng

SIX = {0: [8, 1, 1], 1: [7, 2, 1], 2: [1, 8, 1], 3: [0, 3, 9], 4: [2, 2, 8], 5: [1, 2, 3]}
POPULATION = [19, 18, 23]


def draws():
    return rng(0, "clusters")


def members_of(clusters):
    return [cluster.members for cluster in clusters]


def levels_of(clusters):
    return [round(cluster.level, 4) for cluster in clusters]


def begun_at(*starts, size=3, histograms=SIX):
    return label_clusters(histograms, size, draws(), starts=starts)


def test_the_first_choice_by_hand():
    first = {}
    for client in range(1, 6):
        counts = [own + other for own, other in zip(SIX[0], SIX[client], strict=True)]
        first[client] = round(distance(counts, POPULATION), 4)
    assert first == {1: 0.8667, 2: 0.5667, 3: 0.2364, 4: 0.3273, 5: 0.4917}


def test_clusters_by_hand():
    clusters = begun_at(0, 1)
    assert members_of(clusters) == [(0, 3, 2), (1, 4, 5)]
    assert levels_of(clusters) == [0.15, 0.1714]
    assert [cluster.histogram for cluster in clusters] == [(9, 12, 11), (10, 6, 12)]

    clusters = begun_at(5, 0)
    assert members_of(clusters) == [(5, 1, 3), (0, 4, 2)]
    assert levels_of(clusters) == [0.1619, 0.1417]

    clusters = begun_at(0, 1, size=4)
    assert members_of(clusters) == [(0, 3, 2, 4), (1, 5)]
    assert levels_of(clusters) == [0.1333, 0.3667]


def test_begun_at_5_the_clusters_are_the_best_of_all_ten_splits():
    splits = {}
    for others in combinations(range(1, 6), 2):
        one = (0, *others)
        other = tuple(client for client in SIX if client not in one)
        levels = []
        for members in (one, other):
            counts = np.sum([SIX[client] for client in members], axis=0).tolist()
            levels.append(distance(counts, POPULATION))
        splits[one] = sum(levels)
    assert len(splits) == 10
    assert min(splits, key=splits.get) == (0, 2, 4)


def test_equal_distances_go_to_the_lowest_id():
    four = {0: [4, 0], 1: [0, 4], 2: [0, 4], 3: [4, 0]}
    assert members_of(begun_at(0, 2, size=2, histograms=four)) == [(0, 1), (2, 3)]
    same = {client: [3, 1, 2] for client in range(7)}
    assert members_of(begun_at(6, 5, size=4, histograms=same)) == [(6, 0, 1, 2), (5, 3, 4)]
    # 1/3 + 1/3 of three thirds: the same fraction by another total.
    other_totals = {4: [1, 0], 7: [7, 0], 1: [0, 7], 0: [3, 3], 2: [9, 9]}
    assert members_of(begun_at(0, 4, 7, size=2, histograms=other_totals))[0] == (0, 2)


def shares_of(rows):
    """The share of every label in all of these counts together."""
    counts = [sum(column) for column in zip(*rows, strict=True)]
    return [Fraction(count, sum(counts)) for count in counts]


def literal(histograms, size, starts):
    """Algorithm 2 as a plain loop over exact fractions."""
    rows = {}
    for client, row in histograms.items():
        rows[client] = row
        if not any(row):
            rows[client] = [1] * len(row)
    population = shares_of(rows.values())

    def level(members):
        shares = shares_of(rows[member] for member in members)
        return sum(abs(one - other) for one, other in zip(shares, population, strict=True))

    remaining = set(histograms)
    clusters = []
    levels = []
    for start in starts:
        if start not in remaining:
            continue
        members = [start]
        remaining.remove(start)
        while remaining and len(members) < size:
            nearest = min(sorted(remaining), key=lambda client: level([*members, client]))
            members.append(nearest)
            remaining.remove(nearest)
        clusters.append(tuple(members))
        levels.append(float(level(members)))
    return clusters, levels


def test_300_random_cases_equal_the_plain_loop():
    random = Random(18)
    ties = 0
    for case in range(300):
        clients = random.randint(1, 12)
        labels = random.randint(1, 6)
        most = random.choice([1, 2, 5, 1000, 10**12])  # small ones tie often, large ones overflow
        ids = random.sample(range(50), clients)
        histograms = {}
        for client in ids:
            histograms[client] = [random.randint(0, most) for _ in range(labels)]
        size = random.randint(1, 5)
        clusters = label_clusters(histograms, size, rng(case, "clusters"))
        starts = [cluster.members[0] for cluster in clusters]
        expected, levels = literal(histograms, size, starts)
        assert members_of(clusters) == expected, case
        assert [cluster.level for cluster in clusters] == pytest.approx(levels, abs=1e-15), case
        ties += len({tuple(row) for row in histograms.values()}) < clients
    assert ties > 30


def test_the_first_member_is_drawn_from_those_left():
    first_members = set()
    for seed in range(30):
        clusters = label_clusters(SIX, 3, rng(seed, "clusters"))
        assert sorted(clusters[0].members + clusters[1].members) == list(SIX)
        first_members.add(clusters[0].members[0])
    assert first_members == set(SIX)
    again = label_clusters(dict(reversed(SIX.items())), 3, rng(3, "clusters"))
    assert again == label_clusters(SIX, 3, rng(3, "clusters"))


def test_whoever_would_exceed_h_max_is_no_candidate():
    """Members take so many seconds together, and 6 are allowed."""
    seconds = {0: 1, 1: 1, 2: 2, 3: 6, 4: 3, 5: 2}
    asked = []

    def fits(members):
        asked.append(tuple(members))
        return sum(seconds[member] for member in members) <= 6

    clusters = label_clusters(SIX, 3, draws(), fits, starts=(0, 1, 3))
    # Begun at 0: 3 is the nearest at .2364 and would take 7 seconds, so 4 at .3273 joins. Then 2 is
    # the nearest, at .1417, and fits with 6 seconds. Begun at 1, 3 is too slow again, and 5 joins.
    assert members_of(clusters) == [(0, 4, 2), (1, 5), (3,)]
    assert asked == [(0, 3), (0, 4), (0, 4, 2), (1, 3), (1, 5), (1, 5, 3)]


def test_one_that_did_not_fit_may_fit_when_the_cluster_has_grown():
    """3 is too slow for 0 alone; with 4, a quicker aggregator, it is not."""

    def fits(members):
        return members in ([0, 4], [0, 4, 3])

    clusters = label_clusters(SIX, 3, draws(), fits, starts=(0,))
    assert members_of(clusters)[0] == (0, 4, 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_nearest_that_fits_as_a_plain_loop_finds_it(seed):
    random = Random(seed)
    histograms = {}
    for client in random.sample(range(40), 9):
        histograms[client] = [random.randint(0, 3) for _ in range(3)]
    population = sum_of(histograms.values())
    seconds = {client: random.randint(1, 4) for client in histograms}

    def fits(members):
        return sum(seconds[member] for member in members) <= 6

    def level(members):
        counts = sum_of(histograms[member] for member in members)
        return exact_distance(counts, population)

    clusters = members_of(label_clusters(histograms, 4, rng(seed, "clusters"), fits))
    remaining = sorted(histograms)
    for members in clusters:
        remaining.remove(members[0])
        expected = [members[0]]
        while len(expected) < 4:
            candidates = [client for client in remaining if fits([*expected, client])]
            if not candidates:
                break
            expected.append(min(candidates, key=lambda client: level([*expected, client])))
            remaining.remove(expected[-1])
        assert members == tuple(expected)
    assert remaining == []


def test_updates_too_are_taken_by_nearness_among_those_that_fit():
    updates = {client: np.array([float(side)]) for client, side in enumerate((1, -1, -1, 1))}

    def fits(members):
        return not {0, 1} <= set(members)

    clusters = update_clusters(updates, 2, draws(), fits, starts=(0, 1))
    assert members_of(clusters) == [(0, 2), (1, 3)]


def test_an_h_max_that_a_client_alone_exceeds_is_refused():
    with pytest.raises(FedloomError, match=r"at least 7.5 .* client 2 alone .* is 7;"):
        check_h_max(7, {0: 3.0, 2: 7.5, 1: 7.0})
    check_h_max(7.5, {0: 3.0, 2: 7.5})


def test_a_population_may_be_larger_than_those_that_take_part():
    two = {0: [4, 0], 1: [0, 4], 2: [4, 0]}
    alone = label_clusters(two, 2, draws(), starts=(0,), population=[100, 0])
    assert alone[0].members == (0, 2) and alone[0].level == 0
    assert label_clusters(two, 2, draws(), starts=(0,), population=[50, 50])[0].members == (0, 1)


def test_a_row_of_zeros_counts_as_one_of_each():
    assert distance([0, 0], [5, 5]) == 0
    clusters = label_clusters({0: [0, 0], 1: [3, 1]}, 2, draws())
    assert clusters[0].histogram == (4, 2)


def test_update_clusters_mix_those_that_differ():
    updates = {
        0: np.array([1.0, 0.0]),
        1: np.array([1.1, 0.0]),
        2: np.array([-1.0, 0.0]),
        3: np.array([-1.1, 0.0]),
    }
    clusters = update_clusters(updates, 2, draws(), starts=(0, 1))
    assert members_of(clusters) == [(0, 2), (1, 3)]
    assert clusters[0].level is None and clusters[0].histogram is None


def test_update_clusters_equal_the_plain_rule():
    for case in range(60):
        random = np.random.default_rng(case)
        updates = {
            int(client): random.normal(size=(2, 3))
            for client in random.choice(40, 9, replace=False)
        }
        mean = np.mean(list(updates.values()), axis=0)
        size = int(random.integers(1, 5))
        clusters = members_of(update_clusters(updates, size, rng(case, "clusters")))
        remaining = set(updates)
        for members in clusters:
            remaining.remove(members[0])
            for number, member in enumerate(members[1:], start=1):
                distances = {}
                for client in remaining:
                    joined = [updates[other] for other in (*members[:number], client)]
                    distances[client] = float(np.linalg.norm(np.mean(joined, axis=0) - mean))
                assert distances[member] == pytest.approx(min(distances.values()), abs=1e-12)
                remaining.remove(member)
        assert not remaining


LIKE_THREE = ([10, 1, 1], [1, 10, 1], [1, 1, 10])


def test_alike_is_the_counter_example():
    histograms = {client: LIKE_THREE[client % 3] for client in range(12)}
    alike = alike_clusters(histograms, 4, draws())
    members = sorted(sorted(cluster.members) for cluster in alike)
    assert members == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    mixed = label_clusters(histograms, 3, draws())
    assert max(cluster.level for cluster in mixed) < min(cluster.level for cluster in alike)


def test_alike_places_every_client_once():
    histograms = {client: LIKE_THREE[client % 3] for client in range(10)}
    uneven = alike_clusters(histograms, 4, draws())
    assert sorted(sum(members_of(uneven), ())) == list(range(10))
    assert max(len(cluster.members) for cluster in uneven) <= 4
    same = alike_clusters({client: [1, 1] for client in range(5)}, 2, draws())
    assert sorted(sum(members_of(same), ())) == list(range(5))


def test_rules_that_look_at_no_data():
    speeds = {0: 1.0, 1: 3.0, 2: 2.0, 3: 3.0, 4: 0.5}
    assert members_of(speed_clusters(speeds, 2)) == [(1, 3), (2, 0), (4,)]
    assert members_of(round_clusters([5, 0, 3, 4], 2)) == [(0, 4), (3, 5)]
    drawn = random_clusters(range(10), 4, draws())
    assert [len(members) for members in members_of(drawn)] == [4, 4, 2]
    assert sorted(sum(members_of(drawn), ())) == list(range(10))
    assert drawn == random_clusters(range(10), 4, draws())
    assert drawn != random_clusters(range(10), 4, rng(1, "clusters"))


@pytest.mark.parametrize(
    "rule", ["labels", "alike", "updates", "speed", "random", "round", "groups.json"]
)
def test_every_rule_deals_those_that_take_part(rule):
    facts = ClientFacts(
        histograms=SIX,
        updates={client: np.array(row, float) for client, row in SIX.items()},
        speeds={client: 1.0 + client for client in SIX},
        assigned=[[5, 4, 3], [0, 2], [1]],
        population=POPULATION,
    )
    clusters = clusters_by(rule, [0, 2, 3, 4, 5], 3, draws(), facts)
    assert sorted(sum(members_of(clusters), ())) == [0, 2, 3, 4, 5]
    assert max(len(cluster.members) for cluster in clusters) <= 3
    for cluster in clusters:
        counts = np.sum([SIX[member] for member in cluster.members], axis=0).tolist()
        assert list(cluster.histogram) == counts
        assert cluster.level == distance(counts, POPULATION)


def test_levels_need_the_labels_of_all_members():
    first, second = with_levels(assigned_clusters([[0, 1], [2, 9]], [0, 1, 2, 9]), SIX)
    assert first.histogram == (15, 3, 2)
    assert second.histogram is None and second.level is None
    assert with_levels(round_clusters([0, 1], 1), {})[0].level is None


def test_a_file_of_clusters(tmp_path):
    path = tmp_path / "clusters.json"
    path.write_text("[[0, 3], [2, 1]]")
    assert read_clusters(path, 4) == [(0, 3), (2, 1)]
    assert members_of(assigned_clusters([(0, 3), (2, 1)], [3, 1])) == [(3,), (1,)]
    assert members_of(assigned_clusters([(0, 3), (2, 1)], [1])) == [(1,)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([[0, 1], [1, 2, 3]], "must name every client once, but it names client 1 twice"),
        ([[0, 1], [3]], "must name each of the 4 clients, but it leaves client 2 out"),
        ([[0, 1], [2, 3, 4]], "must name clients from 0 to 3, but it names 4"),
        ([[0, 1], [2, -3]], "but it names -3"),
        ([[0, 1], [2, True, 3]], "cluster 2 has an entry that is not an id"),
        ([[0, 1], [2, "3"]], "cluster 2 has an entry that is not an id"),
        ([[0, 1, 2, 3], []], "cluster 2 is not a list, or an empty one"),
        ([0, 1, 2, 3], "cluster 1 is not a list"),
        ({"a": [0]}, "it is not a list"),
        ([], "it is not a list, or an empty one"),
    ],
)
def test_a_bad_file_of_clusters_is_named(tmp_path, content, words):
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FedloomError) as raised:
        read_clusters(path, 4)
    assert words in str(raised.value) and str(path) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FedloomError, match=r"but there is none; fix it, or check --clusters"):
        read_clusters(tmp_path / "none.json", 4)


def test_sizes():
    assert [size_for(3, clients) for clients in (3, 7, 9)] == [1, 3, 3]
    with pytest.raises(FedloomError, match="4 clusters were asked for, and 3 clients take part"):
        size_for(4, 3)
    with pytest.raises(FedloomError, match="at least 1, but got 0"):
        label_clusters(SIX, 0, draws())
    assert label_clusters({}, 3, draws()) == [] and update_clusters({}, 3, draws()) == []

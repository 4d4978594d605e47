"""The cap on a client's share of a round's weight, by hand and for any weights."""

from dataclasses import replace
from math import fsum, inf
from random import Random

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.exchange import claimed_weights
from fedloom.federation.server.shares import TOLERANCE, Capped, capped, level
from fedloom.testing import Toy
from fedloom.testing.engines import Shuffled
from fedloom.testing.merging import differing
from fedloom.testing.repeating import interrupted
from fedloom.testing.toy import differences, made_up
from fedloom.types import Reply

COUNTS = st.one_of(st.integers(0, 1 << 40).map(float), st.floats(0, 1e9, allow_subnormal=False))


# By hand


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ([10.0, 10.0, 80.0], 0.5, [10.0, 10.0, 20.0]),  # 20 of 40
        ([10.0, 10.0, 80.0], 0.8, [10.0, 10.0, 80.0]),  # just so much
        ([10.0, 10.0, 80.0], 1.0, [10.0, 10.0, 80.0]),
        ([10.0, 10.0, 80.0], 0.1, [10.0, 10.0, 10.0]),  # never below 1/3
        ([1.0, 30.0, 90.0, 9.0], 0.375, [1.0, 15.0, 15.0, 9.0]),  # two at 15 of 40
        ([7.0], 0.1, [7.0]),
        ([7.0, 0.0], 0.1, [7.0, 0.0]),  # who weighs nothing is not counted
        ([0.0, 0.0], 0.5, [0.0, 0.0]),
        ([5.0, 5.0, 5.0], 1 / 3, [5.0, 5.0, 5.0]),
        ([2.0**40, 1.0, 1.0, 1.0], 0.4, [2.0, 1.0, 1.0, 1.0]),
    ],
    ids=str,
)
def test_by_hand(weights, share, expected):
    capping = capped(dict(enumerate(weights)), share)
    new = [capping.weights.get(client, weight) for client, weight in enumerate(weights)]
    assert new == pytest.approx(expected, rel=1e-12)
    total = sum(weights)
    lowered = [client for client in range(len(weights)) if new[client] < weights[client]]
    assert capping.shares == {client: pytest.approx(weights[client] / total) for client in lowered}


def test_nobody_is_capped_without_weights():
    assert capped({}, 0.5) == Capped() and level([], 0.5) == inf


def test_one_that_is_on_the_cap_keeps_its_weight_to_the_bit():
    """An equal share of three is 10 of 30; computed, it is the last bit less."""
    capping = capped({0: 100.0, 1: 100.0, 2: 10.0}, 0.1)
    assert set(capping.weights) == set(capping.shares) == {0, 1}


def test_each_key_is_capped_over_those_that_weigh_it():
    claimed = {0: {"a": 90.0, "b": 5.0}, 1: {"a": 10.0, "b": 5.0}, 2: {"a": 0.0, "c": 8.0}}
    capping = capped(claimed, 0.5)
    assert capping.weights == {0: {"a": 10.0, "b": 5.0}} and capping.shares == {0: 0.9}


def test_the_largest_of_several_shares_is_told():
    capping = capped({0: {"a": 3.0, "b": 9.0}, 1: {"a": 1.0, "b": 1.0}}, 0.5)
    assert capping == Capped({0: {"a": 1.0, "b": 1.0}}, {0: 0.9})


def test_a_single_weight_among_weights_by_key_is_that_of_every_tensor():
    replies = [Reply(0, {"a": 1, "b": 1}, 9.0), Reply(1, {"a": 1, "b": 1}, {"a": 1.0})]
    assert claimed_weights(replies) == {0: {"a": 9.0, "b": 9.0}, 1: {"a": 1.0}}
    assert claimed_weights(replies[:1]) == {0: 9.0}
    assert capped(claimed_weights(replies), 0.5).weights == {0: {"a": 1.0, "b": 9.0}}


# For any weights


@settings(deadline=None, max_examples=400)
@given(st.lists(COUNTS, min_size=1, max_size=12), st.floats(0.01, 1.0), st.randoms())
@example([100.0, 100.0, 10.0], 0.1, Random(0))
@example([7.0, 3.0, 3.0, 3.0, 3.0, 3.0], 0.1, Random(0))
def test_for_any_weights(weights, share, random):
    claimed = dict(enumerate(weights))
    capping = capped(claimed, share)
    new = []
    uncapped = []
    for client, weight in claimed.items():
        new.append(capping.weights.get(client, weight))
        if client not in capping.weights:
            uncapped.append(weight)
    total = fsum(new)
    most = 1.0
    if any(weights):
        most = max(share, 1 / sum(weight > 0 for weight in weights))
    for before, after in zip(weights, new, strict=True):
        assert after <= most * total * (1 + 1e-9)
        assert 0 <= after <= before
        assert (after > 0) == (before > 0)
    for client in capping.weights:
        assert claimed[client] > most * total * (1 + TOLERANCE / 2), "it has no more than its share"
        assert new[client] < claimed[client]
    assert set(capping.shares) == set(capping.weights)
    assert len(set(capping.weights.values())) <= 1, "all that are capped weigh the same"
    assert all(
        weight <= min(capping.weights.values(), default=inf) * (1 + 1e-9) for weight in uncapped
    )
    items = list(claimed.items())
    random.shuffle(items)
    assert capped(dict(items), share) == capping


# In a run

ONE_LARGE = (20, 5, 6, 7)


@pytest.fixture
def toy():
    return replace(
        Toy.of("fedavg", rounds=3), data=made_up(ONE_LARGE), participation=1.0, max_weight_share=0.4
    )


def test_a_run_names_who_was_capped(toy, tmp_path):
    trace = toy.run(tmp_path / "capped")
    assert [row.capped for row in trace.rows] == [{0: round(20 / 38, 6)}] * 3
    free = replace(toy, max_weight_share=None).run(tmp_path / "free")
    assert differing(free.outcome.state, trace.outcome.state) and not any(
        row.capped for row in free.rows
    )
    wide = replace(toy, max_weight_share=0.6).run(tmp_path / "wide")
    assert differences(free, wide) == []


def test_a_capped_client_weighs_as_if_it_had_fewer_samples(toy, tmp_path):
    """0.4 of the new total: 12 beside 5, 6 and 7. The method sees nothing but the new weight."""
    weights = []

    def watch(method):
        class Watched(type(method)):
            def merge(self, state, orders, replies, r):
                weights.append([reply.weight for reply in replies])
                return super().merge(state, orders, replies, r)

        return Watched(method.options)

    toy.run(tmp_path, server=watch)
    assert weights == [[pytest.approx(12.0), 5.0, 6.0, 7.0]] * 3


def test_the_order_of_replies_changes_nothing(toy, tmp_path):
    one = toy.run(tmp_path / "one")
    other = toy.run(tmp_path / "other", engine=Shuffled)
    assert differences(one, other) == []


@pytest.mark.parametrize("moment", ["round", "reply", "work"])
def test_a_resume_changes_nothing(toy, tmp_path, moment):
    again, stops = interrupted(toy, tmp_path / "stopped", {moment})
    assert stops >= 2 and differences(toy.run(tmp_path / "whole"), again) == []


def test_weights_by_key_in_a_run(tmp_path):
    """FedMN weighs every module by itself."""
    toy = replace(
        Toy.of("fedmn", rounds=3), data=made_up(ONE_LARGE), participation=1.0, max_weight_share=0.4
    )
    one = toy.run(tmp_path / "one")
    assert all(0 in row.capped for row in one.rows)
    assert differences(one, toy.run(tmp_path / "other", engine=Shuffled)) == []


def test_clusters_of_one_hop_end_where_a_flat_round_does(toy, tmp_path):
    """The cap is on the whole hop, so that it does not matter who is alone in a cluster."""
    flat = replace(toy, rounds=1).run(tmp_path / "flat")
    clustered = replace(toy, rounds=1, topology=Clustered(groups=3)).run(tmp_path / "clustered")
    assert clustered.rows[0].capped == flat.rows[0].capped
    for name, tensor in flat.outcome.state.tensors.items():
        torch.testing.assert_close(clustered.outcome.state.tensors[name], tensor)

import json
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.rng import key, rng
from fedloom.types import Arch, Order, Reply, Round, State, Task


def a_round(number=1, spent=0.0, budget=10.0, clients=range(10), participation=1.0, seed=0, **more):
    return Round(number, spent, budget, clients, participation, seed, **more)


# Architectures


def test_an_architecture_returns_from_json():
    arch = Arch("cells:s1", ((0,), (1, 2), ()))
    assert json.loads(arch.to_json()) == {"space": "cells:s1", "choice": [[0], [1, 2], []]}
    assert Arch.from_json(arch.to_json()) == arch


@settings(max_examples=50)
@given(
    st.text(max_size=5),
    st.lists(st.lists(st.integers(0, 99), max_size=3).map(tuple), max_size=5).map(tuple),
)
def test_any_architecture_returns_from_json(space, choice):
    assert Arch.from_json(Arch(space, choice).to_json()) == Arch(space, choice)


def test_equal_architectures_are_one_key():
    seen = {Arch("s", ((1,), (2,))): "a"}
    assert seen[Arch.from_json('{"space": "s", "choice": [[1], [2]]}')] == "a"
    assert Arch("s", ((2,), (1,))) not in seen and Arch("t", ((1,), (2,))) not in seen


# Values


@pytest.mark.parametrize("value", [Arch("s", ()), State(), Order(1, "train"), Reply(1), a_round()])
def test_values_are_frozen(value):
    with pytest.raises(FrozenInstanceError):
        value.client = 2


def test_defaults_are_not_shared():
    assert State().tensors is not State().tensors and Order(1, "a").meta is not Order(1, "a").meta


def test_a_task_can_be_compared():
    task = Task("m", {"lr": 0.1}, "image", (1,), ("a",), 0, (0.0,), (1.0,))
    assert task == Task("m", {"lr": 0.1}, "image", (1,), ("a",), 0, (0.0,), (1.0,))


# Progress


@pytest.mark.parametrize(
    ("spent", "budget", "progress"),
    [
        (0, 10, 0.0),
        (2.5, 10, 0.25),
        (10, 10, 1.0),
        (11, 10, 1.0),
        (0, 0, 1.0),
        (3, 0, 1.0),
        (0, -5, 1.0),
    ],
)
def test_progress(spent, budget, progress):
    assert a_round(spent=spent, budget=budget).progress == progress


# Draws


def test_the_draws_of_a_round_are_named_by_seed_round_and_purpose():
    """An operation that draws more, or a further purpose, changes no other draws."""
    r = a_round(3, seed=5)
    assert r.rng("cohort").random(4).tolist() == rng(5, 3, "cohort").random(4).tolist()
    assert r.key("cohort") == key(5, 3, "cohort")
    others = [
        a_round(4, seed=5).rng("cohort"),
        a_round(3, seed=6).rng("cohort"),
        r.rng("edges"),
        r.rng("cohort"),
    ]
    assert len({generator.random() for generator in others}) == 4


# Cohorts


@pytest.mark.parametrize(
    ("share", "size"), [(1.0, 10), (0.5, 5), (0.31, 3), (0.01, 1), (0.0, 1), (0.99, 10), (2.0, 10)]
)
def test_the_size_of_a_cohort(share, size):
    cohort = a_round(participation=share).cohort()
    assert len(cohort) == size == len(set(cohort)) and set(cohort) <= set(range(10))


def test_everybody_is_everybody_whatever_the_seed():
    assert a_round(clients=[3, 1, 2]).cohort() == (1, 2, 3)


def test_a_cohort_is_sorted_and_plain():
    cohort = a_round(participation=0.7).cohort()
    assert cohort == tuple(sorted(cohort)) and {type(client) for client in cohort} == {int}


def test_a_cohort_is_drawn_by_seed_and_round():
    assert a_round(participation=0.5).cohort() == a_round(participation=0.5).cohort()
    assert len({a_round(number, participation=0.5).cohort() for number in range(20)}) > 10
    assert len({a_round(seed=seed, participation=0.5).cohort() for seed in range(20)}) > 10


def test_the_pool_and_share_of_a_method_go_before_the_runs():
    r = a_round(participation=0.1)
    assert r.cohort(share=1.0) == tuple(range(10))
    assert r.cohort(pool=[7, 5], share=1.0) == (5, 7)
    assert len(r.cohort(pool=range(100, 200))) == 10 and min(r.cohort(pool=range(100, 200))) >= 100


def test_nobody_in_the_pool_nobody_in_the_cohort():
    assert a_round().cohort(pool=[]) == ()


def test_a_cohort_of_those_who_are_there():
    """As many as for all clients, if so many are available."""
    there = {1, 4, 5, 7}
    for number in range(20):
        cohort = a_round(number, participation=0.3, present=there).cohort()
        assert len(cohort) == 3 and set(cohort) <= there
    assert a_round(present=there).cohort() == (1, 4, 5, 7)
    r = a_round(present=there)
    assert r.cohort(pool=[0, 2]) == () and [draw.clients for draw in r.draws] == [()]


def test_more_are_drawn_than_a_round_waits_for():
    r = a_round(participation=0.3, overselect=1.3)
    assert len(r.cohort()) == 4 and r.draws[0].wanted == 3
    r = a_round(overselect=1.3)
    assert len(r.cohort()) == 10 == r.draws[0].wanted
    r = a_round(participation=1.0, overselect=1.1)
    assert len(r.cohort(pool=range(100), share=0.1)) == 11  # not 12, however 10 · 1.1 is rounded
    r = a_round(participation=0.5, overselect=1.5, present={2, 3, 6})
    assert r.cohort() == (2, 3, 6) and r.draws[0].wanted == 3


def test_every_client_has_its_turn_equally():
    turns = Counter()
    for number in range(2000):
        turns.update(a_round(number, participation=0.3).cohort())
    assert all(500 < turns[client] < 700 for client in range(10))


@settings(max_examples=50)
@given(
    st.sets(st.integers(0, 10**6), min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 2**31)
)
def test_any_cohort_is_a_sorted_part_of_its_pool(pool, share, seed):
    pool = list(pool)
    cohort = a_round(seed=seed).cohort(pool, share)
    assert list(cohort) == sorted(set(cohort) & set(pool)) and len(cohort) == max(
        1, round(share * len(pool))
    )

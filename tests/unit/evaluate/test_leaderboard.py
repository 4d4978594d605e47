"""The leaderboard: ranking by validation, intervals by hand, limits, each client's own winner."""

import numpy as np
import pytest

import result_files
from fedloom.evaluate.leaderboard import (
    Contestant,
    Limits,
    client_fits_limits,
    leaderboard,
    winner_of_client,
)
from fedloom.learning.judging import is_decisive
from fedloom.records.result import RunResult


def contestant(name, validation, figures, *, macs=100, params=10, **more):
    clients = [
        result_files.client(k, figure, macs=macs, params=params) for k, figure in enumerate(figures)
    ]
    return Contestant(
        name, RunResult.from_json(result_files.result(clients, validation=validation, **more))
    )


def answers(text):
    """`1010`: which samples are right."""
    return np.array([sign == "1" for sign in text])


def test_from_best_to_last_by_validation_whatever_test_says():
    rows = leaderboard(
        [
            contestant("control", 0.6, [0.9, 0.9]),
            contestant("a", 0.7, [0.1, 0.2]),
            contestant("b", 0.65, [1.0, 1.0]),
        ],
        "control",
        Limits(),
    )
    assert [row.name for row in rows] == ["a", "b", "control"]
    assert [row.chosen for row in rows] == [True, False, False]
    assert "fits" not in rows[0].to_json()


def test_a_contestant_that_nobody_judged_is_the_last():
    rows = leaderboard(
        [contestant("control", None, [0.9]), contestant("a", 0.1, [0.1])], "control", Limits()
    )
    assert [row.name for row in rows] == ["a", "control"]


def test_lower_perplexity_is_better():
    figures = {"mean": 4.0, "std": 0.0, "worst": 4.0, "pooled": 4.0}

    def text(name, validation):
        client = {**result_files.client(0, 0.5), "perplexity": 4.0}
        result = result_files.result(
            [client],
            metric="perplexity",
            lower_is_better=True,
            perplexity=figures,
            validation=validation,
        )
        return Contestant(name, RunResult.from_json(result))

    rows = leaderboard([text("control", 5.0), text("a", 4.0)], "control", Limits())
    assert [row.name for row in rows] == ["a", "control"]


def test_figures_and_intervals_by_hand():
    """Clients 0.2, 0.4, 0.6: mean 0.4; half an interval is t(0.975; 2) · 0.2 / √3, cut off at 0."""
    rows = leaderboard(
        [contestant("control", 0.5, [0.1, 0.2, 0.6]), contestant("a", 0.6, [0.2, 0.4, 0.6])],
        "control",
        Limits(),
    )
    best = rows[0].to_json()
    half = 4.302652729749464 * 0.2 / 3**0.5
    assert best["test"]["mean"] == pytest.approx(0.4)
    assert best["test"]["worst"] == 0.2
    assert best["test"]["interval"] == pytest.approx([0.0, 0.4 + half])
    half = 4.302652729749464 * 0.1 / 3**0.5  # of the differences 0.1, 0.2, 0
    assert best["to_control"]["mean"] == pytest.approx(0.1)
    assert best["to_control"]["interval"] == pytest.approx([0.1 - half, 0.1 + half])
    assert (best["params"], best["macs"], best["training_macs"], best["bytes"]) == (
        10,
        100,
        15_000,
        5700,
    )
    assert rows[1].to_control is None


def test_one_client_has_no_interval():
    (row, _) = leaderboard(
        [contestant("control", 0.5, [0.5]), contestant("a", 0.6, [0.5])], "control", Limits()
    )
    assert row.test.interval is None and row.to_control.interval is None


def test_who_exceeds_a_limit_is_ranked_but_not_chosen():
    contestants = [
        contestant("control", 0.9, [0.5], macs=100),
        contestant("a", 0.6, [0.5], macs=50),
    ]
    rows = leaderboard(contestants, "control", Limits({"macs": 60}))
    assert [(row.name, row.fits, row.chosen) for row in rows] == [
        ("control", False, False),
        ("a", True, True),
    ]
    assert not any(row.chosen for row in leaderboard(contestants, "control", Limits({"params": 9})))


def test_an_interval_of_a_difference_stays_within_what_it_can_be():
    """Differences of 0 and 1 between two clients: Student's t would say ±6.35 around 0.5."""
    contestants = [contestant("control", 0.5, [0.0, 0.0]), contestant("a", 0.6, [0.0, 1.0])]
    rows = leaderboard(contestants, "control", Limits())
    assert rows[0].to_control.mean == 0.5
    assert rows[0].to_control.interval == [-1.0, 1.0]


def test_limits_of_device_tiers_are_a_clients_own():
    small_devices = Limits(by_client={0: {"params": 5}})
    control = contestant("control", 0.9, [0.5, 0.5], params=10)
    first, second = control.result.clients
    assert not client_fits_limits(first, control.result, small_devices)
    assert client_fits_limits(second, control.result, small_devices)
    rows = leaderboard(
        [control, contestant("a", 0.6, [0.5, 0.5], params=5)], "control", small_devices
    )
    assert [(row.name, row.fits, row.chosen) for row in rows] == [
        ("control", False, False),
        ("a", True, True),
    ]


def test_a_limit_in_a_unit_that_nobody_measured_is_not_kept():
    control = contestant("control", 0.9, [0.5])
    (client,) = control.result.clients
    assert not client_fits_limits(client, control.result, Limits(by_client={0: {"latency_ms": 5}}))


@pytest.mark.parametrize(
    ("up", "down", "decisive"),
    [
        (0, 0, False),
        (1, 0, False),
        (2, 0, True),
        (3, 1, False),
        (6, 2, True),
        (10, 6, False),
        (11, 6, True),
    ],
)
def test_decisive_is_more_than_the_root_of_both(up, down, decisive):
    assert is_decisive(up, down) is decisive
    assert not is_decisive(down, up)


def test_a_client_uses_another_model_only_where_that_is_decisive():
    right = {"common": {0: answers("110000"), 1: answers("110000")},
             "near": {0: answers("011000"), 1: answers("111000")},
             "ahead": {0: answers("110011"), 1: answers("100000")},
             "far": {0: answers("111111"), 1: answers("000000")}}  # fmt: skip
    winner = winner_of_client(0, "common", right)
    assert (winner.chosen, winner.only_chosen, winner.only_common, winner.samples) == (
        "far",
        4,
        0,
        6,
    )
    winner = winner_of_client(1, "common", right)
    assert (winner.chosen, winner.only_chosen, winner.only_common) == ("common", 0, 0)

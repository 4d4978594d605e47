"""What a client says of its labels: counts, noise that only its site can repeat, and its check."""

from itertools import islice
from math import exp, sqrt

import numpy as np
import pytest

from fedloom.config.histograms import HistogramRule
from fedloom.federation.protocol.histograms import (
    discrete_laplace,
    histogram_of,
    refuse_histogram,
    simulated_secret,
    stream_of,
)

LABELS = np.array([0] * 40 + [2] * 7 + [3] * 300)
SECRET = bytes(range(32))
NOISY = HistogramRule.parse("laplace:1")


def told(rule=NOISY, names="abcd", secret=SECRET, labels=LABELS):
    return histogram_of(labels, names, rule, secret)


def test_draws_are_of_the_discrete_laplace_distribution():
    for epsilon in (1.0, 0.25, 3.0):
        uniform = stream_of(SECRET, epsilon, "a", 1)
        draws = np.array(list(islice(discrete_laplace(epsilon, uniform), 100_000)))
        share = exp(-epsilon)
        none = (1 - share) / (1 + share)
        std = sqrt(2 * share) / (1 - share)
        for value in range(-3, 4):
            expected = none * share ** abs(value)
            error = 4 * sqrt(expected * (1 - expected) / len(draws))
            assert abs((draws == value).mean() - expected) < error, (epsilon, value)
        assert draws.std() == pytest.approx(std, rel=0.02)
        assert abs(draws.mean()) < 4 * std / sqrt(len(draws))
        if epsilon == 1.0:
            assert (none, std) == (pytest.approx(0.4621, abs=5e-5), pytest.approx(1.357, abs=5e-4))


def test_the_same_secret_and_data_say_the_same():
    assert told() == told()
    shuffled = np.random.default_rng(0).permutation(LABELS)
    assert told(labels=shuffled) == told()  # the counts are the same


def test_every_part_of_the_key_is_another_draw():
    """Differences from the counts, over many labels: equal noise would show."""
    labels = np.repeat(np.arange(60), 100)
    names = [f"label {number}" for number in range(60)]

    def noise(labels=labels, rule="laplace:1", names=names, secret=SECRET):
        counts = np.bincount(labels, minlength=60)
        row = histogram_of(labels, names, HistogramRule.parse(rule), secret)
        return (np.array(row) - counts).tolist()

    usual = noise()
    assert usual == noise(rule="laplace:1.0") and any(usual)
    others = [
        noise(names=[name.upper() for name in names]),
        noise(secret=bytes(32)),
        noise(rule="laplace:1.0000001"),  # one draw, scaled, would let the server solve for counts
        noise(labels=np.repeat(np.arange(60), 101)),
    ]
    for other in others:
        assert other != usual
        assert np.mean(np.array(other) == np.array(usual)) < 0.6
    twice = noise(rule="laplace:2")
    assert np.mean(np.round(np.array(usual) / 2) == np.array(twice)) < 0.9


def test_a_label_has_the_same_noise_beside_whatever_others():
    """A server that pads or reorders the list of labels gets no second draw."""
    usual = dict(zip("abcd", told(), strict=True))
    backwards = 3 - LABELS
    assert dict(zip("dcba", told(names="dcba", labels=backwards), strict=True)) == usual
    for padding in range(20):
        names = ["a", "b", "c", "d", *(f"none {padding} {number}" for number in range(padding))]
        assert told(names=names)[:4] == list(usual.values())
    fewer = LABELS[LABELS != 0]
    assert told(labels=fewer)[1:] == told()[1:]


def test_counts_are_never_below_zero():
    rule = HistogramRule.parse("laplace:0.05")
    row = histogram_of(np.array([0]), list(map(str, range(200))), rule, SECRET)
    assert min(row) == 0 and max(row) > 0 and all(type(count) is int for count in row)
    assert 0.35 < np.mean(np.array(row) == 0) < 0.65  # what noise made negative


def test_exact_counts():
    exact = HistogramRule.parse("exact")
    assert told(exact) == [40, 0, 7, 300]
    assert histogram_of(np.array([], int), "abc", exact, SECRET) == [0, 0, 0]


def test_the_secret_of_a_simulation_comes_from_its_seed():
    assert simulated_secret(5, 0) == simulated_secret(5, 0)
    others = {simulated_secret(5, 0), simulated_secret(6, 0), simulated_secret(5, 1)}
    assert len(others) == 3
    assert len(simulated_secret(5, 0)) == 32


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1, 2, 3], None),
        ([0, 0, 0], None),
        ([1, 2], "one count for each of the 3 labels"),
        ([1, 2, 3, 4], "one count for each of the 3 labels"),
        (None, "one count for each of the 3 labels"),
        ("123", "one count for each of the 3 labels"),
        ({"0": 1, "1": 2, "2": 3}, "one count for each of the 3 labels"),
        ([1, -1, 3], "a whole number, not below 0"),
        ([1, 2.0, 3], "a whole number, not below 0"),
        ([1, float("inf"), 3], "a whole number, not below 0"),
        ([1, float("nan"), 3], "a whole number, not below 0"),
        ([1, True, 3], "a whole number, not below 0"),
        ([1, "2", 3], "a whole number, not below 0"),
        ([1, None, 3], "a whole number, not below 0"),
        ([1, 1 << 41, 3], "a whole number, not below 0"),
    ],
)
def test_what_is_refused(row, reason):
    problem = refuse_histogram(row, NOISY, 3)
    assert (problem is None) == (reason is None) and (reason or "") in (problem or "")


def test_nobody_tells_what_was_not_asked():
    assert refuse_histogram([1, 2, 3], None, 3) == "its histogram: the run did not ask for it"
    assert refuse_histogram(None, None, 3) is None
    assert refuse_histogram(None, HistogramRule.parse("none"), 3) is None

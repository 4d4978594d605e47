import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.evaluate.summary import spread, summarise
from fedloom.metrics.classification import classify
from fedloom.metrics.figures import Figures
from fedloom.metrics.metric import ACCURACY, PERPLEXITY
from fedloom.records.result import Spread


def measured(metric, value, samples, correct=0):
    return Figures(metric.name, samples, correct, value, interval=None, beside={})


def test_three_clients_by_hand():
    assert spread([0.5, 1.0, 0.0]).to_json() == {
        "mean": 0.5,
        "std": pytest.approx((1 / 6) ** 0.5),  # ddof 0
        "worst": 0.0,
        "worst10": 0.0,
    }


def test_the_largest_is_worst_when_lower_is_better():
    assert spread([2.0, 4.0], lower_is_better=True) == Spread(
        mean=3.0, std=1.0, worst=4.0, worst10=4.0
    )


@pytest.mark.parametrize(
    ("clients", "expected"), [(1, 0.0), (9, 0.0), (19, 0.0), (20, 0.5), (39, 1.0)]
)
def test_the_worst_tenth_is_rounded_down_but_never_empty(clients, expected):
    assert spread(range(clients)).worst10 == expected


def test_the_worst_tenth_when_lower_is_better():
    assert spread(range(20), lower_is_better=True).worst10 == 18.5


def test_clients_without_a_figure_are_left_out():
    assert spread([None, 0.25, None, 0.75]) == spread([0.25, 0.75])
    assert spread([None, 0.0]).mean == 0.0  # 0 is a figure


@pytest.mark.parametrize("values", [[], [None, None]])
def test_nobody_has_a_figure(values):
    assert spread(values).to_json() == dict.fromkeys(["mean", "std", "worst", "worst10"])


def test_pooled_weighs_samples_and_the_mean_weighs_clients():
    rows = [
        measured(ACCURACY, 1.0, samples=1, correct=1),
        measured(ACCURACY, 0.0, samples=3),
        classify(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 2),
    ]
    assert summarise(rows, ACCURACY) == Spread(
        mean=0.5, std=0.5, worst=0.0, worst10=0.0, pooled=0.25
    )


def test_where_lower_is_better_the_highest_is_the_worst_and_losses_are_pooled():
    """2 at three samples and 16 at one: e to the mean of ln 2, ln 2, ln 2 and ln 16 is 2^(7/4)."""
    figures = [(2.0, 3), (16.0, 1), (None, 0)]
    rows = [measured(PERPLEXITY, value, samples) for value, samples in figures]
    summary = summarise(rows, PERPLEXITY)
    assert (summary.mean, summary.worst, summary.worst10) == (9.0, 16.0, 16.0)
    assert summary.pooled == pytest.approx(2**1.75)


def test_summary_of_classified_clients():
    right = classify(np.eye(2), np.array([0, 1]), 2)
    wrong = classify(np.eye(2), np.array([1, 0]), 2)
    assert summarise([right, right, wrong], ACCURACY).pooled == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric", [ACCURACY, PERPLEXITY])
@pytest.mark.parametrize("clients", [0, 1, 2])
def test_no_samples_no_figures(clients, metric):
    rows = [measured(metric, None, samples=0)] * clients
    assert summarise(rows, metric).to_json() == dict.fromkeys(
        ["mean", "std", "worst", "worst10", "pooled"]
    )


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.randoms())
def test_against_numpy_in_any_order(values, random):
    result = spread(values)
    assert (result.mean, result.std) == pytest.approx((np.mean(values), np.std(values)), abs=1e-12)
    assert result.worst == min(values)
    random.shuffle(values)
    assert spread(values) == result


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(1, 40))
def test_equal_clients_do_not_spread(value, clients):
    assert spread([value] * clients) == Spread(mean=value, std=0.0, worst=value, worst10=value)

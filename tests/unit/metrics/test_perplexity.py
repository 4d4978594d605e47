import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedloom.metrics import perplexity
from fedloom.metrics.perplexity import CAP, WORST, pooled


def measure(scores, truth, classes):
    """The figures by their names, as a reply has them."""
    return perplexity.measure_perplexity(scores, truth, classes).to_json()


def test_by_hand():
    """True symbols of probability 1/2 and 1/8: a mean loss of 2 ln 2, so perplexity 4.

    Only the first of them is also the likeliest symbol.
    """
    scores = np.log([[1 / 2, 1 / 4, 1 / 4], [1 / 8, 3 / 4, 1 / 8]])
    figures = measure(scores, np.array([0, 2]), 3)
    assert figures["perplexity"] == pytest.approx(4.0)
    assert (figures["samples"], figures["correct"], figures["accuracy"]) == (2, 1, 0.5)
    half = 1.959963984540054 * math.log(4) / 2  # losses ln 2 and ln 8: std ln 4 / √2, over √2
    assert figures["interval"] == pytest.approx(
        [math.exp(math.log(4) - half), math.exp(math.log(4) + half)]
    )


def test_knowing_nothing_is_as_many_as_there_are_symbols_and_certainty_is_one():
    assert measure(np.zeros((5, 65)), np.arange(5), 65)["perplexity"] == pytest.approx(65)
    sure = measure(1e9 * np.eye(4), np.arange(4), 4)
    assert (sure["perplexity"], sure["interval"], sure["accuracy"]) == (1.0, [1.0, 1.0], 1.0)


@pytest.mark.parametrize(
    "scores", [[[np.nan, 0.0]], [[0.0, -np.inf]], [[np.inf, 0.0]], [[1e300, -1e300]]]
)
def test_what_is_no_number_or_too_large_counts_as_the_cap(scores):
    figures = measure(np.array(scores * 2), np.array([1, 1]), 2)
    assert figures["perplexity"] == WORST == math.exp(CAP)
    assert figures["correct"] == 0
    json.dumps(figures, allow_nan=False)


def test_one_bad_score_costs_its_own_sample_only():
    figures = measure(np.array([[np.nan, 0.0], [0.0, 0.0]]), np.array([0, 0]), 2)
    assert figures["perplexity"] == pytest.approx(math.exp((CAP + math.log(2)) / 2))
    assert all(1 <= end <= WORST for end in figures["interval"])


def test_one_sample_has_no_interval_and_none_has_nothing():
    assert measure(np.zeros((1, 2)), np.array([0]), 2)["interval"] is None
    figures = measure(np.zeros((0, 2)), np.zeros(0), 2)
    assert figures == {
        "samples": 0,
        "correct": 0,
        "perplexity": None,
        "interval": None,
        "accuracy": None,
    }


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(2, 9), st.integers(0, 99))
def test_it_is_e_to_torchs_cross_entropy(samples, classes, seed):
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, 3, (samples, classes))
    truth = generator.integers(classes, size=samples)
    loss = functional.cross_entropy(torch.tensor(scores), torch.tensor(truth)).item()
    figures = measure(scores, truth, classes)
    assert figures["perplexity"] == pytest.approx(math.exp(loss))
    if figures["interval"] is not None:
        low, high = figures["interval"]
        assert low <= figures["perplexity"] <= high


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_pooled_is_that_of_all_samples_together(sizes, seed):
    generator = np.random.default_rng(seed)
    scores = []
    labels = []
    figures = []
    for size in sizes:
        scores.append(generator.normal(0, 2, (size, 4)))
        labels.append(generator.integers(4, size=size))
        figures.append(perplexity.measure_perplexity(scores[-1], labels[-1], 4))
    whole = measure(np.concatenate(scores), np.concatenate(labels), 4)
    assert pooled(figures) == pytest.approx(whole["perplexity"])


def test_pooled_of_nobody():
    assert pooled([]) is None

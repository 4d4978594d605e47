import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from fedloom.metrics.classification import confusion, wilson
from fedloom.metrics.metric import ACCURACY

NAN = math.nan
INF = math.inf


def classify(scores, truth, classes):
    """The figures by their names, as a reply has them."""
    return ACCURACY.measure(scores, truth, classes).to_json()


def by_hand(scores, truth, classes):
    return classify(np.array(scores, dtype=float), np.array(truth), classes)


def test_three_samples_of_two_classes():
    # margins 2, -1, 1 for truths 1, 0, 0: two right; both pairs (1 against 0) are ordered rightly.
    row = by_hand([[0, 2], [1, 0], [0, 1]], [1, 0, 0], 2)
    assert (row["samples"], row["correct"], row["accuracy"]) == (3, 2, 2 / 3)
    assert row["balanced_accuracy"] == 0.75  # recalls 1/2 and 1
    assert row["f1"] == pytest.approx(2 / 3)  # class 0: 2·1/(2+1), class 1: 2·1/(1+2)
    assert row["auc"] == 1.0
    assert row["answers"] == 2


def test_a_model_that_gives_one_answer():
    # The most common class, for everybody: three of four are right, and nothing was learnt.
    row = by_hand([[2, 0], [1, 0], [3, 1], [1, 0]], [0, 0, 0, 1], 2)
    assert (row["accuracy"], row["balanced_accuracy"], row["answers"]) == (0.75, 0.5, 1)
    # The sample of class 1 has margin -1; those of class 0 have -2, -1 and -2.
    assert row["auc"] == 2.5 / 3
    assert by_hand([[NAN, NAN]] * 2, [0, 1], 2)["answers"] == 0


def test_three_samples_of_three_classes():
    # Predictions 0, 2, 2 for truths 0, 1, 2.
    row = by_hand([[2, 0, 0], [0, 0, 1], [0, 0, 3]], [0, 1, 2], 3)
    assert row["correct"] == 2
    assert row["balanced_accuracy"] == pytest.approx(2 / 3)
    assert row["f1"] == pytest.approx((1 + 0 + 2 / 3) / 3)
    # Class 1's probabilities fall with the largest score: e^2 and e^1 and e^3 against two ones, so
    # the only sample of class 1 has the highest; all three areas are 1.
    assert row["auc"] == 1.0


def test_ties_count_half():
    assert by_hand([[0, 1], [0, 1], [0, 2]], [1, 0, 1], 2)["auc"] == 0.75
    assert by_hand([[0, 0]] * 4, [0, 1, 0, 1], 2)["auc"] == 0.5


def test_equal_scores_predict_the_first_class():
    assert by_hand([[1, 1], [1, 1]], [0, 1], 2)["correct"] == 1


def test_the_binary_margin_is_not_softmaxed_away():
    # Both probabilities are exactly 1.0 in float64, but the margins still tell them apart.
    assert by_hand([[0, 800], [0, 900]], [0, 1], 2)["auc"] == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_one_class_only_has_neither_auc_nor_balanced_accuracy(classes):
    row = classify(np.eye(classes)[[0, 1]], np.array([0, 0]), classes)
    assert row["auc"] is None and row["balanced_accuracy"] is None
    assert (row["accuracy"], row["answers"]) == (0.5, 2)
    assert row["f1"] == pytest.approx(1 / 3)  # class 0: 2/3, class 1, only predicted: 0


def test_no_samples():
    row = classify(np.zeros((0, 3)), np.zeros(0, dtype=np.int64), 3)
    assert (row.pop("samples"), row.pop("correct"), row.pop("answers")) == (0, 0, 0)
    assert row == dict.fromkeys(["accuracy", "interval", "balanced_accuracy", "f1", "auc"])


def test_a_nan_score_is_wrong_and_undoes_auc():
    # argmax would point at the NaN: class 0, which is even the truth.
    row = by_hand([[NAN, 0], [0, 1], [1, 0]], [0, 1, 0], 2)
    assert (row["correct"], row["auc"]) == (2, None)
    assert row["balanced_accuracy"] == 0.75
    assert row["f1"] == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e308, -1e308])
def test_strange_scores_neither_raise_nor_warn(classes, value):
    scores = np.zeros((3, classes))
    scores[0, 0] = scores[1] = value
    truth = np.array([0, classes - 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        json.dumps(classify(scores, truth, classes), allow_nan=False)
        json.dumps(classify(-scores, truth, classes), allow_nan=False)


def test_all_nan_is_all_wrong():
    row = by_hand([[NAN, NAN, NAN]] * 2, [0, 2], 3)
    assert (row["accuracy"], row["balanced_accuracy"], row["f1"], row["auc"]) == (
        0.0,
        0.0,
        0.0,
        None,
    )


def test_a_masked_class_keeps_auc():
    assert by_hand([[2, 1, -INF], [0, 1, -INF]], [0, 1], 3)["auc"] == 1.0


def test_float32_scores_and_int32_labels():
    row = classify(np.eye(3, dtype=np.float32), np.arange(3, dtype=np.int32), 3)
    assert {key: type(value) for key, value in row.items()} == {
        "samples": int,
        "correct": int,
        "accuracy": float,
        "interval": list,
        "balanced_accuracy": float,
        "f1": float,
        "auc": float,
        "answers": int,
    }


@settings(deadline=None)
@given(
    n=st.integers(1, 40),
    classes=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 50),
)
def test_against_scikit_learn(n, classes, seed, levels):
    draw = np.random.default_rng(seed)
    scores = draw.integers(-levels, levels + 1, (n, classes)) / 8  # few levels: many ties
    truth = draw.integers(0, classes, n)
    row = classify(scores, truth, classes)
    guess = scores.argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is predicted but absent
        balanced = pytest.approx(balanced_accuracy_score(truth, guess))
        if len(set(truth.tolist())) == 1:
            balanced = None
        assert row["balanced_accuracy"] == balanced
    assert row["accuracy"] == (truth == guess).mean()
    assert row["f1"] == pytest.approx(f1_score(truth, guess, average="macro"))
    if len(set(truth)) == 1:
        assert row["auc"] is None
    else:
        assert row["auc"] == pytest.approx(oracle_auc(scores, truth))


def oracle_auc(scores, truth):
    if scores.shape[1] == 2:
        return roc_auc_score(truth, scores[:, 1] - scores[:, 0])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    return np.mean([roc_auc_score(truth == k, probabilities[:, k]) for k in np.unique(truth)])


def test_auc_is_scikit_learns_own_when_every_class_occurs():
    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet(np.ones(4), 60)
    truth = np.arange(60) % 4
    expected = roc_auc_score(truth, probabilities, multi_class="ovr", average="macro")
    assert classify(np.log(probabilities), truth, 4)["auc"] == pytest.approx(expected)


def test_wilson_by_hand():
    # z = 2, one of two: centre 1/2, half 2/(1+4/2) · sqrt(1/8 + 4/16) = (2/3)·sqrt(3/8).
    low, high = wilson(1, 2, z=2.0)
    assert low == pytest.approx(0.5 - 2 / 3 * math.sqrt(3 / 8))
    assert high == pytest.approx(0.5 + 2 / 3 * math.sqrt(3 / 8))


@settings(deadline=None)
@given(n=st.integers(1, 10_000), share=st.floats(0, 1))
def test_wilson_against_scipy(n, share):
    correct = round(share * n)
    low, high = wilson(correct, n)
    expected = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= correct / n <= high <= 1


def test_wilson_is_exact_at_its_ends():
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)


def test_confusion_by_hand():
    # 0, 0, 1, 2 are predicted to be 0, 1, 1, 0; the last has a NaN and no prediction
    scores = np.array([[2, 0, 0], [0, 1, 0], [0, 3, 0], [1, 0, 0], [NAN, 0, 0]])
    assert confusion(scores, np.array([0, 0, 1, 2, 2]), 3) == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert confusion(np.zeros((0, 2)), np.zeros(0), 2) == [[0, 0], [0, 0]]

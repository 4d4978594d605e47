import math

import numpy as np
import pytest

from fedloom.metrics.measuring import measured
from fedloom.metrics.metric import ACCURACY, METRICS, RMSE, metric_of
from fedloom.metrics.regression import WORST, measure_errors, pooled, pooled_mae
from fedloom.types import Task


def measure(answers, truth):
    return measure_errors(np.array(answers, float)[:, None], np.array(truth, float), 1)


def test_by_hand():
    figures = measure([1, 2, 6], [1, 4, 2])  # errors 0, 2 and 4
    assert figures.value == pytest.approx(math.sqrt(20 / 3))
    assert figures.beside == {"mae": pytest.approx(2)}
    assert figures.interval[0] <= figures.value <= figures.interval[1]
    assert (figures.samples, figures.correct, figures.answers) == (3, 0, None)


def test_pooled_is_what_all_samples_together_give():
    one = measure([1, 2, 6], [1, 4, 2])
    two = measure([0], [10])
    together = measure([1, 2, 6, 0], [1, 4, 2, 10])
    nothing = measure(np.zeros(0), [])
    assert pooled([one, nothing, two]) == pytest.approx(together.value)
    assert pooled_mae([one, nothing, two]) == pytest.approx(together.beside["mae"])
    assert pooled([nothing]) is None and pooled_mae([nothing]) is None


def test_wild_answers_stay_finite():
    figures = measure([np.nan, np.inf, 1], [0, 0, 1])
    assert math.isfinite(figures.value) and figures.value <= WORST
    assert figures.interval[1] <= WORST


def test_nothing_and_one_sample():
    assert measure(np.zeros(0), []).value is None
    assert measure([1], [3]).interval is None


def test_in_the_units_of_the_label():
    task = Task(
        "fedavg", {}, "regression", (2,), ("price",), 0, (0, 0), (1, 1), target=(100.0, 10.0)
    )
    figures = measured(np.array([[0.0], [1.0]]), np.array([0.5, -1.0], np.float32), task)
    assert figures.value == pytest.approx(math.sqrt((5**2 + 20**2) / 2))
    assert figures.beside["mae"] == pytest.approx(12.5)


def test_lower_is_better_and_texts_have_four_digits():
    assert metric_of("regression") is RMSE is METRICS["rmse"] and metric_of("table") is ACCURACY
    assert RMSE.better(1.0, 2.0) and (RMSE.heading, ACCURACY.heading) == ("RMSE", "Accuracy")
    shown = [RMSE.text(value) for value in (0.00012345, 58.7167, 12345.6, 1.5e7, None)]
    assert shown == ["0.0001234", "58.72", "12346", "1.5e+07", "–"]
    assert RMSE.text(2.5, "+") == "+2.5" and RMSE.text_beside(48.6712) == "48.67"
    assert ACCURACY.text_beside(0.5) == "50.0" and ACCURACY.unit_beside == " %"

import pytest

from fedloom.metrics.metric import ACCURACY, METRICS, PERPLEXITY, metric_of


@pytest.mark.parametrize(
    ("kind", "metric"), [("image", ACCURACY), ("speech", ACCURACY), ("text", PERPLEXITY)]
)
def test_the_metric_of_a_kind(kind, metric):
    assert metric_of(kind) is metric is METRICS[metric.name]


def test_better():
    assert ACCURACY.better(0.6, 0.5) and not ACCURACY.better(0.5, 0.6)
    assert PERPLEXITY.better(5.0, 6.0) and not PERPLEXITY.better(6.0, 5.0)
    assert not any(metric.better(2.0, 2.0) for metric in METRICS.values())


@pytest.mark.parametrize(
    ("metric", "value", "sign", "text"),
    [
        (ACCURACY, 0.1234, "", "12.3"),
        (ACCURACY, 0.01, "+", "+1.0"),
        (ACCURACY, None, "", "–"),
        (PERPLEXITY, 7.125, "", "7.12"),
        (PERPLEXITY, -1.5, "+", "-1.50"),
        (PERPLEXITY, 11.35, "", "11.3"),
        (PERPLEXITY, 2.7e43, "", "2.7e+43"),
        (PERPLEXITY, None, "+", "–"),
    ],
)
def test_what_a_person_reads(metric, value, sign, text):
    assert metric.text(value, sign) == text


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda one: one.name)
def test_what_is_measured_is_what_is_declared(metric):
    import numpy as np

    figures = metric.measure(np.eye(3), np.arange(3), 3)
    plain = figures.to_json()
    declared = {"samples", "correct", "interval", metric.name, *metric.beside}
    if metric.counts_answers:
        declared.add("answers")
    assert set(plain) == declared
    assert set(metric.columns) <= set(metric.beside)
    low, high = metric.bounds
    assert low <= plain[metric.name] == figures.value <= high
    assert type(figures).from_json(plain, metric.name) == figures

"""What was spent until a target was reached."""

from fedloom.evaluate.target import first_reached, mean_target
from fedloom.metrics.metric import METRICS
from fedloom.records.comparison import Target
from fedloom.records.rows import Evaluation, MetricsRow
from fedloom.records.totals import Totals

ACCURACY = METRICS["accuracy"]


def row(number, value, part="validation"):
    totals = Totals(
        rounds=number,
        down=10 * number,
        up=number,
        lan_up=5,
        macs=100 * number,
        simulated=2.0 * number,
    )
    evaluation = None
    if part is not None:
        evaluation = Evaluation(part, 4, "accuracy", value)
    return MetricsRow("train", number, 0.0, evaluation=evaluation, totals=totals)


def test_the_first_round_that_reaches_it():
    rows = [row(1, 0.3), row(2, None, None), row(3, None), row(4, 0.6), row(5, 0.9)]
    assert first_reached(rows, 0.6, ACCURACY) == Target(
        seconds=8.0, wan=44, bytes=49, macs=400, rounds=4
    )
    assert first_reached(rows, 0.95, ACCURACY) is None


def test_test_data_never_decide():
    assert first_reached([row(1, 0.9, "test"), row(2, 0.7)], 0.6, ACCURACY).rounds == 2
    assert first_reached([row(1, 0.9, "test")], 0.6, ACCURACY) is None


def test_where_lower_is_better():
    metric = METRICS["perplexity"]
    rows = [row(1, 9.0), row(2, 4.0)]
    assert first_reached(rows, 5.0, metric).rounds == 2
    assert first_reached(rows, 3.0, metric) is None


def test_over_seeds():
    one = Target(seconds=1.0, wan=2, bytes=3, macs=4, rounds=5)
    two = Target(seconds=3.0, wan=4, bytes=5, macs=6, rounds=8)
    assert mean_target([one, two]) == Target(seconds=2.0, wan=3, bytes=4, macs=5, rounds=6.5)
    assert mean_target([one, None]) is None and mean_target([]) is None

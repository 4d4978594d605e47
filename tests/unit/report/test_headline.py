"""The first section of a run's page: its costs, and who is worst off."""

import re

import pytest
from fabricated import client, make_run, row, totals

from fedloom.report.sections.headline import headline, worst_client
from fedloom.report.story import Reader

CLUSTERED = {
    "down": 3000,
    "up": 2000,
    "lan_down": 70_000,
    "lan_up": 25_000,
    "evaluate_down": 10,
    "evaluate_up": 20,
}


def tile(folder, name):
    """What a tile of the headline says: its value and what stands below it."""
    text = str(headline(Reader(folder).read()))
    words = [word.strip() for word in re.split(r"<[^>]*>", text) if word.strip()]
    at = words.index(name)
    return words[at + 1 : at + 3]


def test_the_traffic_of_a_finished_run_is_all_that_a_budget_counts(tmp_path):
    folder = make_run(tmp_path / "run", [row(1)], [client(0)], bytes=CLUSTERED)
    assert tile(folder, "traffic") == ["100 kB", "3 kB down, 2 kB up, 95 kB inside clusters"]


def test_the_traffic_of_a_run_that_goes_on_too(tmp_path):
    folder = make_run(tmp_path / "run", [row(1, totals={**totals(1), **CLUSTERED})])
    assert tile(folder, "traffic") == ["100 kB", "3 kB down, 2 kB up, 95 kB inside clusters"]


def test_a_flat_topology_has_no_clusters(tmp_path):
    folder = make_run(tmp_path / "run", [row(1)], [client(0)])
    assert tile(folder, "traffic") == ["5.7 kB", "3 kB down, 2.7 kB up"]


@pytest.mark.parametrize(("metric", "worst"), [("accuracy", 1), ("perplexity", 2)])
def test_the_worst_client_is_the_metrics_own(tmp_path, metric, worst):
    values = (0.5, 0.25, 0.75) if metric == "accuracy" else (5.0, 2.5, 7.5)
    clients = [client(number, **{metric: value}) for number, value in enumerate(values)]
    folder = make_run(
        tmp_path / "run",
        [row(1)],
        clients,
        metric=metric,
        lower_is_better=metric == "perplexity",
        **{
            metric: {
                "mean": 1.0,
                "std": 0.1,
                "worst": values[worst],
                "worst10": None,
                "pooled": 1.0,
            }
        },
    )
    assert worst_client(Reader(folder).read()) == worst

"""Columns of a comparison hold what their heads say, in the terminal and on the page."""

from fedloom.metrics.metric import ACCURACY
from fedloom.report.sections.methods import cells_of
from fedloom.report.tables import both_ways, comparison_table


def of_one_seed(mean):
    return {"mean": mean, "std": None}


ROW = {
    "name": "ditto", "tuned": None, "metric": "accuracy", "runs": 1,
    "difference": {"mean": 0.05, "low": None, "high": None},
    "accuracy": of_one_seed(0.91), "pooled": of_one_seed(0.82), "worst": of_one_seed(0.73),
    "global": of_one_seed(0.64), "params": 1000, "rounds": 20, "macs": 2e6, "bytes": 3e9, "seconds": 7.0,
    "memory": None,
}  # fmt: skip
EXPECTED = ["ditto", "91.0", "+5.0", "82.0", "73.0", "64.0", "1 k", "20", "2 M", "3 GB"]


def test_columns_of_the_terminals_table():
    table = comparison_table([ROW], "digits")
    cells = [next(iter(column.cells)) for column in table.columns]
    heads = [column.header for column in table.columns]
    assert heads == ["method", "acc. %", "vs first", "pooled", "worst", "shared", "params", "rounds", "MACs", "bytes"]
    assert cells == EXPECTED


def test_columns_of_the_pages_table():
    assert cells_of(ROW, ACCURACY) == [*EXPECTED, "7.0 s", "–"]


def test_traffic_inside_clusters_is_named_where_there_is_some():
    sent = {"down": 2000, "up": 1000, "lan_down": 0, "lan_up": 0}
    assert both_ways(sent) == "2 kB down, 1 kB up"
    assert both_ways({**sent, "lan_down": 40_000, "lan_up": 2000}) == "2 kB down, 1 kB up, 42 kB inside clusters"

"""Columns of a comparison hold what their heads say, in the terminal and on the page."""

from dataclasses import replace

from fedloom.federation.server.ledger import Totals
from fedloom.metrics.metric import ACCURACY
from fedloom.records.comparison import MethodRow
from fedloom.report.sections.methods import cells_of
from fedloom.report.tables import both_ways, comparison_table
from result_files import method, over_seeds

ROW = MethodRow.from_json(method(
    "ditto", 0.91, difference={"mean": 0.05, "low": None, "high": None}, pooled=over_seeds(0.82),
    worst=over_seeds(0.73), **{"global": over_seeds(0.64)},
))  # fmt: skip
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
    sent = Totals(down=2000, up=1000)
    assert both_ways(sent) == "2 kB down, 1 kB up"
    clustered = replace(sent, lan_down=40_000, lan_up=2000)
    assert both_ways(clustered) == "2 kB down, 1 kB up, 42 kB inside clusters"

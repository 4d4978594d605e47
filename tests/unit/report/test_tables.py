"""Columns of a comparison hold what their heads say, in the terminal and on the page."""

from dataclasses import replace

from fedloom.federation.server.ledger import Totals
from fedloom.records.comparison import MethodRow
from fedloom.report.sections.methods import cells_of
from fedloom.report.tables import both_ways, comparison_table
from result_files import method, over_seeds

ROW = MethodRow.from_json(method(
    "ditto", 0.91, difference={"mean": 0.05, "low": None, "high": None}, pooled=over_seeds(0.82),
    worst=over_seeds(0.73), **{"global": over_seeds(0.64)},
))  # fmt: skip
EXPECTED = ["ditto", "91.0", "+5.0", "82.0", "73.0", "64.0", "1 k", "20", "2 M\n3 GB"]
JUDGED = MethodRow.from_json(ROW.to_json() | {"balanced_accuracy": over_seeds(0.55), "auc": over_seeds(0.46)})


def test_columns_of_the_terminals_table():
    table = comparison_table([ROW], "digits")
    cells = [next(iter(column.cells)) for column in table.columns]
    heads = [column.header for column in table.columns]
    rest = ["vs first", "pooled", "worst", "shared", "params", "rounds", "MACs\nbytes"]
    assert heads == ["method", "acc. %", *rest]
    assert cells == EXPECTED


def test_balanced_accuracy_and_auc_stand_beside_accuracy():
    table = comparison_table([JUDGED, ROW], "digits")  # the other is of an earlier version
    column = table.columns[2]
    assert column.header == "bal.\nAUC" and list(column.cells) == ["55.0\n46.0", "–\n–"]
    assert cells_of(JUDGED, [JUDGED])[1:5] == ["91.0", "55.0", "46.0", "+5.0"]


def test_the_line_of_the_most_common_class():
    judged = MethodRow.from_json(ROW.to_json() | {"most_common_class": over_seeds(0.37)})
    table = comparison_table([judged, judged], "digits")
    assert [list(column.cells)[-1] for column in table.columns][:3] == ["(most common class)", "37.0", ""]
    other = MethodRow.from_json(ROW.to_json() | {"most_common_class": over_seeds(0.3)})
    for rows in ([judged, other], [judged, ROW]):  # of another split, or not known
        assert len(list(comparison_table(rows, "digits").columns[0].cells)) == 2


def test_columns_of_the_pages_table():
    assert cells_of(ROW, [ROW]) == [*EXPECTED[:-1], "2 M", "3 GB", "7.0 s", "–"]


def test_traffic_inside_clusters_is_named_where_there_is_some():
    sent = Totals(down=2000, up=1000)
    assert both_ways(sent) == "2 kB down, 1 kB up"
    clustered = replace(sent, lan_down=40_000, lan_up=2000)
    assert both_ways(clustered) == "2 kB down, 1 kB up, 42 kB inside clusters"

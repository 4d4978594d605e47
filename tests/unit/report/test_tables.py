"""Columns of a comparison hold what their heads say, in the terminal and on the page."""

from dataclasses import replace

import pytest
from rich.console import Console

from fedloom.evaluate.judgement import judged, stages_of
from fedloom.federation.server.ledger import Totals
from fedloom.records.comparison import MethodRow
from fedloom.records.result import RunResult
from fedloom.report.comparison_table import comparison_table, differences_beside
from fedloom.report.numbers import both_ways
from fedloom.report.run_table import summary
from fedloom.report.sections.methods import cells_of
from result_files import client, method, over_seeds, result

ROW = MethodRow.from_json(
    method(
        "ditto",
        0.91,
        difference={"mean": 0.05, "low": None, "high": None},
        pooled=over_seeds(0.82),
        worst=over_seeds(0.73),
        **{"global": over_seeds(0.64)},
    )
)
EXPECTED = ["ditto", "91.0", "+5.0", "82.0", "73.0", "64.0", "1 k", "20", "2 M\n3 GB"]
JUDGED = MethodRow.from_json(
    ROW.to_json() | {"balanced_accuracy": over_seeds(0.55), "auc": over_seeds(0.46)}
)


def test_columns_of_the_terminals_table():
    table = comparison_table([ROW], "digits")
    cells = [next(iter(column.cells)) for column in table.columns]
    heads = [column.header for column in table.columns]
    other_columns = ["vs first", "pooled", "worst", "shared", "params", "rounds", "MACs\nbytes"]
    assert heads == ["method", "acc. %", *other_columns]
    assert cells == EXPECTED


def test_balanced_accuracy_and_auc_stand_beside_accuracy():
    table = comparison_table([JUDGED, ROW], "digits")  # the other is of an earlier version
    column = table.columns[2]
    assert column.header == "bal.\nAUC" and list(column.cells) == ["55.0\n46.0", "–\n–"]
    assert cells_of(JUDGED, [JUDGED])[1:5] == ["91.0", "55.0", "46.0", "+5.0"]


def beside_pooled_and_shared(**more):
    figures = {
        "pooled_balanced_accuracy": over_seeds(0.525),
        "shared_balanced_accuracy": over_seeds(0.335),
    }
    return MethodRow.from_json(JUDGED.to_json() | figures | more)


def test_balanced_accuracy_stands_behind_the_pooled_and_the_shared_figure():
    row = beside_pooled_and_shared()
    assert MethodRow.from_json(row.to_json()) == row
    table = comparison_table([row, ROW], "digits")  # the other is of an earlier version
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["pooled"] == ["82.0\n(52.5)", "82.0"]
    assert columns["shared"] == ["64.0\n(33.5)", "64.0"]
    assert (
        "pooled: over all test samples, in parentheses balanced accuracy over them" in table.caption
    )
    assert "in parentheses its balanced accuracy, mean over clients" in table.caption
    assert cells_of(row, [row])[5:8] == ["82.0 (52.5)", "73.0", "64.0 (33.5)"]
    assert "parentheses" not in comparison_table([ROW], "digits").caption


def test_of_two_classes_the_shared_model_has_auc_too():
    row = beside_pooled_and_shared(shared_auc=over_seeds(0.445))
    table = comparison_table([row], "digits")
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["shared"] == ["64.0\n(33.5,\n44.5)"]
    assert "in parentheses its balanced accuracy and AUC, mean over clients" in table.caption


def test_a_comparison_fits_into_80_columns():
    """With everything in its cells that there may be, but a long name."""
    difference = {
        "mean": -0.125,
        "low": -0.2345,
        "high": -0.1123,
        "p": 0.01,
        "holm": {"p": 0.012, "significant": True},
    }
    end = {
        "stage": "search",
        "part": "test",
        "figure": over_seeds(0.948),
        "balanced_accuracy": over_seeds(0.851),
    }
    row = beside_pooled_and_shared(
        shared_auc=over_seeds(0.445),
        accuracy=over_seeds(0.91, 0.111),
        difference=difference,
        stages=[end],
        runs=5,
    )
    console = Console(width=80, record=True, markup=False)
    console.print(comparison_table([row, row], "digits"))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for figures in ("(52.5)", "(33.5,", "44.5)", "(85.1)", "p=0.012*", "[-23.4,"):
        assert figures in text


def test_what_the_pooled_figure_has_beside_it_is_of_all_samples():
    """By class of all clients' samples together; unknown where somebody does not tell."""

    def run(counts, **more):
        confusion = {"labels": ["a", "b"], "clients": 2, "counts": counts}
        both = [
            client(0, 0.5, shared_balanced_accuracy=0.25),
            client(1, 0.5, shared_balanced_accuracy=0.75),
        ]
        return RunResult.from_json(result(both, confusion=confusion, **more))

    run_result = run([[3, 0], [1, 0]])  # two clients with two test samples each
    assert run_result.pooled_balanced_accuracy == 0.5
    row = judged(ROW, [run_result])
    assert row.pooled_balanced_accuracy.mean == 0.5 and row.shared_balanced_accuracy.mean == 0.5
    assert run([[2, 0], [1, 0]]).pooled_balanced_accuracy is None  # a sample is missing
    assert run([[4, 0], [0, 0]]).pooled_balanced_accuracy is None  # all are of one class
    assert judged(ROW, [run_result, run([[2, 0], [1, 0]])]).pooled_balanced_accuracy is None


def test_what_earlier_stages_ended_with_has_its_column():
    """A tuned supernet is seen beside what its cut came to, though the others have none."""
    beside = {"balanced_accuracy": over_seeds(0.851), "auc": over_seeds(0.902)}
    ends = [
        {"stage": "search", "part": "test", "figure": over_seeds(0.913)},  # of an earlier version
        {"stage": "tune", "part": "test", "figure": over_seeds(0.948, 0.01), **beside},
    ]
    staged = MethodRow.from_json(JUDGED.to_json() | {"stages": ends})
    assert MethodRow.from_json(staged.to_json()) == staged
    table = comparison_table([staged, ROW], "digits")
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["stages"] == ["search\n91.3\ntune\n94.8\n(85.1,\n90.2)", ""]
    assert columns["params\nrounds"] == ["1 k\n20", "1 k\n20"] and columns["shared"] == [
        "64.0",
        "64.0",
    ]
    assert "stages: the results of a method's earlier stages" in table.caption
    assert (
        "mean over clients on their test data; in parentheses balanced accuracy and AUC"
        in table.caption
    )
    assert cells_of(staged, [staged])[8:11] == ["91.3", "94.8 (85.1, 90.2)", "1 k"]
    assert cells_of(ROW, [staged, ROW])[7:10] == ["64.0", "", ""]  # under the same heads


@pytest.mark.parametrize(("rounds", "words"), [(1, " 1 round, "), (2, " 2 rounds, ")])
def test_one_round_is_one_round(rounds, words):
    assert words in summary(RunResult.from_json(result([client(0, 0.5)], rounds=rounds)))


def test_stages_count_where_every_seed_was_evaluated_on_the_same_part():
    def run(*stages):
        return RunResult.from_json(result([client(0, 0.5)], stages=list(stages)))

    def end(stage, part, figure):
        return {"stage": stage, "rounds": 2, "part": part, "figure": figure}

    runs = [
        run(end("search", "test", 0.8), end("tune", "test", 0.6)),
        run(end("search", "test", 0.9), end("tune", "validation", 0.7)),
    ]
    (row,) = stages_of(runs)
    assert (row.stage, row.part, row.figure.mean) == ("search", "test", pytest.approx(0.85))
    assert [row.stage for row in judged(ROW, runs).stages] == ["search"]
    assert judged(ROW, [run()]).stages == []


def test_what_stages_have_beside_accuracy_counts_where_every_seed_has_it():
    def run(**more):
        end = {"stage": "tune", "rounds": 2, "part": "test", "figure": 0.8, **more}
        return RunResult.from_json(result([client(0, 0.5)], stages=[end]))

    runs = [
        run(balanced_accuracy=0.6, auc=0.7),
        run(balanced_accuracy=0.7),
    ]  # the other has one class in each part
    (row,) = stages_of(runs)
    assert row.balanced_accuracy.mean == pytest.approx(0.65) and row.auc is None


def test_differences_of_what_stands_beside_accuracy():
    first = MethodRow.from_json(
        JUDGED.to_json() | {"balanced_accuracy": over_seeds(0.6), "auc": over_seeds(0.4)}
    )
    assert differences_beside(JUDGED, [first, JUDGED]) == ["-5.0", "+6.0"]
    assert differences_beside(ROW, [first, ROW]) == ["–", "–"]
    assert differences_beside(ROW, [ROW]) == []


def test_the_line_of_the_most_common_class():
    judged = MethodRow.from_json(ROW.to_json() | {"most_common_class": over_seeds(0.37)})
    table = comparison_table([judged, judged], "digits")
    assert [list(column.cells)[-1] for column in table.columns][:3] == [
        "(most common class)",
        "37.0",
        "",
    ]
    other = MethodRow.from_json(ROW.to_json() | {"most_common_class": over_seeds(0.3)})
    for rows in ([judged, other], [judged, ROW]):  # of another split, or not known
        assert len(list(comparison_table(rows, "digits").columns[0].cells)) == 2


def test_columns_of_the_pages_table():
    assert cells_of(ROW, [ROW]) == [*EXPECTED[:-1], "2 M", "3 GB", "7.0 s", "–"]


def test_traffic_inside_clusters_is_named_where_there_is_some():
    totals = Totals(down=2000, up=1000)
    assert both_ways(totals) == "2 kB down, 1 kB up"
    clustered = replace(totals, lan_down=40_000, lan_up=2000)
    assert both_ways(clustered) == "2 kB down, 1 kB up, 42 kB inside clusters"

"""Tiers of several methods: a line each in a comparison, on its page and in the terminal."""

import re

import pytest
from fabricated import client, make_run, result, row
from test_tiers_page import cells_in, drawing_in, markup_of
from tiered import HEAVY, HEAVY_CHOICE, make_tiered, tier

from fedloom.evaluate.tier_rows import tiers_with_holm, with_tiers
from fedloom.records.comparison import MethodRow
from fedloom.records.result import RunResult
from fedloom.report.tier_tables import limit_text, tiers_of_methods
from fedloom.report.versus import beside_each_other, versus_page
from result_files import method

SPLIT = {"name": "made", "partition": "iid", "split": "5" * 64}


def run_with(*pooled, seed=0):
    """A tier for each figure over all clients."""
    tiers = []
    for number, figure in enumerate(pooled, 1):
        tiers.append(tier(number, figure=figure, balanced_accuracy=figure - 0.05))
    return RunResult.from_json(result([client(0)], method="fedoras", seed=seed, tiers=tiers))


def plain_row(runs=3):
    return MethodRow.from_json(method("fedoras", runs=runs))


def test_a_tier_over_seeds():
    rows = with_tiers(
        plain_row(), [run_with(0.5, 0.7), run_with(0.6, 0.8), run_with(0.7, 0.9)], None
    ).tiers
    assert [row.tier for row in rows] == [1, 2]
    assert rows[0].pooled.mean == pytest.approx(0.6) and rows[0].pooled.std == pytest.approx(0.1)
    assert rows[0].supernet.mean == pytest.approx(0.5) and rows[0].own.mean == pytest.approx(0.61)
    assert rows[0].worst.mean == pytest.approx(0.4) and rows[
        0
    ].balanced_accuracy.mean == pytest.approx(0.55)
    assert (rows[1].params, rows[1].macs) == (10_000, 100_000)
    assert rows[0].difference is None


def test_of_two_classes_a_tier_has_auc_too():
    tiers = [tier(1, balanced_accuracy=0.6, auc=0.7), tier(2)]
    run = RunResult.from_json(result([client(0)], method="fedoras", tiers=tiers))
    row = with_tiers(plain_row(1), [run], None)
    assert row.tiers[0].auc.mean == 0.7 and row.tiers[1].auc is None
    columns = {column.header: list(column.cells) for column in tiers_of_methods([row]).columns}
    assert columns["AUC"] == ["70.0", "–"] and columns["bal."] == ["60.0", "–"]
    assert (
        "AUC: area under the ROC curve, mean over these clients" in tiers_of_methods([row]).caption
    )
    assert "AUC" not in {
        column.header
        for column in tiers_of_methods([with_tiers(row, [run_with(0.5)], None)]).columns
    }


def test_figures_over_all_clients_have_balanced_accuracy_behind_them():
    tiers = [tier(1, global_balanced_accuracy=0.645, supernet_balanced_accuracy=0.535), tier(2)]
    run = RunResult.from_json(result([client(0)], method="fedoras", tiers=tiers))
    row = with_tiers(plain_row(1), [run], None)
    table = tiers_of_methods([row])
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["all"] == ["80.0\n(64.5)", "80.0"] and columns["supernet"] == [
        "70.0\n(53.5)",
        "70.0",
    ]
    assert "In parentheses: balanced accuracy, mean over all clients." in table.caption
    assert (
        "In parentheses"
        not in tiers_of_methods([with_tiers(plain_row(1), [run_with(0.5)], None)]).caption
    )


def test_a_tier_is_compared_with_the_same_tier_of_the_first_method():
    first = [run_with(0.5, 0.9), run_with(0.5, 0.9), run_with(0.5, 0.9)]
    runs = [run_with(0.61, 0.7), run_with(0.62, 0.7), run_with(0.63, 0.7)]
    small, large = with_tiers(plain_row(), runs, first).tiers
    assert small.difference.mean == pytest.approx(0.12) and small.difference.better is True
    assert large.difference.mean == pytest.approx(-0.2) and large.difference.interval is None


def test_tiers_that_the_other_method_does_not_have_are_not_compared():
    fewer = [run_with(0.5)]
    rows = with_tiers(plain_row(1), [run_with(0.6, 0.7)], fewer).tiers
    assert rows[0].difference is not None and rows[1].difference is None
    untiered = [RunResult.from_json(result([client(0)]))]
    assert with_tiers(plain_row(1), [run_with(0.6)], untiered).tiers[0].difference is None
    assert with_tiers(plain_row(1), untiered, None) == plain_row(1)
    unequal = with_tiers(plain_row(2), [run_with(0.5, 0.6), run_with(0.5)], None).tiers
    assert [row.tier for row in unequal] == [1]  # the other is not there with every seed


def test_tiers_of_other_clients_are_not_compared():
    def dealt(*tiers):
        clients = [client(number, tier=of) for number, of in enumerate(tiers)]
        return RunResult.from_json(result(clients, tiers=[tier(1), tier(2)]))

    rows = with_tiers(plain_row(1), [dealt(1, 1, 2)], [dealt(1, 1, 2)]).tiers
    assert [row.difference is None for row in rows] == [False, False]
    rows = with_tiers(plain_row(1), [dealt(1, 1, 2)], [dealt(1, 1, 3)]).tiers
    assert [row.difference is None for row in rows] == [False, True]


def test_a_tier_without_a_figure_is_not_compared():
    silent = run_with(0.5)
    silent = silent.replace(tiers=[silent.tiers[0].replace(pooled_over_all=None, own=None)])
    (row,) = with_tiers(plain_row(1), [silent], [run_with(0.5)]).tiers
    assert row.difference is None and row.pooled.mean is None and row.own.mean is None


def test_verdicts_are_adjusted_for_all_tiers_of_all_methods():
    first = [run_with(0.5, 0.5), run_with(0.5, 0.5), run_with(0.5, 0.5)]
    runs = [run_with(0.69, 0.52), run_with(0.7, 0.54), run_with(0.72, 0.56)]
    rows = [with_tiers(plain_row(), first, None), with_tiers(plain_row(), runs, first)]
    small, large = tiers_with_holm(rows)[1].tiers
    assert small.difference.holm.p == pytest.approx(2 * small.difference.p)
    assert large.difference.holm.p == pytest.approx(large.difference.p)
    assert tiers_with_holm(rows)[0].tiers == rows[0].tiers


def test_a_row_with_tiers_is_read_as_it_was_written():
    row = with_tiers(plain_row(1), [run_with(0.5, 0.7)], [run_with(0.4, 0.6)])
    assert MethodRow.from_json(row.to_json()) == row
    assert "tiers" not in plain_row().to_json()


def test_the_terminal_has_a_line_a_tier():
    row = with_tiers(plain_row(1), [run_with(0.5, 0.7)], [run_with(0.4, 0.8)])
    table = tiers_of_methods([plain_row(1), row])
    assert [column.header for column in table.columns] == [
        "method",
        "tier",
        "own",
        "bal.",
        "worst",
        "all",
        "vs first",
        "supernet",
        "params",
        "MACs",
    ]
    lines = list(zip(*(column.cells for column in table.columns), strict=True))
    assert lines == [
        ("fedoras", "1", "51.0", "45.0", "30.0", "50.0", "+10.0", "40.0", "5 k", "100 k"),
        ("", "2", "71.0", "65.0", "50.0", "70.0", "-10.0", "60.0", "10 k", "100 k"),
    ]


def test_of_tiers_of_an_earlier_version_balanced_accuracy_is_not_known():
    before = RunResult.from_json(result([client(0)], tiers=[tier(1)]))
    row = with_tiers(plain_row(1), [before], None)
    assert row.tiers[0].balanced_accuracy is None
    assert list(tiers_of_methods([row]).columns[3].cells) == ["–"]


@pytest.fixture
def beside(tmp_path):
    """FedorAS, the same networks from fresh weights on the same split and tiers, and FedAvg."""
    searched = make_tiered(tmp_path / "searched", data=SPLIT, options={"start": "supernet"})
    worse = [tier(1, figure=0.6), tier(2, HEAVY, HEAVY_CHOICE, 300_000, 0.7)]
    scratch = make_tiered(
        tmp_path / "scratch",
        figures=(0.4, 0.3, 0.2, 0.1),
        tiers=worse,
        data=SPLIT,
        options={"start": "random"},
    )
    clients = [client(number, 0.5, macs=macs) for number, macs in enumerate((100_000, 140_000))]
    fedavg = make_run(tmp_path / "fedavg", [row(1)], clients, data=SPLIT)
    return [searched.path, scratch.path, fedavg.path]


def test_methods_stand_beside_each_other_by_macs(beside, tmp_path):
    text = versus_page(beside_each_other(beside), tmp_path)
    tips = [element.text for element in drawing_in(text, "tiers-macs").iter("title")][1:]
    assert tips == [
        "fedoras (searched), 1: 100 k, 80.0",
        "fedoras (searched), 2: 300 k, 90.0",
        "fedoras (scratch), 1: 100 k, 60.0",
        "fedoras (scratch), 2: 300 k, 70.0",
        "fedavg: 120 k, 50.0",
    ]
    assert cells_in(text, "Accuracy against MACs over the tiers")[-1] == [
        "fedavg",
        "–",
        "120 k",
        "50.0",
    ]
    lines = cells_in(text, "tiers of the methods")
    assert [line[:2] for line in lines[1:]] == [
        ["fedoras (searched)", "1"],
        ["fedoras (searched)", "2"],
        ["fedoras (scratch)", "1"],
        ["fedoras (scratch)", "2"],
    ]
    assert lines[3][6] == "-20.0" and lines[1][6] == ""


def test_clients_of_a_tier_stand_beside_those_from_fresh_weights(beside, tmp_path):
    text = versus_page(beside_each_other(beside), tmp_path)
    assert cells_in(text, "Accuracy of the clients of each tier")[1:5] == [
        ["client 1", "1", "fedoras (searched)", "50.0", "50.0"],
        ["client 0", "1", "fedoras (searched)", "90.0", "90.0"],
        ["client 1", "1", "fedoras (scratch)", "30.0", "30.0"],
        ["client 0", "1", "fedoras (scratch)", "40.0", "40.0"],
    ]
    figure = markup_of(text, "by-tier")
    assert re.findall(r"</svg>(fedoras \(\w+\))</li>", figure) == [
        "fedoras (searched)",
        "fedoras (scratch)",
    ]


def test_another_deal_of_tiers_is_not_put_beside(tmp_path):
    one = make_tiered(tmp_path / "one", data=SPLIT, options={"start": "supernet"})
    other = make_tiered(tmp_path / "other", data=SPLIT, options={"start": "random"})
    raw = other.result().to_json()
    raw["clients"][0]["tier"] = 2
    other.write_json("result.json", raw)
    text = versus_page(beside_each_other([one.path, other.path]), tmp_path)
    assert {line[2] for line in cells_in(text, "Accuracy of the clients of each tier")[1:]} == {
        "fedoras (one)"
    }


def test_methods_without_tiers_have_no_such_section(tmp_path):
    paths = []
    for name in ("fedavg", "local"):
        paths.append(
            make_run(tmp_path / name, [row(1)], [client(0), client(1, 0.7)], method=name).path
        )
    assert '<section id="tiers" hidden></section>' in versus_page(
        beside_each_other(paths), tmp_path
    )


def test_limits_in_words():
    assert limit_text({"macs": 121e6, "latency_ms": 3.5}) == "121 M MACs, 3.5 ms"
    assert limit_text({}) == "–"

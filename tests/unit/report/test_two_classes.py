"""With two classes, AUC is shown wherever balanced accuracy is: on pages and in the terminal."""

import json
from types import SimpleNamespace

import pytest
from fabricated import client, make_run, row
from test_tiers_page import cells_in

from fedloom.records.folder import RunFolder
from fedloom.report.page import run_page
from fedloom.report.run_table import run_table
from fedloom.report.story import Reader
from fedloom.report.tables import runs_table
from fedloom.report.versus import beside_each_other, versus_page
from fedloom.runs.adapt import Adapted

TWO = ["benign", "malignant"]
TEN = [str(number) for number in range(10)]


def make_two_rounds(path, labels, method="fedavg", accuracy=0.7, seed=0, **more):
    """Two rounds and two clients of different sizes.

    Balanced accuracy is 10 points below accuracy, AUC 10 points above.
    """
    rows = [row(1, accuracy - 0.2), row(2, accuracy)]
    rows[1]["evaluation"] |= {"balanced_accuracy": accuracy - 0.1}
    if labels is TWO:
        rows[1]["evaluation"] |= {"auc": accuracy + 0.1}
    beside = {
        "balanced_accuracy": accuracy - 0.1,
        "auc": accuracy + 0.1,
    }  # of ten classes too: result.json has it
    clients = [client(0, accuracy, **beside), client(1, accuracy, params=8000, **beside)]
    spreads = {
        name: {"mean": figure, "std": 0.0, "worst": figure} for name, figure in beside.items()
    }
    confusion = {"labels": labels, "clients": 2, "counts": [[1] * len(labels)] * len(labels)}
    return make_run(
        path,
        rows,
        clients,
        config={"method": method, "seed": seed},
        method=method,
        seed=seed,
        confusion=confusion,
        **spreads,
        **more,
    )


def page_of(folder):
    return run_page(Reader(folder).read())


def test_the_rounds_of_a_run(tmp_path):
    text = page_of(make_two_rounds(tmp_path / "run", TWO))
    assert cells_in(text, "the curve") == [
        ["round", "the model of the run", "balanced accuracy", "AUC"],
        ["1", "50.0", "–", "–"],
        ["2", "70.0", "60.0", "80.0"],
    ]
    assert cells_in(text, "Accuracy against parameters")[:2] == [
        ["client", "parameters", "accuracy %", "bal.", "AUC"],
        ["client 0", "7 k", "70.0", "60.0", "80.0"],
    ]


def test_what_the_shared_model_has(tmp_path):
    shared = {"shared_accuracy": 0.4, "shared_balanced_accuracy": 0.45, "shared_auc": 0.475}
    folder = make_two_rounds(tmp_path / "run", TWO)
    raw = json.loads((folder.path / "result.json").read_text())
    raw["clients"] = [client_json | shared for client_json in raw["clients"]]
    folder.write_json("result.json", raw)
    text = page_of(folder)
    assert "AUC, shared model" in text and "47.5 %" in text and "45.0 %" in text


def test_a_newcomers_model_before_and_after(tmp_path, capsys):
    shared = {
        "shared_accuracy": 0.4,
        "shared_interval": [0.3, 0.5],
        "shared_balanced_accuracy": 0.45,
        "shared_auc": 0.475,
    }
    for labels, names in ((TWO, {"balanced_accuracy", "auc"}), (TEN, {"balanced_accuracy"})):
        record = make_two_rounds(tmp_path / str(len(labels)), labels).result()
        newcomer = record.clients[0].replace(**shared)
        run = SimpleNamespace(
            metric=record.judged_by, path=tmp_path, record=record.replace(clients=[newcomer])
        )
        adapted = Adapted(run, "first")
        assert set(adapted.before) == set(adapted.after) == {"accuracy", "interval", *names}
        adapted.table()
        assert ("AUC 47.5 %" in capsys.readouterr().out) == (labels is TWO)
    assert adapted.before["balanced_accuracy"] == 0.45


def test_a_run_under_way(tmp_path):
    folder = make_two_rounds(tmp_path / "run", TWO)
    (folder.path / "result.json").unlink()
    text = page_of(folder)
    assert ">AUC</" in text and ">80.0 %<" in text


STAGES = [
    {
        "stage": "search",
        "rounds": 3,
        "part": "test",
        "figure": 0.5,
        "shared": 0.5,
    },  # of an earlier version
    {
        "stage": "tune",
        "rounds": 1,
        "part": "test",
        "figure": 0.65,
        "balanced_accuracy": 0.55,
        "auc": 0.61,
        "shared": 0.5,
    },
]


def test_the_tuned_supernet_has_its_line_on_the_page_of_a_run(tmp_path):
    text = page_of(make_two_rounds(tmp_path / "run", TWO, "fednas", stages=STAGES))
    assert '<a href="#stages">Stages</a>' in text
    assert cells_in(text, "final figures of stages") == [
        ["stage", "rounds", "data", "accuracy %", "bal.", "AUC", "shared model %"],
        ["after search", "3", "test", "50.0", "–", "–", "50.0"],
        ["after tune", "1", "test", "65.0", "55.0", "61.0", "50.0"],
        ["the result", "", "test", "70.0", "60.0", "80.0", "–"],
    ]
    assert '<section id="stages" hidden' in page_of(make_two_rounds(tmp_path / "plain", TWO))


def test_the_shared_model_of_stages_has_its_balanced_accuracy(tmp_path):
    shared = {"shared_balanced_accuracy": 0.45, "shared_auc": 0.475}
    text = page_of(make_two_rounds(tmp_path / "run", TWO, "fednas", stages=[STAGES[1] | shared]))
    lines = cells_in(text, "final figures of stages")
    assert lines[1][-1] == "50.0 (45.0, 47.5)"
    assert "In parentheses after the shared model's figure: its balanced accuracy and AUC." in text


def test_the_shared_model_over_the_rounds(tmp_path):
    folder = make_two_rounds(tmp_path / "run", TWO)
    path = folder.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["evaluation"] |= {"shared": 0.4, "shared_balanced_accuracy": 0.35, "shared_auc": 0.45}
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    lines = cells_in(page_of(folder), "the curve")
    assert lines[0][-2:] == ["balanced accuracy, shared model", "AUC, shared model"]
    assert lines[2][1:] == ["70.0", "40.0", "60.0", "80.0", "35.0", "45.0"]


def test_the_tuned_supernet_in_the_terminal(tmp_path):
    result = make_two_rounds(tmp_path / "run", TWO, "fednas", stages=STAGES).result()
    assert (
        "search 50.0 %, tune 65.0 % (balanced accuracy 55.0, AUC 61.0)."
        in run_table(result).caption
    )


@pytest.fixture
def compared(tmp_path):
    folders = [
        make_two_rounds(tmp_path / "a", TWO),
        make_two_rounds(tmp_path / "b", TWO, "fednas", 0.8, stages=STAGES, macs=20_000),
    ]
    return versus_page(beside_each_other([folder.path for folder in folders]), tmp_path)


def test_every_client_under_every_method_by_auc(compared):
    assert cells_in(compared, "AUC of each client under each method") == [
        ["client", "fedavg", "fednas"],
        ["client 0", "80.0", "90.0"],
        ["client 1", "80.0", "90.0"],
    ]
    assert 'id="auc-by-client-figure"' in compared or "auc-by-client" in compared


def test_the_rounds_of_methods(compared):
    assert cells_in(compared, "curves")[0] == [
        "round",
        "fedavg",
        "fednas",
        "fedavg, balanced",
        "fednas, balanced",
        "fedavg, AUC",
        "fednas, AUC",
    ]
    assert cells_in(compared, "curves")[2] == ["2", "70.0", "80.0", "60.0", "70.0", "80.0", "90.0"]


def test_runs_costs_and_differences(compared):
    head, first, second = cells_in(compared, "runs")
    assert head[-3:] == ["mean accuracy", "balanced", "AUC"]
    assert (first[-2:], second[-2:]) == (["60.0 %", "80.0 %"], ["70.0 %", "90.0 %"])
    assert cells_in(compared, "Accuracy against MACs of training") == [
        ["method", "MACs of training", "accuracy %", "bal.", "AUC"],
        ["fedavg", "15 k", "70.0", "60.0", "80.0"],
        ["fednas", "20 k", "80.0", "70.0", "90.0"],
    ]
    assert cells_in(compared, "Difference to fedavg") == [
        ["method", "accuracy, points", "balanced accuracy", "AUC"],
        ["fednas", "+10.0", "+10.0", "+10.0"],
    ]


def test_stages_have_columns_beside_the_result(compared):
    head, fedavg, fednas = cells_in(compared, "methods")
    place = head.index("after tune")
    assert head[place - 1] == "after search" and head[place + 1] == "params"
    assert (fedavg[place], fednas[place - 1 : place + 1]) == ("", ["50.0", "65.0 (55.0, 61.0)"])


def test_the_small_print_calls_the_columns_of_stages_what_they_are_called(compared):
    assert "after search, after tune: the results of a method's earlier stages" in compared
    assert "stages: what" not in compared


def test_of_ten_classes_no_table_has_auc(tmp_path):
    one = make_two_rounds(tmp_path / "a", TEN)
    assert "AUC" not in page_of(one)
    folders = [one, make_two_rounds(tmp_path / "b", TEN, "local", 0.8, macs=20_000)]
    text = versus_page(beside_each_other([folder.path for folder in folders]), tmp_path)
    assert "AUC" not in text and "Balanced accuracy of each client under each method" in text
    summaries = [RunFolder(folder.path).summary() for folder in folders]
    assert [column.header for column in runs_table(summaries).columns][-2:] == ["bal.", "on disk"]


def test_the_list_of_runs(tmp_path):
    folders = [make_two_rounds(tmp_path / "a", TWO), make_two_rounds(tmp_path / "b", TEN)]
    table = runs_table([RunFolder(folder.path).summary() for folder in folders])
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["AUC"] == ["80.0", "–"]
    assert columns["bal."] == ["60.0", "60.0"]

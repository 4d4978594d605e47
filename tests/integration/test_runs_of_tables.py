"""Whole runs on tables: classes and numbers, from the file to the exported model."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import fedloom
from fedloom.cli import main
from fedloom.errors import FedloomError
from fedloom.export.predicting import predict
from fedloom.runs.finished import open_finished

ROWS = 480


def search(place, data, method="fedavg", **options):
    asked = {"rounds": 15, "workers": 0, "partition": "iid", **options}
    return fedloom.search(method, data=data, out=place, **asked)


def patients(file, task="class", missing=True, rows=ROWS):
    """Age and ward decide; some cells are empty."""
    draw = np.random.default_rng(5)
    lines = ["age,ward,note,client,label"]
    for row in range(rows):
        age = draw.normal(50, 10)
        ward = ["north", "east", "south"][row % 3]
        score = (age - 50) / 10 - 1
        if ward == "east":
            score = (age - 50) / 10 + 2
        label = "well"
        if task == "number":
            label = f"{100 + 20 * score:.3f}"
        elif score > 0:
            label = "ill"
        age_cell = f"{age:.2f}"
        if missing and row % 11 == 3:
            age_cell = ""
        if missing and row % 13 == 5:
            ward = "NA"
        lines.append(f"{age_cell},{ward},same,{row % 4},{label}")
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("tables")
    search(place / "cancer", "breast-cancer")
    search(place / "diabetes", "diabetes", rounds=30)
    options = {"rounds": 20, "workers": 0}
    fedloom.search("fedavg", data=patients(place / "class.csv"), out=place / "class", **options)
    fedloom.search(
        "ditto", data=patients(place / "number.csv", "number"), out=place / "number", **options
    )
    return place


def result(place):
    return json.loads((place / "result.json").read_text())


def test_breast_cancer_is_learned(runs):
    record = result(runs / "cancer")
    assert record["accuracy"]["pooled"] > 0.9
    assert record["input"]["kind"] == "table" and record["clients"][0]["architecture"] == "mlp:1"


def test_diabetes_is_better_than_the_mean_would_be(runs):
    record = result(runs / "diabetes")
    spread = load_diabetes().target.std()
    assert record["metric"] == "rmse" and record["rmse"]["pooled"] < 0.9 * spread
    assert record["mae"]["mean"] < record["rmse"]["mean"] < record["rmse"]["worst"]
    assert record["mae"]["pooled"] < record["rmse"]["pooled"]
    assert "accuracy" not in record and record.get("confusion") is None


def test_a_client_column_makes_the_clients(runs):
    record = result(runs / "class")
    assert record["data"]["partition"] == "natural" and len(record["clients"]) == 4
    assert (
        "the column note has the same value in every row: left out"
        in (runs / "class" / "run.log").read_text()
    )
    assert record["accuracy"]["pooled"] > 0.8


@pytest.mark.parametrize("name", ["class", "number"])
def test_the_same_after_a_resume(runs, tmp_path, name):
    whole = result(runs / name)
    data = str(runs / f"{name}.csv")
    method = whole["method"]
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "again", data, method)
    assert main(["resume", str(tmp_path / "again"), "--quiet"]) == 0
    again = result(tmp_path / "again")
    for key in (whole["metric"], "global", "input"):
        assert again[key] == whole[key]
    figures = [client[whole["metric"]] for client in whole["clients"]]
    assert [client[whole["metric"]] for client in again["clients"]] == figures


def interrupted(place, data, method):
    """A run that is left after its seventh round."""
    with pytest.MonkeyPatch.context() as patch:
        from fedloom.federation.server.loop import Loop

        real = Loop.evaluate
        calls = []

        def evaluate(self, at, *rest, **named):
            calls.append(at.round)
            if at.round >= 7:
                raise KeyboardInterrupt
            return real(self, at, *rest, **named)

        patch.setattr(Loop, "evaluate", evaluate)
        fedloom.search(method, data=data, out=place, rounds=20, workers=0)


@pytest.mark.whole
@pytest.mark.parametrize(("name", "client"), [("class", None), ("number", None), ("number", 2)])
def test_an_export_answers_rows_as_predict_does(runs, tmp_path, name, client):
    finished = open_finished(runs / name)
    new = tmp_path / "new.csv"
    new.write_text("ward,age,more\nsouth,61.5,1\nelsewhere,,2\nNA,40,3\n")
    predictions = predict(finished, str(new), client=client)
    exported = fedloom.Run.open(runs / name).export(client=client, out=tmp_path / "export")
    lines = subprocess.run(
        [sys.executable, str(exported.path / "model.py"), str(new)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    card = (exported.path / "README.md").read_text()
    assert "ward: one of east, north, south, and whether it is missing" in card
    if name == "number":
        np.testing.assert_allclose([float(line) for line in lines], predictions.numbers, rtol=1e-4)
        assert "RMSE" in card and "accuracy" not in card.split("## Results")[1].split("##")[0]
        assert predictions.to_json()["predictions"][0] == {"value": predictions.numbers[0]}
    else:
        assert [line.split("\t")[0] for line in lines] == [row[1] for row in predictions.rows()]


def test_predict_measures_rows_with_labels(runs, tmp_path):
    predictions = predict(
        open_finished(runs / "number"), str(runs / "number.csv"), out=tmp_path / "told.csv"
    )
    errors = [row[3] for row in predictions.rows()]
    assert predictions.measured.value == pytest.approx(
        np.sqrt(np.mean(np.square(errors))), rel=1e-5
    )
    assert (
        predictions.measured.value < 20
        and "RMSE" in predictions.summary()
        and "MAE" in predictions.summary()
    )
    assert (tmp_path / "told.csv").read_text().startswith("sample,label,truth,error\n0,")
    assert predictions.trained.by_run > ROWS / 2
    classes = predict(open_finished(runs / "class"), str(runs / "class.csv"))
    assert classes.measured.value > 0.8


def test_predict_refuses_rows_that_are_not_like_the_runs(runs, tmp_path):
    finished = open_finished(runs / "class")
    new = tmp_path / "new.csv"
    cases = {
        "ages,ward\n1,east\n": "must have the column age, but it does not, and has ages",
        "age,ward\nold,east\n": "must be numbers, as it was agreed on, but it has 'old'",
        "age,ward,label\n1,east,dead\n": "must be among the run's, but 'dead' is not",
    }
    for text, part in cases.items():
        new.write_text(text)
        with pytest.raises(FedloomError, match=part):
            predict(finished, str(new))
    with pytest.raises(FedloomError, match="must be one table"):
        predict(finished, "digits")


def test_a_newcomer_adapts_with_the_columns_of_the_run(runs, tmp_path):
    file = patients(tmp_path / "new.csv", "number", missing=False, rows=40)
    assert (
        main(
            [
                "adapt",
                str(runs / "number"),
                "--data",
                file,
                "--out",
                str(tmp_path / "run"),
                "--quiet",
            ]
        )
        == 0
    )
    before = result(runs / "number")
    after = result(tmp_path / "run")
    assert after["input"]["table"] == before["input"]["table"]


def test_reports_and_tables_speak_of_rmse(runs, capsys):
    page = (runs / "number" / "report.html").read_text()
    assert "RMSE over the rounds" in page and "Rmse" not in page and "Accuracy" not in page
    assert (
        main(
            [
                "report",
                str(runs / "number"),
                str(runs / "diabetes"),
                "--out",
                str(runs / "both.html"),
            ]
        )
        == 0
    )
    assert main(["resume", str(runs / "number")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "RMSE on local test data (lower is better)" in shown and "MAE: mean" in shown


def test_a_comparison_puts_the_lower_error_first(tmp_path):
    compared = fedloom.compare(
        ["fedavg", "local"], data="diabetes", rounds=4, workers=0, seeds=[0, 1], out=tmp_path / "c"
    )
    rows = compared.rows
    assert (
        rows[0].lower_is_better
        and rows[0].metric == "rmse"
        and rows[0].mae.mean < rows[0].figure.mean
    )
    assert "RMSE" in (tmp_path / "c" / "report.html").read_text()


def test_a_comparison_leaves_the_partition_to_the_data(tmp_path):
    patients(tmp_path / "p.csv")
    fedloom.compare(
        ["fedavg", "local"], data=str(tmp_path / "p.csv"), rounds=2, workers=0, out=tmp_path / "c"
    )
    assert result(tmp_path / "c" / "fedavg-seed0")["data"]["partition"] == "natural"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["fednas", "--data", "wine"], "the search space darts must be for table data"),
        (["finch", "--data", "wine"], "must be for table data"),
        (["fedavg", "--data", "wine", "--network", "cnn"], "network cnn must be for table data"),
        (["fedavg", "--data", "digits", "--network", "mlp"], "network mlp must be for image data"),
        (["knn-per", "--data", "diabetes"], "knn-per must have labels that are classes"),
        (["heterofl", "--data", "diabetes"], "heterofl must have labels that are classes"),
        (
            ["fedavg", "--data", "diabetes", "--partition", "dirichlet:1"],
            "--partition dirichlet must be for labels",
        ),
        (
            ["fedavg", "--data", "diabetes", "--topology", "clustered", "--clusters", "labels"],
            "--clusters labels must be",
        ),
        (["fedavg", "--data", "wine", "--task", "regression"], "must be numbers for regression"),
        (["fedavg", "--data", "wine", "--label", "colour"], "must have the label column colour"),
        (["fedavg", "--data", "digits", "--ignore", "x"], "must be for a table"),
        (["fedavg", "--data", "wine", "--set", "data.mean=[1]"], "must be left to the columns"),
    ],
)
def test_what_cannot_be_is_refused_before_training(tmp_path, capsys, arguments, part):
    assert main(["run", *arguments, "--out", str(tmp_path / "run"), "--rounds", "5"]) == 2
    assert part in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "method", ["fedprox", "local", "perfedavg", "fedrep", "zerofl", "fedyogi", "local-adaptation"]
)
def test_numbers_by_other_methods(tmp_path, method):
    run = search(tmp_path / "run", "diabetes", method, rounds=3, clients=4)
    assert np.isfinite(run.record.spread.mean)


@pytest.mark.parametrize("method", ["heterofl", "fjord"])
def test_widths_of_the_mlp(tmp_path, method):
    run = search(tmp_path / "run", "wine", method, rounds=3, clients=4)
    assert len({client.params for client in run.record.clients}) > 1


@pytest.mark.parametrize("data", ["breast-cancer", "wine", "diabetes"])
def test_the_built_in_tables_have_a_usual_partition(data):
    assert main(["run", "fedavg", "--data", data, "--dry-run", "--quiet"]) == 0

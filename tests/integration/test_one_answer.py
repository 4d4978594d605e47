"""A model that always gives the same answer does not look good, wherever results are shown.

That is the table, the page, JSON and a comparison.
"""

import io
import json
from html import unescape

import numpy as np
import pytest
import tiny
from rich.console import Console

import fedloom
from fedloom.cli import main
from fedloom.data.split import Split
from fedloom.records.folder import RunFolder
from fedloom.report.run_table import run_table

ONE_ANSWER = "3 of 3 clients' models give the same answer for every test sample."
SAMPLES = 120


def printed(table, width=80):
    console = Console(width=width, markup=False, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Two classes, three of four samples of the first, that no network can tell apart.

    All images are the same.
    """
    path = tmp_path_factory.mktemp("alike") / "alike.npz"
    image = np.arange(36, dtype=np.uint8).reshape(6, 6)
    np.savez(path, x=np.stack([image] * SAMPLES), y=(np.arange(SAMPLES) % 4 == 0).astype(np.int64))
    return path


@pytest.fixture(scope="module")
def run(alike, tmp_path_factory):
    return tiny.start(tmp_path_factory.mktemp("one") / "run", "fedavg", tiny.tree(alike, rounds=2))


def test_the_figures_and_the_counts_are_in_result_json(run):
    result = json.loads((run.path / "result.json").read_text())
    assert result["cautions"] == {
        "clients": 3, "one_answer": 3, "shared_one_answer": 3, "few_samples": 3, "one_class": 0,
        "one_answer_of_one_class": 0, "shared_of_one_class": 0,
    }  # fmt: skip
    assert result["balanced_accuracy"]["mean"] == result["auc"]["mean"] == 0.5
    assert [client["answers"] for client in result["clients"]] == [1, 1, 1]
    assert result["most_common_class"] == pytest.approx(result["accuracy"]["mean"])
    assert "personal_gain" not in result  # all have the shared model
    assert run.record.known_cautions == run.record.cautions


def test_the_json_of_the_command(run):
    result = run.to_json()
    assert result["balanced_accuracy"] == {"mean": 0.5, "std": 0.0, "worst": 0.5, "pooled": 0.5}
    assert result["auc"] == {"mean": 0.5, "std": 0.0, "worst": 0.5}
    assert result["cautions"]["one_answer"] == 3 and result["personal_gain"] is None
    assert result["most_common_class"] == pytest.approx(0.75, abs=0.1)
    assert {
        (row["balanced_accuracy"], row["auc"], row["answers"]) for row in result["clients"]
    } == {(0.5, 0.5, 1)}


def test_the_table_of_the_terminal(run):
    text = printed(run_table(run.record))
    words = " ".join(text.split())
    assert (
        ONE_ANSWER in words
        and "3 of 3 clients have fewer than 20 test samples: their figures say little." in words
    )
    assert " bal. AUC " in words and max(map(len, text.splitlines())) <= 80
    assert "Balanced accuracy: mean 50.0 ± 0.0, worst 50.0, pooled 50.0 %" in words
    assert "Always answering each client's most common class would give" in words
    assert ONE_ANSWER in unescape(run._repr_html_())  # of a notebook


def test_the_page(run):
    page = (run.path / "report.html").read_text()
    assert ONE_ANSWER in unescape(page)
    assert "Caution: " in page and "balanced accuracy" in page and "(one answer)" in page


def test_every_round_and_the_csv(run):
    evaluation = tiny.rows(run.path)[-1]["evaluation"]
    assert (evaluation["balanced_accuracy"], evaluation["auc"]) == (0.5, 0.5)
    head, *rows = (run.path / "metrics.csv").read_text().splitlines()
    assert rows[-1].split(",")[head.split(",").index("evaluation.balanced_accuracy")] == "0.5"


def test_the_list_of_runs(run, capsys):
    assert main(["runs", "list", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "bal." in shown and "50.0" in shown
    assert RunFolder(run.path).summary().balanced_accuracy == 0.5


@pytest.fixture(scope="module")
def comparison(alike, tmp_path_factory):
    methods = ["fedavg:width=0.125", "local:width=0.125"]
    place = tmp_path_factory.mktemp("both") / "compare"
    return fedloom.compare(
        methods, data=str(alike), clients=3, partition="iid", rounds=1, workers=0, out=place
    )


def test_a_comparison(comparison):
    for row in comparison.to_json()["methods"]:
        assert (
            row["cautions"]["one_answer"] == 3
            and row["balanced_accuracy"]["mean"] == 0.5 == row["auc"]["mean"]
        )
    text = printed(comparison._table())
    words = " ".join(text.split())
    for method in ("fedavg:width=0.125", "local:width=0.125"):
        assert f"{method}: {ONE_ANSWER}" in words
    assert words.count("fewer than 20 test samples") == 1  # both have the same split
    assert "(most common" in text and max(map(len, text.splitlines())) <= 80
    page = (comparison.path / "report.html").read_text()
    assert "Caution: " in page and "Balanced accuracy of each client under each method" in page
    assert "baseline: each client's most common class" in unescape(page)
    assert "(most common class)" in page


# What predict says of samples that are not new


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return tiny.write_images(tmp_path_factory.mktemp("images") / "images.npz", samples=60)


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    return tiny.start(
        tmp_path_factory.mktemp("trained") / "run", "fedavg", tiny.tree(images, rounds=1)
    )


def predicted(path, x, y, capsys, run):
    np.savez(path, x=x, y=y)
    capsys.readouterr()
    assert main(["predict", str(run.path), "--shared", "--data", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert main(["predict", str(run.path), "--shared", "--data", str(path), "--json"]) == 0
    return shown, json.loads(capsys.readouterr().out)


def test_predict_on_the_runs_own_data(trained, images, tmp_path, capsys):
    data = np.load(images)
    shown, as_json = predicted(tmp_path / "own.npz", data["x"], data["y"], capsys, trained)
    training = 60 - sum(client.test_samples for client in trained.record.clients)
    assert (as_json["trained_on"], as_json["trained_on_among"]) == (training, "run")
    assert f"NOT A FAIR TEST: the run trained on {training} of these 60 samples." in shown
    assert "balanced accuracy" in shown and "AUC" not in shown  # there are three classes


def test_predict_on_partly_new_data(trained, images, tmp_path, capsys):
    data = np.load(images)
    rest, test = split_of(trained).client(0)
    x = np.concatenate([data["x"][rest[:4]], data["x"][test[:2]], 255 - data["x"][rest[:5]]])
    y = np.concatenate([data["y"][rest[:4]], data["y"][test[:2]], data["y"][rest[:5]]])
    shown, as_json = predicted(tmp_path / "partly.npz", x, y, capsys, trained)
    assert as_json["trained_on"] == 4 and "the run trained on 4 of these 11 samples." in shown
    floats = x.astype(np.float32)  # the same values
    assert predicted(tmp_path / "floats.npz", floats, y, capsys, trained)[1]["trained_on"] == 4


def test_predict_on_new_data(trained, images, tmp_path, capsys):
    data = np.load(images)
    shown, as_json = predicted(
        tmp_path / "new.npz", data["x"][:, ::-1] ^ 1, data["y"], capsys, trained
    )
    assert as_json["trained_on"] == 0 and "The run trained on none of these 60 samples." in shown


# What predict says of samples that a run of --init trained on


@pytest.fixture(scope="module")
def chain(trained, tmp_path_factory):
    """A run on other images that began with a run on other images that began with `trained`."""
    place = tmp_path_factory.mktemp("chain")
    runs = [trained]
    for name in ("second", "third"):
        images = tiny.write_images(place / f"{name}.npz", samples=60)
        arrays = dict(np.load(images))
        np.savez(images, x=arrays["x"] ^ (1 + len(runs)), y=arrays["y"])
        options = tiny.tree(images, rounds=1, init={"run": str(runs[-1].path)})
        runs.append(tiny.start(place / name, "fedavg", options))
    return runs


def test_predict_counts_what_the_runs_before_trained_on(chain, images, tmp_path, capsys):
    data = np.load(images)
    training = 60 - sum(client.test_samples for client in chain[0].record.clients)
    for run in chain[1:]:
        shown, as_json = predicted(tmp_path / "own.npz", data["x"], data["y"], capsys, run)
        assert (
            as_json["trained_on"],
            as_json["trained_on_by_init"],
            as_json["trained_on_untold"],
        ) == (
            training,
            training,
            None,
        )
        assert (
            "The run itself trained on none of these 60 samples. NOT A FAIR TEST: the --init run"
            in shown
        )
        assert f"the --init run was trained on {training} of these samples." in shown


def test_predict_on_data_that_is_new_to_all_runs(chain, images, tmp_path, capsys):
    data = np.load(images)
    shown, as_json = predicted(
        tmp_path / "new.npz", data["x"][:, ::-1] ^ 9, data["y"], capsys, chain[2]
    )
    assert (as_json["trained_on"], as_json["trained_on_by_init"], as_json["trained_on_untold"]) == (
        0,
        0,
        None,
    )
    assert "none of these 60 samples. The --init run was trained on none of them." in shown


def test_predict_says_where_it_cannot_tell_what_the_run_of_init_trained_on(
    chain, images, tmp_path, capsys
):
    """Its folder is gone, or its split."""
    data = np.load(images)
    before = chain[0].path
    for missing in (before, before / "split.json"):
        missing.rename(tmp_path / "away")
        try:
            shown, as_json = predicted(tmp_path / "own.npz", data["x"], data["y"], capsys, chain[1])
        finally:
            (tmp_path / "away").rename(missing)
        assert (as_json["trained_on"], as_json["trained_on_by_init"]) == (None, None)
        assert as_json["trained_on_untold"] == str(before)
        assert f"It is unknown what the --init run ({before}) was trained on." in shown


def test_predict_says_so_of_one_answer(run, alike, capsys):
    assert main(["predict", str(run.path), "--shared", "--data", str(alike)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The model gives the same answer for every sample." in shown
    assert "balanced accuracy 50.0 %, AUC 50.0 %" in shown


def split_of(run):
    return Split.load(run.path / "split.json")

"""Every way to the end of a run leaves its report.html, and what it shows comes from the run."""

import json

import pytest
import tiny

from fedloom import api
from fedloom.cli import main
from fedloom.records.plan import Plan
from fedloom.report.progress import open_screen
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create


def test_a_run_and_its_report(images, tmp_path):
    tiny.start(tmp_path / "run", "local-adaptation", tiny.tree(images))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    counts = result["confusion"]["counts"]
    assert sum(map(sum, counts)) == sum(row["test_samples"] for row in result["clients"])
    assert sum(counts[k][k] for k in range(3)) == round(
        result["accuracy"]["pooled"] * sum(map(sum, counts))
    )
    text = (tmp_path / "run" / "report.html").read_text()
    assert (
        "local-adaptation trained cnn:0.125 for 3 clients." in text and "Confusion matrix" in text
    )
    assert ">train</text>" in text and ">adapt</text>" in text  # its stages are shaded
    classes = json.loads((tmp_path / "run" / "classes.json").read_text())
    assert [sum(row) for row in classes["counts"]] == [row["samples"] for row in result["clients"]]
    images.unlink()  # a report needs no data
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").read_text() == text


def test_rounds_tell_of_the_shared_model_too(images, tmp_path):
    evaluations = {}
    for method in ("ditto", "fedavg", "local"):
        tiny.start(tmp_path / method, method, tiny.tree(images, rounds=2))
        rows = tiny.rows(tmp_path / method)
        evaluations[method] = [row["evaluation"] for row in rows]
    assert all(row["shared"] is not None for row in evaluations["ditto"])
    assert all(row["shared"] == row["accuracy"] for row in evaluations["fedavg"])
    assert all(row["shared"] is None for row in evaluations["local"])


@pytest.mark.whole
def test_a_report_with_plots(images, tmp_path, capsys):
    for name in "ab":
        tiny.start(tmp_path / name, "fedavg", tiny.tree(images, rounds=1))
    assert main(["report", str(tmp_path / "a"), "--plots"]) == 0
    assert {"clients.png", "clients.svg"} <= {
        path.name for path in (tmp_path / "a" / "plots").iterdir()
    }
    assert str(tmp_path / "a" / "plots" / "clients.png") in capsys.readouterr().out
    words = [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "--out",
        str(tmp_path / "both" / "page.html"),
        "--plots",
    ]
    assert main(["report", *words]) == 0
    assert list((tmp_path / "both" / "plots").glob("*.png"))


def test_a_resumed_run_has_its_report(images, tmp_path):
    folder, _ = create(configure("fedavg", tiny.tree(images, rounds=2)), tmp_path / "run")
    assert not (folder.path / "report.html").exists()
    api.resume(folder.path)
    assert "Clients" in (folder.path / "report.html").read_text()


def test_a_comparison_has_one_of_its_own(images, tmp_path):
    from fedloom.runs.comparison import continue_comparison, create_comparison

    folder = create_comparison(
        Plan(("fedavg", "local"), (0,), {}, tiny.tree(images, rounds=2)), tmp_path / "cmp"
    )
    with open_screen(quiet=True) as shown:
        continue_comparison(folder, shown)
    text = (folder.path / "report.html").read_text()
    assert "2 methods on" in text and 'href="local-seed0/report.html"' in text
    assert (folder.path / "local-seed0" / "report.html").exists()


def test_the_live_page_ends_with_its_run(images, tmp_path, capsys):
    """The run's own result is printed, whatever becomes of the page."""
    words = [
        "--data",
        str(images),
        "--clients",
        "3",
        "--partition",
        "iid",
        "--rounds",
        "2",
        "--workers",
        "0",
    ]
    more = ["--out", str(tmp_path / "run"), "--watch", "--json"]
    assert main(["run", "fedavg", *words, "--width", "0.125", *more]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run"] == str(tmp_path / "run")
    assert "watch it at http://127.0.0.1:" in captured.err


def test_a_page_that_fails_does_not_fail_the_run(images, tmp_path, monkeypatch):
    from fedloom.report import page

    def broken(story, **more):
        raise ZeroDivisionError

    monkeypatch.setattr(page, "run_page", broken)
    run = tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, rounds=1))
    assert run.result["rounds"] == 1 and not (run.path / "report.html").exists()


def test_a_stopped_run_says_how_to_go_on(images, tmp_path):
    folder, _ = create(configure("fedavg", tiny.tree(images, rounds=2)), tmp_path / "run")
    assert main(["report", str(folder.path)]) == 0
    assert f"fedloom resume {folder.path}" in (folder.path / "report.html").read_text()

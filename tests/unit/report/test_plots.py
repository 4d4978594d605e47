import ast
import importlib
import inspect
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import result_files
from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.metrics.metric import ACCURACY, PERPLEXITY
from fedloom.records.comparison import Difference
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun
from fedloom.records.result import ClientResult
from fedloom.records.rows import Evaluation, MetricsRow
from fedloom.report import charts, plots
from fedloom.report.charts import Curve
from fedloom.report.plots import ClassCounts, curve, parse_formats, stages, write_plots


def client(number, accuracy, **more):
    sizes = {"params": 100 * (number + 1), "macs": 1000}
    return result_files.client(number, accuracy, **{"shared_accuracy": 0.5, **sizes, **more})


def client_result(number, accuracy, **more):
    return ClientResult.model_validate(
        ClientResult.fields_in(client(number, accuracy, **more), ACCURACY)
    )


def no_data(folder):
    raise FedloomError("the data must be there", "they are gone", "fetch them")


def write(paths, *more, **named):
    return write_plots(paths, no_data, *more, **named)


@pytest.fixture
def make(tmp_path):
    """A finished run without any training, as far as pictures look at it."""

    def make_folder(name="run", figures=(0.5, 0.7), accuracies=(0.2, 0.4), method="fedavg", **more):
        folder = RunFolder.create("run", "x", tmp_path / name)
        rows = [client(number, figure) for number, figure in enumerate(figures)]
        folder.write_json("result.json", result_files.result(rows, method=method, **more))
        lines = []
        for number, value in enumerate(accuracies, 1):
            evaluation = Evaluation("test", 2, "accuracy", value)
            lines.append(
                MetricsRow(
                    "a" if number == 1 else "b", number, 0.0, evaluation=evaluation
                ).to_line()
            )
        (folder.path / "metrics.jsonl").write_bytes(b"".join(lines))
        return folder

    return make_folder


def texts(path):
    """matplotlib writes each text of a picture into a comment beside its outlines."""
    ET.parse(path)
    return [comment.strip() for comment in re.findall(r"<!-- (.*?) -->", path.read_text())]


def test_a_run(make):
    folder = make()
    drawn_plots = write([folder.path])
    names = [path.name for path in drawn_plots.written]
    expected = []
    for name in ("convergence", "clients", "cost"):
        expected += [f"{name}.png", f"{name}.svg"]
    assert names == expected
    assert all(path.parent == folder.path / "plots" for path in drawn_plots.written)
    assert (folder.path / "plots" / "cost.png").read_bytes()[:4] == b"\x89PNG"
    assert {"round", "accuracy (%)", "a", "b"} <= set(
        texts(folder.path / "plots" / "convergence.svg")
    )
    assert "own network" in texts(folder.path / "plots" / "clients.svg")
    assert list(drawn_plots.left_out) == ["split"]  # its data are not there
    before = (folder.path / "plots" / "cost.svg").read_bytes()
    write([folder.path], formats=["svg"])
    assert (folder.path / "plots" / "cost.svg").read_bytes() == before


def test_a_run_without_figures(make):
    drawn_plots = write([make(figures=(None, None), accuracies=(None,)).path], formats=["svg"])
    assert drawn_plots.written == []
    assert drawn_plots.left_out["clients"] == "no client has a figure"
    assert drawn_plots.left_out["convergence"] == "no round was evaluated"


def test_several_runs(make, tmp_path):
    one = make("one").path
    other = make("other").path
    with pytest.raises(FedloomError, match="plots of several runs must have a folder"):
        write([one, other])
    drawn_plots = write([one, other], tmp_path / "both", ["svg"])
    assert [path.name for path in drawn_plots.written] == [
        "convergence.svg",
        "methods.svg",
        "cost.svg",
    ]
    assert {"one", "other"} <= set(
        texts(tmp_path / "both" / "methods.svg")
    )  # one method: told apart by their folders


def compared(folder, make):
    for name in ("a-seed0", "a-seed1", "b-seed0", "b-seed1"):
        make(f"cmp/{name}", accuracies=(0.2, 0.4) if name.endswith("0") else (0.4, 0.8, 0.9))
    gap = {"mean": 0.1, "low": -0.1, "high": 0.3, "better": None}
    rows = [result_files.method("a<$x$>", runs=2), result_files.method("b", runs=2, difference=gap)]
    runs = [f"elsewhere/{name}" for name in ("a-seed0", "a-seed1", "b-seed0", "b-seed1")]
    folder.write_json("result.json", {"runs": runs, "methods": rows})


def test_a_comparison_and_names_that_are_no_formulas(make, tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "cmp")
    with pytest.raises(FedloomError, match="must be finished, but it has no result yet"):
        write([folder.path])
    compared(folder, make)
    drawn_plots = write([folder.path], formats=["svg"])
    assert [path.name for path in drawn_plots.written] == [
        "convergence.svg",
        "methods.svg",
        "cost.svg",
    ]
    labels = texts(folder.path / "plots" / "methods.svg")
    assert any("a&lt;$x$&gt;" in text or "a<$x$>" in text for text in labels)
    assert any("95 % interval" in text for text in labels)


def test_a_curve_over_seeds(make):
    runs = [
        FinishedRun.open(make("s0", accuracies=(0.2, 0.4)).path),
        FinishedRun.open(make("s1", accuracies=(0.4, None, 0.9)).path),
    ]
    assert curve("x", runs) == Curve(
        "x", [1], [pytest.approx(0.3)], [0.2], [0.4]
    )  # the round that both evaluated
    assert stages(runs[1]) == [(1.0, "a"), (2.0, "b")]


def test_the_phases_of_a_stage_are_marked(make):
    folder = make()
    phases = ("warm-up", "search", "search", "final")
    rows = [
        MetricsRow("train", number, 0.0, notes={"phase": phase})
        for number, phase in enumerate(phases, 1)
    ]
    (folder.path / "metrics.jsonl").write_bytes(b"".join(row.to_line() for row in rows))
    assert stages(FinishedRun.open(folder.path)) == [
        (1.0, "warm-up"),
        (2.0, "search"),
        (4.0, "final"),
    ]


@pytest.fixture
def only(tmp_path):
    """The texts of a single picture."""

    def drawn(make_folder):
        (drawing,) = make_folder
        (path,) = plots.save(drawing.figure, tmp_path, drawing.name, ["svg"])
        return texts(path)

    return drawn


def test_the_split_is_of_the_data(make, only):
    counted = ClassCounts(np.array([[3, 0], [1, 2]]), ["cat", "<dog>"], ["0", "hospital"])
    assert {"cat", "hospital", "3"} <= set(
        only(plots.pictures_of_split(make(), lambda folder: counted))
    )


def test_the_gain_matrix_if_it_was_measured(make, only):
    folder = make()
    measured = {
        "run": "r",
        "metric": "accuracy",
        "epochs": 1,
        "start": "inherit",
        "lr": 0.1,
        "clients": [0, 1],
    }
    measured |= {"matrix": [[0.9, None], [0.5, 0.8]], "gains": [None, 0.3], "gain": 0.3}
    folder.write_json("gain.json", measured)
    assert {"network of client j", "90", "50"} <= set(
        only(plots.pictures_of_gain(folder, ACCURACY))
    )
    folder.write_json("gain.json", {**measured, "gains": [0.3]})
    assert "gain.json is damaged" in str(list(plots.pictures_of_gain(folder, ACCURACY)))
    assert list(plots.pictures_of_gain(make("other"), ACCURACY)) == []


def test_the_gain_matrix_by_balanced_accuracy_and_by_auc(make):
    folder = make()
    measured = {
        "run": "r",
        "metric": "accuracy",
        "epochs": 1,
        "start": "inherit",
        "lr": 0.1,
        "clients": [0, 1],
    }
    measured |= {"matrix": [[0.9, None], [0.5, 0.8]], "gains": [None, 0.3], "gain": 0.3}
    measured |= {
        "balanced_accuracy": [[0.61, None], [0.62, 0.63]],
        "auc": [[0.71, 0.72], [None, 0.73]],
    }
    folder.write_json("gain.json", measured)
    texts = {}
    with charts.style():
        for picture in plots.pictures_of_gain(folder, ACCURACY):
            figure = drawn(picture.figure())
            texts[picture.name] = [text.get_text() for text in figure.axes[0].texts] + [
                figure.axes[1].get_ylabel()
            ]
    assert texts["gain-balanced"] == ["61", "–", "62", "63", "balanced accuracy (%)"]
    assert texts["gain-auc"] == ["71", "72", "–", "73", "AUC (%)"]
    assert texts["gain"][-1] == "accuracy (%)"


def drawn(figure: Figure) -> Figure:
    figure.canvas.draw()
    return figure


def test_a_thousand_clients():
    rows = [client_result(number, (number % 100) / 100) for number in range(1000)]
    with charts.style():
        figure = drawn(charts.clients(rows, ACCURACY, 0.5))
        assert (
            figure.get_figheight() < 9
            and figure.axes[0].get_ylabel() == "1000 clients, by their figure"
        )
        split = drawn(
            charts.split(
                np.ones((1000, 62)), [str(n) for n in range(62)], [str(n) for n in range(1000)]
            )
        )
        assert split.get_figheight() <= 6 and not split.axes[0].texts


def test_one_client_and_one_seed():
    with charts.style():
        drawn(charts.clients([client_result(0, 1.0, interval=None)], ACCURACY, 1.0))
        gap = Difference(mean=0.1, low=None, high=None)
        figure = drawn(charts.methods({"a": [0.5], "b": []}, {"b": gap}, ACCURACY))
        assert (
            figure.axes[1].get_xlabel() == "difference to a\n(no interval: one seed, or no spread)"
        )


def test_perplexity_is_not_a_percentage():
    with charts.style():
        figure = drawn(
            charts.convergence(
                [Curve("", [1, 2], [5.0, 4.0], [5.0, 4.0], [5.0, 4.0])], PERPLEXITY, ()
            )
        )
        assert figure.axes[0].get_ylabel() == "perplexity"
        assert figure.axes[0].lines[0].get_ydata()[0] == 5.0


def test_sizes_far_apart_are_on_a_logarithmic_axis():
    with charts.style():
        figure = charts.cost(
            {"": [client_result(0, 0.5, params=10), client_result(1, 0.5, params=10_000)]}, ACCURACY
        )
    assert [ax.get_xscale() for ax in figure.axes] == ["log", "linear"]


def test_the_command(make, capsys, monkeypatch):
    folder = make()
    monkeypatch.setattr(plots, "pictures_of_run", plots.pictures_of_split)
    assert cli.main(["plot", str(folder.path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["left_out"]) == ["split"]
    assert cli.main(["plot", str(folder.path), "--format", "pdf"]) == 2
    assert "--format must be png, svg or both, but got 'pdf'" in capsys.readouterr().err
    with pytest.raises(FedloomError, match="must be a folder that can be written"):
        plots.save(Figure, Path("/proc/x"), "a", ["svg"])
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert cli.main(["plot", str(folder.path)]) == 2
    assert "pip install 'fedloom[plots]'" in capsys.readouterr().err
    assert parse_formats("svg, png") == ("svg", "png")


def test_matplotlib_is_imported_late():
    """The reports and the command load without matplotlib."""
    for module in (plots, importlib.import_module("fedloom.commands.plot")):
        top = [
            node
            for node in ast.parse(inspect.getsource(module)).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert top and not any(
            "matplotlib" in ast.unparse(node) or "charts" in ast.unparse(node) for node in top
        )

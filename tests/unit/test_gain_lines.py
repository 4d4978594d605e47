"""gain.jsonl: its lines are written and read through one type, whatever became of the file."""

import json
from pathlib import Path
from types import SimpleNamespace

import mutating
import pytest
from test_edited_files import check_all

from fedloom.errors import FedloomError
from fedloom.evaluate.gain import FineTuning
from fedloom.metrics.figures import Figures
from fedloom.records.gain import GainLine, read_gain_lines
from fedloom.runs import gains
from fedloom.runs.gains import CellFigures, GainFile, Job, gain_of

COUNT = 1000  # mutations
HOW = FineTuning(epochs=2, start="fresh", lr=0.5)
ROWS = [
    {
        "i": 0,
        "j": 1,
        "epochs": 2,
        "start": "fresh",
        "lr": 0.5,
        "accuracy": 0.5,
        "balanced_accuracy": 0.25,
        "auc": 1.0,
    },
    {"i": 1, "j": 0, "epochs": 2, "start": "fresh", "lr": 0.5, "accuracy": None},
    {"i": 1, "j": 1, "epochs": 3, "start": "fresh", "lr": 0.5, "accuracy": 0.75},
]


def as_lines(rows):
    return b"".join(mutating.as_json(row) + b"\n" for row in rows)


@pytest.fixture
def lines(tmp_path):
    return GainFile(tmp_path / "gain.jsonl", "accuracy", HOW)


def test_a_line_has_the_figure_under_the_name_of_its_metric(lines):
    assert lines.read() == {}
    lines.append((0, 1), CellFigures(0.5, 0.25, 1.0))
    lines.append((1, 0), CellFigures(None))
    written = [json.loads(line) for line in lines.path.read_text().splitlines()]
    assert written == ROWS[:2] and [list(row) for row in written] == [list(row) for row in ROWS[:2]]
    assert lines.read() == {(0, 1): CellFigures(0.5, 0.25, 1.0), (1, 0): CellFigures(None)}


def test_lines_of_other_settings_are_another_matrix(lines):
    lines.path.write_bytes(as_lines(ROWS))
    assert list(lines.read()) == [(0, 1), (1, 0)]
    assert [line.epochs for line in read_gain_lines(lines.path, "accuracy")] == [2, 2, 3]


@pytest.mark.parametrize("torn", [b"{", b'{"i": 0, "j": 1}', b"\xff"])
def test_what_a_kill_left_of_the_last_line_is_cut_off(lines, torn):
    for whole in (b"", as_lines(ROWS[:1])):
        lines.path.write_bytes(whole + torn)
        assert len(lines.read()) == len(whole.splitlines())
        assert lines.path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "problem"),
    [(b"no cell", "it does not parse"), (b"[1, 2]", "it is not an object of JSON"),
     (b'{"i": 0}', "it lacks `j`"),
     (b"\xff", "it is not text in UTF-8"),
     (as_lines([{**ROWS[0], "accuracy": "much"}])[:-1], "`accuracy` should be"),
     (as_lines([{**ROWS[0], "start": "new"}])[:-1], "`start` should be"),
     (as_lines([{name: value for name, value in ROWS[0].items() if name != "accuracy"}])[:-1],
     "it lacks `accuracy`")],
    ids=str,
)  # fmt: skip
def test_a_spoilt_line_is_named(lines, line, problem):
    lines.path.write_bytes(as_lines(ROWS[:1]) + line + b"\n")
    with pytest.raises(FedloomError, match=r"line 2 of .* must hold a measured cell") as caught:
        lines.read()
    assert problem in str(caught.value)


def test_a_mutated_file_is_read_or_refused(lines):
    broken = mutating.mutations(as_lines(ROWS), ROWS, as_lines, COUNT)
    check_all(broken, lines.path, lines.read)


def test_what_a_later_version_writes_is_kept():
    line = GainLine.from_line(as_lines([{**ROWS[0], "seed": 4}])[:-1], "accuracy")
    assert json.loads(line.to_line("accuracy")) == {**ROWS[0], "seed": 4}


def test_auc_of_two_classes_stands_in_the_matrix(capsys):
    cells = {
        (0, 0): CellFigures(0.5, 0.6, 0.7),
        (0, 1): CellFigures(0.5, 0.6),
        (1, 0): CellFigures(None),
    }
    cells[1, 1] = CellFigures(0.9, 0.8, 0.875)
    gain = gain_of(Path("run"), "accuracy", (0, 1), HOW, cells)
    assert (
        gain.record.auc == [[0.7, None], [None, 0.875]] and gain.to_json()["auc"] == gain.record.auc
    )
    gain.table()
    words = " ".join(capsys.readouterr().out.split())
    assert "own bal. AUC gain" in words and "90.0 80.0 87.5" in words
    without = {cell: CellFigures(0.5, 0.6) for cell in cells}
    assert "auc" not in gain_of(Path("run"), "accuracy", (0, 1), HOW, without).to_json()


@pytest.mark.parametrize(("labels", "auc"), [(("a", "b"), 0.75), (("a", "b", "c"), None)])
def test_a_cell_has_auc_where_there_are_two_classes(labels, auc, monkeypatch):
    figures = Figures("accuracy", 4, 2, 0.5, None, {"balanced_accuracy": 0.625, "auc": 0.75})
    monkeypatch.setattr(gains, "fine_tuned", lambda *arguments: figures)
    monkeypatch.setattr(Job, "network", lambda job, client: None)
    site = SimpleNamespace(
        device="cpu", site=lambda stages: SimpleNamespace(data=lambda client: None)
    )
    job = Job("folder", site, SimpleNamespace(labels=labels), 1, HOW, (0, 1))
    assert job.measure() == CellFigures(0.5, 0.625, auc)

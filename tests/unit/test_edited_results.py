"""result.json edited or damaged in every way.

It is read, or refused in one sentence, wherever a result is read.

Before results had types, 755 of 3,500 such files made one of these readers raise something else.
"""

import contextlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import mutating
import pytest
from rich.console import Console
from test_edited_files import OLD, check_all, outcome_of

from fedloom import cli
from fedloom.cost.profile import Entry, Profile, this_machine
from fedloom.cost.timing import Timing
from fedloom.errors import FedloomError
from fedloom.export.card import card
from fedloom.export.description import MARK, ModelDescription, ModelInput
from fedloom.records.folder import RunFolder, all_runs
from fedloom.records.opening import FinishedRun
from fedloom.report.page import write_report
from fedloom.report.plots import write_plots
from fedloom.report.tables import runs_table
from fedloom.report.versus import beside_each_other, versus_page, write_comparison
from fedloom.runs import latency
from fedloom.runs.finished import open_finished
from fedloom.runs.preparing import reopen
from fedloom.runs.profiles import possible_pieces
from fedloom.runs.results import Run
from fedloom.runs.warm_start import input_of

FEW = 15  # mutations of each file
MANY = 1200
RUNS = ["fedavg", "spider", "adapt", "fednas-nasbench201", "federation-runs/finished"]
ABOUT = ModelDescription(
    format=MARK, input=ModelInput(shape=[1], mean=[0.0], std=[1.0], kind="image", dtype="float32"),
    labels=["a"], params=1, macs=2, fedloom="0", method="fedavg", round=1, stage="train",
    architecture=None, channels_last=False,
    client=None,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """What is imported or opened first is not the file's fault."""
    reopen(RunFolder.open(OLD / "fedavg"))
    write_report(
        RunFolder(Path(shutil.copytree(OLD / "fedavg", tmp_path_factory.mktemp("warm") / "run")))
    )


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return Path(shutil.copytree(OLD / name, tmp_path / "runs" / Path(name).name))

    return copy


def broken(path, count):
    content = path.read_bytes()
    return list(
        mutating.mutations(content, json.loads(content), mutating.as_json, count, seed=len(content))
    )


def listed(folder):
    summaries = [run.summary() for run in all_runs(folder)]
    Console(file=io.StringIO(), markup=False).print(runs_table(summaries))


def looked_at(path):
    """All that a notebook or a terminal shows of a run."""
    run = Run.open(path)
    with contextlib.redirect_stdout(io.StringIO()):
        run.table()
    assert run.accuracy and run.figures and json.dumps([run.to_json(), run.result])
    assert run._repr_html_() and all(client._repr_html_() for client in run.clients)


def check_every_reader(contents, path, readers):
    """If one reader refuses a result, no other one uses it: they refuse it too, or leave it out."""
    for name, read in readers.items():
        outcomes = []
        for content in contents:
            path.write_bytes(content)
            outcomes.append((outcome_of(read), content[:300]))
        wrong = [outcome for outcome in outcomes if outcome[0] not in ("read", "refused")]
        assert not wrong, f"{name}: {len(wrong)} of {len(outcomes)}, the first: {wrong[0]}"


def readers_of(run, other):
    return {
        "the folder": lambda: (RunFolder(run).result(), RunFolder(run).damaged()),
        "the list of runs": lambda: listed(run.parent),
        "its report": lambda: write_report(RunFolder(run)),
        "a report of several": lambda: versus_page(beside_each_other([run, other]), run),
        "the Python API": lambda: looked_at(run),
        "a warm start": lambda: input_of(RunFolder(run), FinishedRun.open(run).record),
    }


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RUNS)
def test_results_of_runs(name, count, copied):
    run = copied(name)
    other = copied("local")
    contents = broken(run / "result.json", count)
    check_every_reader(contents, run / "result.json", readers_of(run, other))
    check_all(contents, run / "result.json", lambda: FinishedRun.open(run))


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fedavg", "spider"])
def test_model_cards(name, count, copied):
    run = copied(name)
    finished = open_finished(run)

    def read():
        edited = replace(finished, run=FinishedRun.open(run))
        assert all(card(edited, ABOUT.replace(client=client), []) for client in (None, 0, 7))

    check_all(broken(run / "result.json", count), run / "result.json", read)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_results_of_comparisons(count, copied):
    folder = RunFolder(copied("compare"))
    contents = broken(folder.path / "result.json", count)
    readers = {
        "the folder": folder.comparison,
        "the list of runs": lambda: listed(folder.path.parent),
        "its report": lambda: write_comparison(folder),
    }
    check_every_reader(contents, folder.path / "result.json", readers)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_run_of_a_comparison(count, copied):
    folder = RunFolder(copied("compare"))
    path = folder.path / "fedavg-seed0" / "result.json"
    check_every_reader(
        broken(path, count), path, {"the comparison's report": lambda: write_comparison(folder)}
    )


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """Of this machine, made up, with all operations of a run; networks are not measured either."""

    def make(run):
        entries = [
            Entry(**piece._asdict(), ms=0.5, spread_ms=0.1, repeats=5)
            for piece in possible_pieces(latency.task_of(run))
        ]
        made_up = Profile(machine=this_machine("cpu"), made="2026-01-01", entries=tuple(entries))
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(made_up.to_json()))
        return str(path)

    monkeypatch.setattr(latency, "in_turns", lambda works, *_: [Timing(1.0, 0.1) for _ in works])
    return make


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["spider", "fednas-nasbench201"])
def test_checking_a_profile(name, count, copied, profile):
    run = copied(name)
    made_up = profile(run)
    contents = broken(run / "result.json", count)
    for client in (0, 1):
        for edit in (
            {"params": None}, {"architecture": {"a": 1}},
            {"architecture": {"space": 3, "choice": [[0]]}},
            {"architecture": {"space": "darts:s2:2", "choice": 3}}, {"architecture": {}},
        ):  # fmt: skip
            tree = json.loads((OLD / name / "result.json").read_text())
            tree["clients"][client].update(edit)
            contents.append(mutating.as_json(tree))
    check_all(
        contents,
        run / "result.json",
        lambda: latency.check(run, made_up, None, 1, lambda *_: None).to_json(),
    )


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (
            {"params": None},
            "must say how many parameters the network of client 0 has, but it says null; delete",
        ),
        (
            {"architecture": {"a": 1}},
            "for client 0, but an architecture must have a `space` and a `choice`",
        ),
    ],
)
def test_what_is_wrong_with_a_network_is_named(edit, sentence, copied, profile, capsys):
    run = copied("spider")
    made_up = profile(run)
    tree = json.loads((run / "result.json").read_text())
    tree["clients"][0].update(edit)
    (run / "result.json").write_bytes(mutating.as_json(tree))
    assert cli.main(["profile", "check", str(run), "--profile", made_up]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"fedloom: {run}/result.json must ") and errors.count("\n") == 1
    assert sentence in errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "compare"])
def test_pictures(name, copied):
    def gone(folder):
        raise FedloomError("the data must be there", "they are gone", "fetch them")

    run = copied(name)
    path = run / "result.json"
    for content in broken(path, 100):
        path.write_bytes(content)
        with contextlib.suppress(FedloomError):
            write_plots([run], gone, formats=["svg"])


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b"[[[[" * 3000,
        b"[]",
        b'{"metric": "accuracy"}',
        b'{"a": Infinity}',
        b'{"a": 1, "a": 2}',
    ],
    ids=repr,
)
def test_the_command_line_says_one_sentence(damage, copied, capsys):
    run = copied("fedavg")
    comparison = copied("compare")
    for folder in (run, comparison):
        (folder / "result.json").write_bytes(damage)
    for words in (
        ["runs", "list", str(run), str(comparison)],
        ["report", str(run)],
        ["report", str(comparison)],
    ):
        assert cli.main(words) == 0  # they are shown as not finished
        assert "Traceback" not in capsys.readouterr().err
    for folder in (run, comparison):
        assert "result.json is damaged: " in (folder / "report.html").read_text()
    for words in (
        ["export", str(run), "--shared"], ["predict", str(run), "--data", "digits", "--shared"],
        ["adapt", str(run), "--data", "digits"], ["gain", str(run)], ["plot", str(run)],
        ["plot", str(comparison)],
        ["report", str(run), str(run)], ["run", "fedavg", "--init", str(run)],
    ):  # fmt: skip
        assert cli.main(words) == 2, words
        errors = capsys.readouterr().err
        assert errors.startswith("fedloom: ") and errors.count("\n") == 1
        assert "its result.json is damaged: " in errors and "fedloom resume" in errors

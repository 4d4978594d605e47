import json

import pytest

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError, RunStopped
from fedloom.records.folder import FORMAT, RunFolder, RunSummary, all_runs, numbered
from fedloom.report.tables import runs_table
from result_files import method
from result_files import result as made

RESULT = made(metric="perplexity", perplexity={"mean": 7.5}, accuracy={"mean": 0.75})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names():
    return [folder.path.name for folder in all_runs()]


def test_numbers_follow_the_largest():
    assert all_runs() == []
    RunFolder.create("run", "a", None)
    RunFolder.create("run", "b-c", None)
    assert names() == ["1-a", "2-b-c"]
    RunFolder(all_runs()[0].path).remove()
    RunFolder.create("run", "d", None)
    assert names() == ["2-b-c", "3-d"]  # a number is not given again while a later one is there


def test_numbers_are_numbers(tmp_path):
    for name in ("9-x", "10-y", "notes", "x-11", "²-z"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert numbered("next").name == "11-next"
    for path in (tmp_path / "runs").iterdir():
        (path / "run.json").write_text("{}")
    assert names()[-3:] == ["9-x", "10-y", "11-next"]


def test_somebody_else_was_faster(tmp_path, monkeypatch):
    """Two processes that see the same numbers end up in two folders."""
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(type(tmp_path), "iterdir", lambda path: iter(()))
    assert [numbered("x").name, numbered("x").name] == ["1-x", "2-x"]


def test_create_and_open(tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "deep" / "down")
    assert json.loads((folder.path / "run.json").read_text())["format"] == FORMAT
    again = RunFolder.open(folder.path)
    assert (again, again.kind) == (folder, "compare")
    with pytest.raises(
        FedloomError, match=r"--out must be a new or empty folder, but .* has content"
    ):
        RunFolder.create("run", "x", folder.path)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "runs").write_text("no folder")
    with pytest.raises(FedloomError, match="runs must be a folder that can be written, but"):
        RunFolder.create("run", "x", None)


@pytest.mark.parametrize(
    "head", [None, "", "null", "[1]", "{}", '{"format": "one"}', '{"format": null}']
)
def test_no_run(tmp_path, head):
    if head is not None:
        (tmp_path / "run.json").write_text(head)
    with pytest.raises(
        FedloomError, match=r"must be the folder of a run, but it has no valid run.json; see"
    ):
        RunFolder.open(tmp_path)


def test_a_newer_format(tmp_path):
    (tmp_path / "run.json").write_text(
        json.dumps({"format": FORMAT + 1, "kind": "run", "fedloom": "7.5"})
    )
    with pytest.raises(
        FedloomError,
        match=f"but it was written by fedloom 7.5 in format {FORMAT + 1}, this one reads",
    ):
        RunFolder.open(tmp_path)


def test_configuration(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with pytest.raises(
        FedloomError, match=r"config.toml must be a run's configuration in TOML, but"
    ):
        folder.config()
    config = Experiment(seed=5, options={"lr": 0.5})
    folder.write_text("config.toml", config.to_toml())
    assert folder.config() == config
    folder.write_text("config.toml", "seed = ")
    with pytest.raises(
        FedloomError, match=r"config.toml must be a run's configuration in TOML, but"
    ):
        folder.config()


def test_json_has_no_nan(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with pytest.raises(ValueError, match="Out of range"):
        folder.write_json("result.json", {"accuracy": float("nan")})
    assert folder.result() is None
    folder.write_json("result.json", {**RESULT, "method": "ä"})
    assert folder.result().to_json() == {**RESULT, "method": "ä"}


def test_one_process_at_a_time(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with folder.lock():
        with pytest.raises(
            FedloomError, match="must not be in use, but another process works in it"
        ):
            folder.lock()
        with pytest.raises(FedloomError, match="must not be in use"):
            folder.remove()
    folder.lock().close()
    folder.remove()
    assert not folder.path.exists()


def test_a_failing_disk_stops_the_run(tmp_path):
    folder = RunFolder(tmp_path)
    message = r"must be writable, but .*No space left.*; make room and resume"
    with pytest.raises(RunStopped, match=message) as caught, folder.writing():
        raise OSError(28, "No space left on device")
    assert caught.value.code == 3


def test_fresh_is_empty(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    (folder.fresh("exchange") / "left").write_text("behind")
    assert list(folder.fresh("exchange").iterdir()) == []


def test_summary(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    size = (folder.path / "run.json").stat().st_size
    expected = {
        "run": str(folder.path),
        "kind": "run",
        "state": "unfinished",
        "rounds": 0,
        "metric": None,
    }
    assert folder.summary() == RunSummary(
        **expected, mean=None, balanced_accuracy=None, auc=None, bytes=size
    )
    (folder.path / "metrics.jsonl").write_text("{}\n{}\n{}\n")
    folder.write_json("result.json", RESULT)
    summary = folder.summary()
    assert (summary.state, summary.rounds, summary.metric, summary.mean) == (
        "finished",
        3,
        "perplexity",
        7.5,
    )


def test_a_comparison_has_no_figure_of_its_own(tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "compare")
    folder.write_json("result.json", {"runs": ["fedavg-seed0"], "methods": [method()]})
    summary = folder.summary()
    assert (summary.state, summary.metric, summary.mean) == ("finished", None, None)


@pytest.mark.parametrize(
    "result",
    [{"metric": "accuracy"}, {}, {**RESULT, "metric": "beauty"}, {**RESULT, "metric": ["accuracy"]},
     {**RESULT, "perplexity": 7.5}, {"runs": [], "methods": []}],
    ids=["little", "empty", "unknown metric", "no metric", "no figures", "of a comparison"],
)  # fmt: skip
def test_something_else_than_a_result_is_none(result):
    """One such folder does not break the list of all."""
    folder = RunFolder.create("run", "x", None)
    RunFolder.create("run", "y", None).write_json("result.json", RESULT)
    folder.write_json("result.json", result)
    assert folder.result() is None and folder.damaged() == ["result.json"]
    summaries = [folder.summary() for folder in all_runs()]
    assert [summary.state for summary in summaries] == ["unfinished", "finished"]
    assert runs_table(summaries).row_count == 2


@pytest.mark.parametrize(
    ("mean", "state"), [(None, "finished"), ("much", "unfinished"), ([1], "unfinished")], ids=str
)
def test_a_figure_that_is_no_number_is_not_known(tmp_path, mean, state):
    """None: nobody had one. Something else is no result, and a resume makes it again."""
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json("result.json", {**RESULT, "perplexity": {"mean": mean}})
    assert (folder.summary().mean, folder.summary().state) == (None, state)
    assert runs_table([folder.summary()]).row_count == 1


def test_files_that_changed(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_text("metrics.jsonl", "{}\n")
    checksums = folder.checksums(["metrics.jsonl", "run.json"])
    folder.write_json("result.json", {**RESULT, "checksums": {**checksums, "gone": "0" * 64}})
    assert folder.damaged() == ["gone"]
    folder.write_text("metrics.jsonl", "{}\n{}\n")
    assert folder.damaged() == ["metrics.jsonl", "gone"]
    folder.write_json(
        "result.json", {**RESULT, "checksums": {"\0": "0" * 64}}
    )  # which is the name of no file
    assert folder.damaged() == ["result.json"]


@pytest.mark.parametrize(
    "checksums", [None, [], ["run.json"], "0" * 64, 5, {"run.json": 5}, {"run.json": None}], ids=str
)
def test_checksums_that_are_none(tmp_path, checksums):
    """Then it is the result that was edited."""
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json("result.json", {**RESULT, "checksums": checksums})
    assert folder.damaged() == ["result.json"]

"""result.json through its types: it is rewritten to the byte, and what is wrong is named."""

import json
from pathlib import Path

import pytest

import result_files
from fedloom.errors import FedloomError
from fedloom.reading import Unreadable
from fedloom.records.comparison import ComparisonResult, MethodRow
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, finished_comparison, one_run
from fedloom.records.result import RunResult

OLD = Path(__file__).parents[1] / "fixtures"
FILES = sorted(OLD.rglob("result.json"))
TIER = {
    "tier": 1,
    "limit": {"macs": 4000.0},
    "clients": 2,
    "eligible": 3,
    "path": ["conv1", "identity"],
    "architecture": {"space": "short", "choice": [[0], [3]]},
    "head": "mean",
    "params": 5,
    "macs": 6,
    "macs_paper": 7,
    "validation": {"loss": 0.5, "accuracy": 0.75},
    "supernet": 0.25,
    "global": 0.5,
    "own": {"mean": 0.5, "std": 0.0, "worst": 0.5, "pooled": 0.5},
    "tuned_rounds": 2,
    "control": {
        "path": ["conv1", "conv1"],
        "macs": 6,
        "validation": {"loss": 0.75, "accuracy": 0.5},
    },
    "front": [{"path": ["conv1", "identity"], "loss": 0.5, "macs": 6}],
}
MACHINE = {"profile": "mine", "processor": "chip", "system": "Linux", "device": "cpu", "torch": "2"}
EVERYTHING = {
    "confusion": {"labels": ["a", "b"], "clients": 1, "counts": [[1, 0], [2, 3]]},
    "memory": 5,
    "input": {
        "kind": "image",
        "shape": [1, 2, 2],
        "labels": ["a", "b"],
        "mean": [0.5],
        "std": [1.5],
    },
    "versions": {"fedloom": "0.2.0", "torch": "2", "python": "3", "took_part": ["0.1.0", "0.2.0"]},
    "init": {"run": "old", "client": 1, "hash": "f", "seen": 3},
    "latency": MACHINE,
    "phases": [{"phase": "final", "rounds": 3, "paper": None}],
    "tiers": [TIER, {**TIER, "tier": 2, "control": {"reason": "none was found"}}],
    "fairness": {"mean": 0.5, "std": 0.0, "worst": 0.5},
    "ops": [{"conv1": 3, "identity": 0}],
    "search": {"score": "central", "models": 8, "generations": 2},
    "lost_states": [{"client": 0, "round": 2, "how": "fresh"}],
    "taken_back": [{"since": 4, "to": 2}],
    "capped": {"0": {"rounds": 2, "share": 0.7}},
    "claims": ["site east claims"],
    "checksums": {"split.json": "0"},
}


def written(result):
    """The text that a folder would write."""
    return json.dumps(result.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def made(**more):
    return result_files.result(
        [result_files.client(0), result_files.client(1, None, reason="died")], **more
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_result_of_the_first_version_is_written_again_to_the_byte(path):
    kind = ComparisonResult if path.parent.name == "compare" else RunResult
    assert written(kind.read(path)) == path.read_text()


def test_there_are_results_of_both_kinds():
    assert len(FILES) > 20 and any(path.parent.name == "compare" for path in FILES)


def test_every_field_is_kept():
    raw = made(**EVERYTHING, f1={"mean": 0.5, "std": None, "worst": 0.25, "worst10": None})
    raw["clients"][0] |= {
        "latency_ms": 1.5,
        "seconds": 2.5,
        "memory": 7,
        "shared_interval": [0.25, 0.5],
        "tier": 2,
    }
    assert RunResult.from_json(raw).to_json() == raw
    row = result_files.method(
        difference={"mean": 0.1, "low": 0.0, "high": 0.2, "better": None}, memory=3, seen=None
    )
    assert MethodRow.from_json(row).to_json() == row


def test_what_a_field_is_called_here_and_in_the_file():
    raw = made(**{"global": 0.75, "f1": {"mean": 0.125}})
    raw["clients"][0] |= {"shared_accuracy": 0.25}
    result = RunResult.from_json(raw)
    assert (result.shared_pooled, result.spread.mean, result.spread_of("f1").mean) == (
        0.75,
        0.5,
        0.125,
    )
    first = result.clients[0]
    assert (first.figure, first.shared_figure, first.beside["f1"], first.is_personal) == (
        0.5,
        0.25,
        0.5,
        True,
    )
    assert (
        result.spread_of("auc").mean is None
        and result.client(1).reason == "died"
        and result.client(2) is None
    )
    row = MethodRow.from_json(
        result_files.method(mean=0.25, **{"global": {"mean": 0.5, "std": None}})
    )
    assert (row.figure.mean, row.shared.mean) == (0.25, 0.5)


def test_a_tiers_figure_over_all_clients_is_global_in_the_file():
    raw = made(tiers=[TIER])
    assert RunResult.from_json(raw).tiers[0].pooled_over_all == 0.5
    with pytest.raises(Unreadable, match=r"`tiers\.0\.global`"):
        RunResult.from_json(made(tiers=[{**TIER, "global": "half"}]))


def test_fields_that_came_later_stay_absent():
    raw = made()
    for name in (
        "options",
        "confusion",
        "registered",
        "selected",
        "validation",
        "measured_clock",
        "versions",
    ):
        del raw[name]
    result = RunResult.from_json(raw)
    assert (result.memory, result.phases, result.versions, result.registered) == (None, [], None, 0)
    assert result.to_json() == raw


def test_fields_of_a_later_version_are_kept():
    raw = made(weather={"today": ["fine"]})
    raw["clients"][0] |= {"mood": "good", "figures": 3}
    raw["data"]["owner"] = None
    assert RunResult.from_json(raw).to_json() == raw
    comparison = {"runs": ["a"], "methods": [{**result_files.method(), "new": 1}], "new": {"a": 1}}
    assert ComparisonResult.from_json(comparison).to_json() == comparison


def test_a_name_that_only_looks_like_one_of_ours_is_nothing():
    raw = made(spread={"mean": 0.9}, traffic="much", shared_pooled="x", beside=3)
    raw["clients"][0] |= {"figure": 0.9, "shared_figure": [], "beside": 3}
    result = RunResult.from_json(raw)
    assert result.spread.mean == 0.5 and result.clients[0].figure == 0.5
    assert result.to_json() == made()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bytes": None}, "`bytes` should be a valid dictionary"),
        ({"bytes": {"down": 1}}, "it lacks `bytes.up`"),
        ({"global": "x"}, "`global` should be a valid number, and is 'x'"),
        ({"accuracy": {"mean": True}}, "`accuracy.mean` should be a valid number, and is True"),
        ({"f1": {"mean": []}}, "`f1.mean` should be a valid number"),
        ({"accuracy": {"mean": 1e200}}, "`accuracy.mean` should be less than or equal to"),
        ({"accuracy": {"mean": float("inf")}}, "`accuracy.mean` has inf, which is not finite"),
        ({"metric": "beauty"}, "`metric` should be one of accuracy, perplexity"),
        ({"metric": ["accuracy"]}, "`metric` should be one of accuracy, perplexity"),
        ({"metric": "perplexity"}, "it lacks `perplexity`"),
        ({"clients": {}}, "`clients` should be a valid list"),
        ({"clients": [3]}, "`clients.0` should be"),
        ({"rounds": 10**40}, "`rounds` has a whole number beyond 100 bits"),
        (
            {"phases": [{"phase": "a", "rounds": 0, "paper": None}]},
            "`phases.0.rounds` should be greater than",
        ),
        ({"checksums": {"a": 5}}, "`checksums.a` should be a valid string"),
        (
            {"confusion": {"labels": ["a"], "clients": 1, "counts": [[1, 2]]}},
            "a row and a column for each label",
        ),
        ({"options": {"a": "\ud800"}}, "`options.a` has a character that no text has"),
    ],
)
def test_the_first_place_that_is_wrong_is_named(changes, says):
    with pytest.raises(Unreadable) as caught:
        RunResult.from_json({**made(), **changes})
    assert says in str(caught.value) and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"client": None}, "`clients.1.client` should be a valid integer"),
        ({"accuracy": "x"}, "`clients.1.accuracy` should be a valid number"),
        ({"shared_accuracy": {}}, "`clients.1.shared_accuracy` should be a valid number"),
        ({"f1": "x"}, "`clients.1.f1` should be a valid number"),
        ({"interval": [0.5]}, "`clients.1.interval` should be two numbers, and is [0.5]"),
    ],
)
def test_of_a_client_too(changes, says):
    raw = made()
    raw["clients"][1] |= changes
    with pytest.raises(Unreadable) as caught:
        RunResult.from_json(raw)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], "it is not an object of JSON"),
        ({"runs": []}, "it lacks `methods`"),
        ({"runs": [], "methods": [3]}, "`methods.0` is not an object of JSON"),
        ({"runs": ["a"], "methods": [{}]}, "`methods.0.metric` should be one of"),
        ({"runs": ["a"], "methods": [result_files.method(worst=3)]}, "`methods.0.worst` should be"),
        (
            {"runs": ["a"], "methods": [result_files.method(accuracy={})]},
            "it lacks `methods.0.accuracy.mean`",
        ),
        (
            {"runs": [], "methods": [result_files.method()]},
            "`methods` count other runs than `runs` names",
        ),
    ],
)
def test_of_a_comparison_too(raw, says):
    with pytest.raises(Unreadable) as caught:
        ComparisonResult.from_json(raw)
    assert says in str(caught.value)


def test_where_the_runs_of_a_comparison_are():
    """The comparison may have been moved; all seeds of a method follow one another."""
    names = ["fedavg-seed0", "fedavg-seed1", "local-seed0", "local-seed1"]
    rows = [result_files.method(name, runs=2) for name in ("fedavg", "local")]
    result = ComparisonResult.from_json(
        {"runs": [f"elsewhere/{name}" for name in names], "methods": rows}
    )
    here = Path("here")
    assert result.folders_of(here) == {
        "fedavg": [here / "fedavg-seed0", here / "fedavg-seed1"],
        "local": [here / "local-seed0", here / "local-seed1"],
    }


# Runs that must be there


def test_one_run_and_not_a_comparison(tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "cmp")
    for opened in (one_run, FinishedRun.open):
        with pytest.raises(
            FedloomError, match="cmp must be one run, but it is a comparison; name one of the runs"
        ):
            opened(folder.path)
    with pytest.raises(
        FedloomError, match="cmp must be finished, but it has no result yet; `fedloom resume"
    ):
        finished_comparison(folder)


def test_a_run_that_is_not_finished_or_whose_result_is_damaged(tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with pytest.raises(
        FedloomError, match="run must be a finished run, but it has no result yet; `fedloom resume"
    ):
        FinishedRun.open(folder.path)
    folder.write_json("result.json", made(seconds="long"))
    rule = "run must be a finished run"
    says = rf"{rule}, but its result.json is damaged: `seconds` should be a valid number"

    with pytest.raises(FedloomError, match=says) as caught:
        FinishedRun.open(folder.path)
    assert str(caught.value).endswith(f"`fedloom resume {folder.path}` makes it again.")
    assert folder.result() is None
    folder.write_json("result.json", made())
    assert FinishedRun.open(folder.path).record == folder.result()

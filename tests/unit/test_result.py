import json
from dataclasses import replace

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.federation.server.loop import Outcome
from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult, cautions_of
from fedloom.records.rows import Evaluation, LedgerLine, MetricsRow
from fedloom.records.totals import Totals
from fedloom.report.tables import schedule
from fedloom.runs.configure import configure
from fedloom.runs.experiment import prepare
from fedloom.runs.result_of import Work, in_phases, result_of, stage_ends, worked
from fedloom.runs.result_of import build_result as built
from fedloom.runs.result_of import privacy as privacy_of
from fedloom.runs.results import Run
from fedloom.types import State


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.npz"
    np.savez(path, x=np.arange(60 * 25, dtype=np.uint8).reshape(60, 5, 5), y=np.arange(60) % 2)

    def make(method="fedavg", clients=3):
        data = {"name": str(path), "clients": clients, "partition": "iid"}
        return prepare(configure(method, {"data": data, "seed": 4}))

    return make


def figures(correct, samples=4):
    share = correct / samples
    rest = {"interval": [0.0, 1.0], "balanced_accuracy": share, "f1": share / 2, "auc": None, "answers": 1}
    return {"samples": samples, "correct": correct, "accuracy": share, **rest}


def answered(client, personal, shared=None):
    facts = {"params": 7, "macs": 11, "architecture": "tiny"}
    return {"client": client, "personal": figures(personal), "shared": shared and figures(shared), "facts": facts}


def outcome(*clients, **more):
    totals = Totals(3, 100, 50, 7, 8, 900, 1.0, 2.34567, 30, 40, 5, 9.87654)
    return Outcome(tuple(clients), totals, **{"rounds": 3, "selected": 3, "validation": None, "state": State(), **more})


def build_result(*parts):
    return built(*parts).to_json()


SILENT = {"client": 2, "personal": None, "shared": None, "reason": "died: it fell over"}


def test_figures_by_hand(prepared):
    found = build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1, 1), SILENT), {})
    assert found["accuracy"] == {"mean": 0.625, "std": 0.375, "worst": 0.25, "worst10": 0.25, "pooled": 5 / 8}
    assert found["f1"]["mean"] == 0.3125
    assert found["auc"]["mean"] is None
    assert found["global"] == 3 / 8  # the shared model, pooled
    assert (found["method"], found["seed"], found["metric"]) == ("fedavg", 4, "accuracy")
    assert (found["seconds"], found["clock"], found["macs"]) == (9.877, 2.346, 900)
    assert found["bytes"] == {
        "down": 100, "up": 50, "lan_down": 7, "lan_up": 8, "evaluate_down": 30, "evaluate_up": 40,
    }  # fmt: skip
    assert set(found["versions"]) == {"fedloom", "torch", "python"}
    assert found["data"]["partition"] == "iid"
    json.dumps(found, allow_nan=False)


def test_clients(prepared):
    first, second, third = build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {})["clients"]
    assert (first["samples"], first["test_samples"]) == (20, 4)
    assert (first["accuracy"], first["shared_accuracy"], second["shared_accuracy"]) == (1.0, 0.5, None)
    assert (first["params"], first["macs"], first["architecture"]) == (7, 11, "tiny")
    assert "reason" not in first
    assert (third["accuracy"], third["params"], third["reason"]) == (None, None, "died: it fell over")
    assert third["samples"] == 20


def test_clients_whose_figures_must_be_read_with_caution(prepared):
    """Client 0 is right with its one answer: all its samples are of one class, which is no fault."""
    found = built(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {})
    assert found.cautions.to_json() == {"clients": 2, "one_answer": 1, "shared_one_answer": 1, "few_samples": 2}
    assert [client.has_one_answer for client in found.clients] == [False, True, None]
    assert [client.answers for client in found.clients] == [1, 1, None]
    before = [client.replace(answers=None, shared_answers=None) for client in found.clients]
    assert cautions_of(before).one_answer is None  # files of earlier versions do not tell


def test_what_personal_models_gained(prepared):
    found = built(prepared(), outcome(answered(0, 4, 2), answered(1, 1, 2), SILENT), {})
    assert found.personal_gain.to_json() == {"clients": 2, "own": 0.625, "shared": 0.5, "better": 1, "worse": 1}
    assert found.shared_balanced_accuracy == 0.5
    assert built(prepared(), outcome(answered(0, 4, 4), answered(1, 1)), {}).personal_gain is None
    other = answered(0, 4, 4)
    other["shared"] = {**other["shared"], "auc": 0.5}  # another model, although as many answers are right
    gain = built(prepared(), outcome(other), {}).personal_gain
    assert gain.to_json() == {"clients": 1, "own": 1.0, "shared": 1.0, "better": 0, "worse": 0}


def row(**more):
    return MetricsRow(**{"stage": "train", "round": 1, "progress": 0.0, **more})


def test_what_work_took(prepared):
    """The ledger has [client, hop, down, up, MACs, seconds, memory]; describing and evaluating are no work."""
    ledgers = [
        [[0, -1, 1, 1, 1, 9.0, 900], [0, 0, 1, 1, 1, 1.5, 70], [1, 0, 1, 1, 1, 2.0, None]],
        [[0, 0, 1, 1, 1, 0.25, 60], [1, 0, 1, 1, 1, None, 50], [2, 0, 1, 1, 1, 3.0]],
    ]
    took = worked([row(ledger=tuple(LedgerLine(*line) for line in ledger)) for ledger in ledgers])
    assert took == {0: Work(1.75, 70), 1: Work(2.0, 50), 2: Work(3.0, None)}
    found = build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {0: took[0]})
    assert found["memory"] == 70
    assert [(row["seconds"], row["memory"]) for row in found["clients"]] == [(1.75, 70), (None, None), (None, None)]


def test_what_earlier_stages_ended_with():
    def of(stage, value=None):
        if value is None:
            return row(stage=stage)
        return row(stage=stage, evaluation=Evaluation("test", 2, "accuracy", value, value - 0.25))

    rows = [of("search", 0.25), of("search", 0.5), of("search"), of("tune", 0.75), of("cut", 1.0)]
    ends = stage_ends(["search", "tune"], rows)
    assert [end.to_json() for end in ends] == [
        {"stage": "search", "rounds": 3, "part": "test", "figure": 0.5, "shared": 0.25},
        {"stage": "tune", "rounds": 1, "part": "test", "figure": 0.75, "shared": 0.5},
    ]
    assert stage_ends([], rows) == []


def test_rounds_by_phase_beside_the_papers(prepared):
    phases = ["warm-up", "search", None, "final", "final"]
    rows = [row(notes={} if phase is None else {"phase": phase}) for phase in phases]
    stages = prepared("spider").stages
    assert [phase.to_json() for phase in in_phases(stages, rows)] == [
        {"phase": "warm-up", "rounds": 1, "paper": 0.04}, {"phase": "search", "rounds": 1, "paper": 0.28},
        {"phase": "final", "rounds": 2, "paper": 0.68},
    ]  # fmt: skip
    assert in_phases(stages, [row()]) == []
    told = " Rounds by phase: 1 warm-up (25 %), 1 search (25 %), 2 final (50 %); the paper's 4, 28, 68 %."
    assert schedule(in_phases(stages, rows)) == told and schedule([]) == ""


def test_confusion_is_added_up_over_the_clients_that_told(prepared):
    told = [{**answered(k, 4), "confusion": [[k, 1], [0, 2]]} for k in (0, 1)]
    found = build_result(prepared(), outcome(*told, SILENT), {})
    assert found["confusion"] == {"labels": ["0", "1"], "clients": 2, "counts": [[1, 2], [0, 4]]}
    assert build_result(prepared(), outcome(answered(0, 4), SILENT), {})["confusion"] is None


def test_nobody_answered(prepared):
    silent = [{**SILENT, "client": client} for client in range(3)]
    found = build_result(prepared(), outcome(*silent), {})
    assert found["accuracy"] == dict.fromkeys(("mean", "std", "worst", "worst10", "pooled"))
    assert found["global"] is None


def test_who_was_capped_and_what_sites_claim(prepared, tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    assert not {"capped", "claims"} & set(result_of(folder, prepared(), outcome(answered(0, 4))).to_json())
    rows = [row(capped={0: 0.6}), row(), row(capped={0: 0.7, 2: 0.5})]
    (folder.path / "metrics.jsonl").write_bytes(b"".join(each.to_line() for each in rows))
    folder.write_json("claims.json", [{"site": "east", "before": 10, "now": 30}])
    found = result_of(folder, prepared(), outcome(answered(0, 4))).to_json()
    assert found["capped"] == {"0": {"rounds": 2, "share": 0.7}, "2": {"rounds": 1, "share": 0.5}}
    assert found["claims"] == ["site east claims 30 samples, 10 in its last experiment"]


@pytest.fixture
def run(prepared, tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with pytest.raises(FedloomError, match="must be a finished run, but it has no result yet; `fedloom resume"):
        Run.open(folder.path)
    folder.write_json("result.json", build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {}))
    return Run.open(folder.path)


def test_json_has_exactly_the_keys_of_the_issue(run):
    found = run.to_json()
    figures = ["metric", "lower_is_better", "accuracy", "balanced_accuracy", "auc", "global"]
    judgement = ["personal_gain", "most_common_class", "cautions"]
    assert list(found) == ["run", "method", "seed", *figures, *judgement, "clients", "bytes", "seconds"]
    assert (found["metric"], found["lower_is_better"]) == ("accuracy", False)
    assert list(found["accuracy"]) == ["mean", "std", "worst", "pooled"]
    assert found["bytes"] == {"down": 100, "up": 50}
    assert found["clients"][0] == {
        "client": 0, "samples": 20, "test_samples": 4, "accuracy": 1.0, "balanced_accuracy": 1.0, "auc": None,
        "answers": 1, "params": 7, "macs": 11, "architecture": "tiny",
    }  # fmt: skip
    assert found["balanced_accuracy"] == {"mean": 0.625, "std": 0.375, "worst": 0.25}
    assert found["clients"][2]["accuracy"] is None
    assert found["run"] == str(run.path)


def test_clients_by_number(run):
    assert [client.client for client in run.clients] == [0, 1, 2]
    assert (run.client(1).figure, run.client(1).accuracy, run.client(1).figures["f1"]) == (0.25, 0.25, 0.125)
    assert run.figures == run.accuracy
    with pytest.raises(FedloomError, match="a client must be one of the run's, but got 3"):
        run.client(3)


def test_table(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    run.table()
    shown = capsys.readouterr().out
    assert "mean 62.5 ± 37.5 over clients, worst 25.0, pooled 62.5 %" in " ".join(shown.split())
    assert "died: it fell over" in shown


def test_a_reason_is_shown_as_it_is(run, capsys):
    """Rich must not read a client's words as its own markup: [/] would end the command with a traceback."""
    strange = [{**row, "reason": "raised: [/b] [red]"} for row in run.result["clients"]]
    replace(run, record=RunResult.from_json({**run.result, "clients": strange})).table()
    assert "[/b]" in capsys.readouterr().out


# Privacy


def test_privacy_lists_every_field_that_leaves_a_client(prepared):
    rows = privacy_of(prepared("local-adaptation").stages).to_json()["left_the_clients"]
    found = {(row["stage"], row["order"]): row["fields"] for row in rows}
    assert list(found) == [("every", "describe"), ("every", "evaluate"), ("train", "train"), ("adapt", "adapt")]
    assert found["every", "describe"]["values"] == ["shape", "labels", "samples", "extra", "weight"]
    assert found["every", "evaluate"]["values"] == ["personal", "shared", "confusion", "weight"]
    assert found["train", "train"] == {"tensors": ["*"], "extra": [], "values": ["loss", "weight"]}
    assert found["adapt", "adapt"] == {"tensors": [], "extra": [], "values": ["weight"]}
    assert {row["seen_by"] for row in rows} == {"server"}


def test_local_lets_no_tensor_go(prepared):
    rows = privacy_of(prepared("local").stages).to_json()["left_the_clients"]
    assert all(row["fields"]["tensors"] == [] for row in rows)


# Where lower is better


@pytest.fixture
def text_run(tmp_path):
    """Perplexities 2 (4 samples), 8 (4) and none; the shared model has 4 at the first."""
    file = tmp_path / "plain.txt"
    file.write_text("abcdefgh" * 40)
    data = {"name": f"{file}:4", "clients": 3, "partition": "iid"}
    made = prepare(configure("fedavg", {"data": data, "seed": 4}))

    def told(client, perplexity, shared=None):
        figures = {"samples": 4, "correct": 1, "interval": [1.0, 9.0], "accuracy": 0.25}
        facts = {"params": 7, "macs": 11, "architecture": "tiny"}
        common = shared and {**figures, "perplexity": shared}
        return {"client": client, "personal": {**figures, "perplexity": perplexity}, "shared": common, "facts": facts}

    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json("result.json", build_result(made, outcome(told(0, 2.0, 4.0), told(1, 8.0), SILENT), {}))
    return Run.open(folder.path)


def test_the_highest_perplexity_is_the_worst(text_run):
    assert text_run.figures == {"mean": 5.0, "std": 3.0, "worst": 8.0, "worst10": 8.0, "pooled": pytest.approx(4.0)}
    assert (text_run.accuracy["mean"], text_run.client(1).accuracy, text_run.client(1).figure) == (0.25, 0.25, 8.0)
    assert text_run.result["global"] == pytest.approx(4.0)
    assert text_run.result["clients"][0]["shared_perplexity"] == 4.0


def test_json_of_perplexity(text_run):
    found = text_run.to_json()
    assert (found["metric"], found["lower_is_better"]) == ("perplexity", True)
    assert list(found["perplexity"]) == ["mean", "std", "worst", "pooled"]
    assert "accuracy" not in found
    assert [row["perplexity"] for row in found["clients"]] == [2.0, 8.0, None]
    names = ["client", "samples", "test_samples", "perplexity", "params", "macs", "architecture"]
    assert list(found["clients"][0]) == names
    assert not {"balanced_accuracy", "auc", "most_common_class"} & set(found)
    assert found["cautions"] == {"clients": 2, "one_answer": None, "shared_one_answer": None, "few_samples": 2}
    assert found["personal_gain"] == {
        "mean": -2.0, "clients": 1, "own": 2.0, "shared": 4.0, "better": 1, "worse": 0,
    }  # fmt: skip


def test_table_of_perplexity(text_run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text_run.table()
    shown = " ".join(capsys.readouterr().out.split())
    assert "perplexity on local test data (lower is better): mean 5.00 ± 3.00 over clients, worst 8.00" in shown
    assert "1.00–9.00" in shown and "acc. %" in shown


def test_a_federation_tells_no_macs(prepared):
    import dataclasses

    from fedloom.report.tables import run_table

    given = prepared()
    engine = given.config.engine.model_copy(update={"federation": "hearts"})
    given = dataclasses.replace(given, config=given.config.model_copy(update={"engine": engine}))
    found = built(given, outcome(answered(0, 4, 2), answered(1, 1, 1)), {})
    assert found.macs is None  # sites do not tell; 0 would be a wrong number
    assert "MACs, " not in str(run_table(found).caption)

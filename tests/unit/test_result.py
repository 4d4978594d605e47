import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import (
    ClientEvaluation,
    EvaluationReply,
    ModelEvaluation,
    NetworkFacts,
)
from fedloom.federation.protocol.method import Stage
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.figures import Figures
from fedloom.records.folder import RunFolder
from fedloom.records.result import (
    Control,
    FrontPoint,
    RunResult,
    SearchSummary,
    StageEnd,
    TierResult,
    cautions_of,
)
from fedloom.records.rows import Evaluation, LedgerLine, MetricsRow
from fedloom.records.sections import Sections
from fedloom.records.totals import Totals
from fedloom.report.run_table import run_table, schedule
from fedloom.runs.configure import configure
from fedloom.runs.preparing import prepare
from fedloom.runs.privacy import privacy as privacy_of
from fedloom.runs.result_of import build_result as built
from fedloom.runs.result_of import result_of
from fedloom.runs.result_of_rounds import Work, in_phases, stage_ends, work_of_clients
from fedloom.runs.results import Run, draw_architectures
from fedloom.runs.stage_accounts import with_ends
from fedloom.runs.tier_results import with_sections
from fedloom.types import Fields, State


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.npz"
    np.savez(path, x=np.arange(60 * 25, dtype=np.uint8).reshape(60, 5, 5), y=np.arange(60) % 2)

    def make(method="fedavg", clients=3, **options):
        data = {"name": str(path), "clients": clients, "partition": "iid"}
        return prepare(configure(method, {"data": data, "seed": 4, "options": options}))

    return make


FACTS = NetworkFacts(params=7, macs=11, architecture="tiny")


def figures(correct, samples=4):
    share = correct / samples
    beside = {"balanced_accuracy": share, "f1": share / 2, "auc": None}
    return Figures("accuracy", samples, correct, share, (0.0, 1.0), beside, answers=1)


def answered(client, personal, shared=None, confusion=None):
    reply = EvaluationReply(figures(personal), shared and figures(shared), confusion)
    return ClientEvaluation.answered(client, reply, FACTS.to_json())


def outcome(*clients, **more):
    totals = Totals(3, 100, 50, 7, 8, 900, 1.0, 2.34567, 30, 40, 5, 9.87654)
    return Outcome(
        tuple(clients),
        totals,
        **{"rounds": 3, "selected": 3, "validation": None, "state": State(), **more},
    )


def build_result(*parts):
    return built(*parts).to_json()


SILENT = ClientEvaluation.unanswered(2, "died: it fell over")


def test_figures_by_hand(prepared):
    result = build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1, 1), SILENT), {})
    assert result["accuracy"] == {
        "mean": 0.625,
        "std": 0.375,
        "worst": 0.25,
        "worst10": 0.25,
        "pooled": 5 / 8,
    }
    assert result["f1"]["mean"] == 0.3125
    assert result["auc"]["mean"] is None
    assert result["global"] == 3 / 8  # the shared model, pooled
    assert (result["method"], result["seed"], result["metric"]) == ("fedavg", 4, "accuracy")
    assert (result["seconds"], result["measured_clock"], result["macs"]) == (9.877, 2.346, 900)
    assert result["bytes"] == {
        "down": 100,
        "up": 50,
        "lan_down": 7,
        "lan_up": 8,
        "evaluate_down": 30,
        "evaluate_up": 40,
        "describe_down": 0,
        "describe_up": 0,
    }
    assert set(result["versions"]) == {"fedloom", "torch", "python"}
    assert result["data"]["partition"] == "iid"
    json.dumps(result, allow_nan=False)


def test_what_the_server_computed_is_told_beside_the_clients(prepared):
    outcome_of_run = outcome(answered(0, 4, 2))
    assert "server_macs" not in build_result(prepared(), outcome_of_run, {})
    result = build_result(
        prepared(),
        replace(outcome_of_run, totals=replace(outcome_of_run.totals, server_macs=70)),
        {},
    )
    assert (result["macs"], result["server_macs"]) == (900, 70)


def test_clients(prepared):
    first, second, third = build_result(
        prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {}
    )["clients"]
    assert (first["samples"], first["test_samples"]) == (20, 4)
    assert (first["accuracy"], first["shared_accuracy"], second["shared_accuracy"]) == (
        1.0,
        0.5,
        None,
    )
    assert (first["params"], first["macs"], first["architecture"]) == (7, 11, "tiny")
    assert "reason" not in first
    assert (third["accuracy"], third["params"], third["reason"]) == (
        None,
        None,
        "died: it fell over",
    )
    assert third["samples"] == 20


def test_clients_whose_figures_must_be_read_with_caution(prepared):
    """Client 0 is always right with its one answer, which counts nevertheless."""
    result = built(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {})
    assert result.cautions.to_json() == {
        "clients": 2,
        "one_answer": 2,
        "shared_one_answer": 1,
        "few_samples": 2,
        "one_class": 0,
        "one_answer_of_one_class": 0,
        "shared_of_one_class": 0,
    }
    assert [client.has_one_answer for client in result.clients] == [True, True, None]
    assert [client.answers for client in result.clients] == [1, 1, None]
    before = [client.replace(answers=None, shared_answers=None) for client in result.clients]
    assert cautions_of(before).one_answer is None  # files of earlier versions do not tell


def test_a_test_part_of_one_class_is_in_no_mean_of_balanced_accuracy(prepared):
    right = figures(4)
    of_one_class = replace(right, beside={**right.beside, "balanced_accuracy": None})
    reply = EvaluationReply(of_one_class, None, None)
    client = ClientEvaluation.answered(0, reply, FACTS.to_json())
    result = built(prepared(), outcome(client, answered(1, 1)), {})
    assert result.spread.mean == 0.625
    assert (
        result.spread_of("balanced_accuracy").mean,
        result.spread_of("balanced_accuracy").worst,
    ) == (0.25, 0.25)
    assert [row["balanced_accuracy"] for row in result.to_json()["clients"]] == [None, 0.25]
    assert (result.cautions.one_class, result.cautions.one_answer_of_one_class) == (1, 1)
    assert [row.has_one_class for row in result.clients] == [True, False]


def told(correct):
    return ModelEvaluation(figures(correct))


def a_tier(number):
    return TierResult(
        tier=number,
        limit={"macs": 9.0},
        clients=1,
        eligible=2,
        path=["conv1"],
        architecture={"space": "short", "choice": [[0]]},
        params=1,
        macs=2,
        macs_paper=3,
        validation=None,
        tuned_rounds=0,
        control=Control(reason="none"),
        front=[],
    )


def test_what_a_method_says_of_its_tiers_is_joined_with_figures(prepared):
    """Clients 0 and 2 are in tier 2, client 1 in tier 1; no client of tier 3 answered.

    Two clients reported figures of tier 1's network, of tier 2's only before tuning, and none of
    tier 3's.
    """
    silent = ModelEvaluation(reason="late")
    unknown = dict.fromkeys(
        ["tier-1", "tier-2", "tier-3", "supernet-1", "supernet-2", "supernet-3"], silent
    )
    first = {**unknown, "tier-1": told(4), "supernet-1": told(1), "supernet-2": told(2)}
    second = {**unknown, "tier-1": told(3), "supernet-1": told(2)}
    clients = (
        replace(answered(0, 4), named=first),
        replace(answered(1, 1), named=second),
        replace(answered(2, 3), named=unknown),
        replace(SILENT, client=3, named=unknown),
    )
    result = built(prepared(clients=4), outcome(*clients), {})
    sections = Sections(
        tiers=(a_tier(1), a_tier(2), a_tier(3)),
        tier_of=(2, 1, 2, 3),
        ops=({"conv1": 5},),
        search=SearchSummary(score="central", models=3, generations=1),
    )
    written = with_sections(result, sections, clients).to_json()
    assert [tier["own"] for tier in written["tiers"]] == [
        {"mean": 0.25, "std": 0.0, "worst": 0.25, "pooled": 0.25},
        {"mean": 0.875, "std": 0.125, "worst": 0.75, "pooled": 7 / 8},
        {"mean": None, "std": None, "worst": None, "pooled": None},
    ]
    assert [
        (tier["global"], tier["supernet"], tier.get("reason")) for tier in written["tiers"]
    ] == [
        (7 / 8, 3 / 8, None),
        (None, 2 / 4, "late"),
        (None, None, "late"),
    ]
    assert [tier["balanced_accuracy"] for tier in written["tiers"]] == [0.25, 0.875, None]
    assert written["fairness"] == {"mean": 0.5625, "std": 0.3125, "worst": 0.25}
    assert [client["tier"] for client in written["clients"]] == [2, 1, 2, 3]
    assert written["ops"] == [{"conv1": 5}]
    assert written["search"] == {"score": "central", "models": 3, "generations": 1}
    assert RunResult.from_json(written).to_json() == written


def test_a_method_without_sections_leaves_its_result_as_it_was(prepared):
    result = built(prepared(), outcome(answered(0, 4)), {})
    assert with_sections(result, Sections(), ()).to_json() == result.to_json()


def test_what_personal_models_gained(prepared):
    result = built(prepared(), outcome(answered(0, 4, 2), answered(1, 1, 2), SILENT), {})
    gain = result.personal_gain
    assert (gain.clients, gain.own, gain.shared, gain.better, gain.worse) == (2, 0.625, 0.5, 1, 1)
    assert gain.shared_balanced_accuracy == result.shared_balanced_accuracy
    balanced = [
        client.beside["balanced_accuracy"] for client in result.clients if client.figure is not None
    ]
    assert gain.own_balanced_accuracy == sum(balanced) / len(balanced)
    assert result.shared_balanced_accuracy == 0.5
    assert built(prepared(), outcome(answered(0, 4, 4), answered(1, 1)), {}).personal_gain is None
    other = answered(0, 4, 4)
    # another model, although as many answers are right
    other = replace(other, shared=replace(other.shared, answers=2))
    gain = built(prepared(), outcome(other), {}).personal_gain
    assert (gain.clients, gain.own, gain.shared, gain.better, gain.worse) == (1, 1.0, 1.0, 0, 0)


def row(**more):
    return MetricsRow(**{"stage": "train", "round": 1, "progress": 0.0, **more})


def test_what_work_took(prepared):
    """The ledger has [client, hop, down, up, MACs, seconds, memory].

    Describing and evaluating are not work.
    """
    first = (
        LedgerLine(0, -1, 1, 1, 1, 9.0, 900),
        LedgerLine(0, 0, 1, 1, 1, 1.5, 70),
        LedgerLine(1, 0, 1, 1, 1, 2.0, None),
    )
    second = (
        LedgerLine(0, 0, 1, 1, 1, 0.25, 60),
        LedgerLine(1, 0, 1, 1, 1, None, 50),
        LedgerLine(2, 0, 1, 1, 1, 3.0),
    )
    work = work_of_clients([row(ledger=first), row(ledger=second)])
    assert work == {0: Work(1.75, 70), 1: Work(2.0, 50), 2: Work(3.0, None)}
    of_clients = outcome(answered(0, 4, 2), answered(1, 1), SILENT)
    result = build_result(prepared(), of_clients, {0: work[0]})
    assert result["memory"] == 70
    assert [(row["seconds"], row["memory"]) for row in result["clients"]] == [
        (1.75, 70),
        (None, None),
        (None, None),
    ]


def test_what_earlier_stages_ended_with():
    def of(stage, value=None):
        if value is None:
            return row(stage=stage)
        beside = {"balanced_accuracy": value / 2} if stage == "tune" else {}
        return row(
            stage=stage, evaluation=Evaluation("test", 2, "accuracy", value, value - 0.25, **beside)
        )

    rows = [of("search", 0.25), of("search", 0.5), of("search"), of("tune", 0.75), of("cut", 1.0)]
    ends = stage_ends(["search", "tune"], rows)
    assert [end.to_json() for end in ends] == [
        {"stage": "search", "rounds": 3, "part": "test", "figure": 0.5, "shared": 0.25},
        {
            "stage": "tune",
            "rounds": 1,
            "part": "test",
            "figure": 0.75,
            "balanced_accuracy": 0.375,
            "shared": 0.5,
        },
    ]
    assert [
        end.balanced_accuracy for end in with_ends([StageEnd(stage="tune", rounds=1)], ends)
    ] == [0.375]
    assert stage_ends([], rows) == []


def test_rounds_by_phase_beside_the_papers(prepared):
    phases = ["warm-up", "search", None, "final", "final"]
    rows = [row(notes={} if phase is None else {"phase": phase}) for phase in phases]
    stages = prepared("spider").stages
    assert [phase.to_json() for phase in in_phases(stages, rows)] == [
        {"phase": "warm-up", "rounds": 1, "paper": 0.04},
        {"phase": "search", "rounds": 1, "paper": 0.28},
        {"phase": "final", "rounds": 2, "paper": 0.68},
    ]
    assert in_phases(stages, [row()]) == []
    sentence = (
        " Rounds by phase: 1 warm-up (25 %), 1 search (25 %), 2 final (50 %); "
        "the paper's 4, 28, 68 %."
    )
    assert schedule(in_phases(stages, rows)) == sentence and schedule([]) == ""


def test_confusion_is_added_up_over_the_clients_that_told(prepared):
    clients = [answered(k, 4, confusion=[[k, 1], [0, 2]]) for k in (0, 1)]
    result = build_result(prepared(), outcome(*clients, SILENT), {})
    assert result["confusion"] == {"labels": ["0", "1"], "clients": 2, "counts": [[1, 2], [0, 4]]}
    assert build_result(prepared(), outcome(answered(0, 4), SILENT), {})["confusion"] is None


def test_nobody_answered(prepared):
    silent = [replace(SILENT, client=client) for client in range(3)]
    result = build_result(prepared(), outcome(*silent), {})
    assert result["accuracy"] == dict.fromkeys(("mean", "std", "worst", "worst10", "pooled"))
    assert result["global"] is None


def test_who_was_capped_and_what_sites_claim(prepared, tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    assert not {"capped", "claims"} & set(
        result_of(folder, prepared(), outcome(answered(0, 4))).to_json()
    )
    rows = [row(capped={0: 0.6}), row(), row(capped={0: 0.7, 2: 0.5})]
    (folder.path / "metrics.jsonl").write_bytes(b"".join(each.to_line() for each in rows))
    folder.write_json("claims.json", [{"site": "east", "before": 10, "now": 30}])
    result = result_of(folder, prepared(), outcome(answered(0, 4))).to_json()
    assert result["capped"] == {"0": {"rounds": 2, "share": 0.7}, "2": {"rounds": 1, "share": 0.5}}
    assert result["claims"] == ["site east claims 30 samples, 10 in its last experiment"]


@pytest.mark.parametrize(
    ("hessian", "said"), [("outer", {"rounds": 2, "largest": 3.6}), ("none", None)]
)
def test_steps_that_turn_uphill_are_counted(prepared, tmp_path, hessian, said):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    bends = [{"bend": 3.6}, {"bend": 1.0}, {"bend": 1.5}, {"bend": None}, {}]
    (folder.path / "metrics.jsonl").write_bytes(
        b"".join(row(notes=notes).to_line() for notes in bends)
    )
    run = prepared("fedpnas", base_cells=1, channels=2, hessian=hessian)
    assert result_of(folder, run, outcome(answered(0, 4))).to_json().get("uphill") == said


@pytest.fixture
def run(prepared, tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    with pytest.raises(
        FedloomError, match="must be a finished run, but it has no result yet; `fedloom resume"
    ):
        Run.open(folder.path)
    folder.write_json(
        "result.json",
        build_result(prepared(), outcome(answered(0, 4, 2), answered(1, 1), SILENT), {}),
    )
    return Run.open(folder.path)


@pytest.fixture
def run_with_tiers(prepared, tmp_path):
    """Clients 0 and 2 are in tier 1, client 1 in tier 2."""
    clients = []
    for client, correct in enumerate((4, 1, 3)):
        named = {"tier-1": told(2), "supernet-1": told(1), "tier-2": told(3), "supernet-2": told(4)}
        clients.append(replace(answered(client, correct), named=named))
    front = [FrontPoint(path=["conv1"], loss=0.5, macs=2)]
    tiers = tuple(a_tier(number).replace(front=front) for number in (1, 2))
    result = built(prepared(), outcome(*clients), {})
    result = with_sections(result, Sections(tiers=tiers, tier_of=(1, 2, 1)), clients)
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json("result.json", result.to_json())
    return Run.open(folder.path)


def test_json_has_tiers_without_their_fronts(run_with_tiers):
    written = run_with_tiers.to_json()
    assert [client["tier"] for client in written["clients"]] == [1, 2, 1]
    of_file = run_with_tiers.result["tiers"]
    assert [tier["tier"] for tier in written["tiers"]] == [1, 2]
    for brief, whole in zip(written["tiers"], of_file, strict=True):
        assert {**brief, "front": [{"path": ["conv1"], "loss": 0.5, "macs": 2}]} == whole


def test_a_tiers_network_has_balanced_accuracy_before_and_after_tuning(run_with_tiers):
    """Means over all three clients, which reported the same for each network."""
    first, second = run_with_tiers.to_json()["tiers"]
    assert (first["supernet_balanced_accuracy"], first["global_balanced_accuracy"]) == (0.25, 0.5)
    assert (second["supernet_balanced_accuracy"], second["global_balanced_accuracy"]) == (1.0, 0.75)


@pytest.fixture
def run_with_widths(prepared, tmp_path):
    """Two tiers with widths of a fixed network: nothing was searched, and there is no supernet."""
    clients = [
        replace(answered(client, 3), named={"tier-1": told(2), "tier-2": told(3)})
        for client in (0, 1)
    ]
    tiers = []
    for number in (1, 2):
        tiers.append(
            TierResult(
                tier=number,
                limit={"macs": 9.0},
                clients=1,
                eligible=3 - number,
                width=number / 2,
                architecture=f"cnn:{number / 2:g}",
                params=1,
                macs=2,
                macs_paper=3,
                note="MACs are dense",
            )
        )
    result = with_sections(
        built(prepared(), outcome(*clients), {}), Sections(tuple(tiers), (1, 2)), clients
    )
    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json("result.json", result.to_json())
    draw_architectures(folder, result)
    return Run.open(folder.path)


def test_tiers_of_a_fixed_network(run_with_widths):
    rows = run_with_widths.to_json()["tiers"]
    names = [
        "tier",
        "limit",
        "clients",
        "eligible",
        "width",
        "architecture",
        "params",
        "macs",
        "macs_paper",
    ]
    beside = ["global_balanced_accuracy", "global_auc"]  # of two classes
    assert list(rows[0]) == [*names, "note", "global", *beside, "own", "balanced_accuracy", "auc"]
    assert [row["global"] for row in rows] == [0.5, 0.75]
    assert not (run_with_widths.path / "architectures").exists()
    console = Console(width=200, record=True, markup=False)
    console.print(run_table(run_with_widths.record))
    assert console.export_text().count("MACs are dense.") == 1


def test_the_table_has_a_line_a_tier(run_with_tiers):
    table = run_table(run_with_tiers.record)
    console = Console(width=200, record=True, markup=False)
    console.print(table)
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["tier", "1", "40", "50.0", "–", "50.0", "–", "1", "2"] in [line[:9] for line in lines]
    assert ["tier", "2", "20", "75.0", "–", "75.0", "–", "1", "2"] in [line[:9] for line in lines]
    assert (
        "Mean over the clients of each tier: tier 1 87.5 (balanced 87.5), tier 2 25.0 (balanced "
        "25.0) %." in table.caption
    )


def test_networks_of_tiers_are_written_and_drawn(prepared, tmp_path):
    folder = RunFolder.create("run", "x", tmp_path / "run")
    architecture = {"space": "cnn-tiny", "choice": [[0], [1], [2], [3], [7], [8]]}
    tier = a_tier(2).replace(architecture=architecture, head="mean")
    result = built(prepared(), outcome(answered(0, 4)), {}).replace(tiers=[tier])
    draw_architectures(folder, result)
    names = sorted(path.name for path in (folder.path / "architectures").iterdir())
    assert names == ["tier-2.json", "tier-2.svg"]
    written = json.loads((folder.path / "architectures/tier-2.json").read_text())
    assert written == {**architecture, "head": "mean"}
    assert "tier 2" in (folder.path / "architectures/tier-2.svg").read_text()


def test_json_has_exactly_the_keys_of_the_issue(run):
    written = run.to_json()
    figures = ["metric", "lower_is_better", "accuracy", "balanced_accuracy", "auc", "global"]
    shared = ["shared_balanced_accuracy", "shared_auc"]
    judgement = ["personal_gain", *shared, "most_common_class", "cautions"]
    assert list(written) == [
        "run",
        "method",
        "seed",
        *figures,
        *judgement,
        "clients",
        "bytes",
        "seconds",
        "simulated",
    ]
    assert (written["metric"], written["lower_is_better"]) == ("accuracy", False)
    assert list(written["accuracy"]) == ["mean", "std", "worst", "pooled"]
    assert written["bytes"] == {"down": 100, "up": 50, "lan_down": 7, "lan_up": 8}
    assert written["clients"][0] == {
        "client": 0,
        "samples": 20,
        "test_samples": 4,
        "accuracy": 1.0,
        "balanced_accuracy": 1.0,
        "auc": None,
        "answers": 1,
        "params": 7,
        "macs": 11,
        "architecture": "tiny",
    }
    assert written["balanced_accuracy"] == {
        "mean": 0.625,
        "std": 0.375,
        "worst": 0.25,
        "pooled": None,
    }
    assert written["clients"][2]["accuracy"] is None
    assert written["run"] == str(run.path)


def test_clients_by_number(run):
    assert [client.client for client in run.clients] == [0, 1, 2]
    assert (run.client(1).figure, run.client(1).accuracy, run.client(1).figures["f1"]) == (
        0.25,
        0.25,
        0.125,
    )
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
    """Rich must not read a client's text as markup: [/] would end the command with a traceback."""
    strange = [{**row, "reason": "raised: [/b] [red]"} for row in run.result["clients"]]
    replace(run, record=RunResult.from_json({**run.result, "clients": strange})).table()
    assert "[/b]" in capsys.readouterr().out


# Privacy


def test_privacy_lists_every_field_that_leaves_a_client(prepared):
    rows = privacy_of(prepared("local-adaptation")).to_json()["left_the_clients"]
    fields = {(row["stage"], row["order"]): row["fields"] for row in rows}
    assert list(fields) == [
        ("every", "describe"),
        ("every", "evaluate"),
        ("train", "train"),
        ("adapt", "adapt"),
    ]
    assert fields["every", "describe"]["values"] == [
        "shape",
        "labels",
        "samples",
        "extra",
        "weight",
    ]
    assert fields["every", "evaluate"]["values"] == ["personal", "shared", "confusion", "weight"]
    assert fields["train", "train"] == {"tensors": ["*"], "extra": [], "values": ["loss", "weight"]}
    assert fields["adapt", "adapt"] == {"tensors": [], "extra": [], "values": ["weight"]}
    assert {row["seen_by"] for row in rows} == {"server"}


def test_local_lets_no_tensor_go(prepared):
    rows = privacy_of(prepared("local")).to_json()["left_the_clients"]
    assert all(row["fields"]["tensors"] == [] for row in rows)


def test_tensors_that_need_not_come_back_are_listed_too(prepared):
    local = prepared("local")
    stage = local.stages[0]

    class Partial(type(stage.method)):
        fields = {"train": Fields(tensors=("head.*",), optional=("layers.*",))}

    partly = replace(local, stages=(Stage("supernet", Partial(stage.method.options)),))
    rows = privacy_of(partly).to_json()["left_the_clients"]
    assert rows[-1]["fields"] == {
        "tensors": ["head.*"],
        "extra": [],
        "values": ["weight"],
        "optional": ["layers.*"],
    }


# Where lower is better


@pytest.fixture
def text_run(tmp_path):
    """Perplexities 2 (4 samples), 8 (4) and none; the shared model has 4 at the first."""
    file = tmp_path / "plain.txt"
    file.write_text("abcdefgh" * 40)
    data = {"name": f"{file}:4", "clients": 3, "partition": "iid"}
    ready = prepare(configure("fedavg", {"data": data, "seed": 4}))

    def told(client, perplexity, shared=None):
        own = Figures("perplexity", 4, 1, perplexity, (1.0, 9.0), {"accuracy": 0.25})
        common = shared and replace(own, value=shared)
        return ClientEvaluation(client, ModelEvaluation(own, network=FACTS), common)

    folder = RunFolder.create("run", "x", tmp_path / "run")
    folder.write_json(
        "result.json", build_result(ready, outcome(told(0, 2.0, 4.0), told(1, 8.0), SILENT), {})
    )
    return Run.open(folder.path)


def test_the_highest_perplexity_is_the_worst(text_run):
    assert text_run.figures == {
        "mean": 5.0,
        "std": 3.0,
        "worst": 8.0,
        "worst10": 8.0,
        "pooled": pytest.approx(4.0),
    }
    assert (text_run.accuracy["mean"], text_run.client(1).accuracy, text_run.client(1).figure) == (
        0.25,
        0.25,
        8.0,
    )
    assert text_run.result["global"] == pytest.approx(4.0)
    assert text_run.result["clients"][0]["shared_perplexity"] == 4.0


def test_json_of_perplexity(text_run):
    written = text_run.to_json()
    assert (written["metric"], written["lower_is_better"]) == ("perplexity", True)
    assert list(written["perplexity"]) == ["mean", "std", "worst", "pooled"]
    assert "accuracy" not in written
    assert [row["perplexity"] for row in written["clients"]] == [2.0, 8.0, None]
    names = ["client", "samples", "test_samples", "perplexity", "params", "macs", "architecture"]
    assert list(written["clients"][0]) == names
    assert not {"balanced_accuracy", "auc", "most_common_class"} & set(written)
    untold = dict.fromkeys(
        [
            "one_answer",
            "shared_one_answer",
            "one_class",
            "one_answer_of_one_class",
            "shared_of_one_class",
        ]
    )
    assert written["cautions"] == {"clients": 2, "few_samples": 2, **untold}
    assert written["personal_gain"] == {
        "mean": -2.0,
        "clients": 1,
        "own": 2.0,
        "shared": 4.0,
        "better": 1,
        "worse": 0,
    }


def test_table_of_perplexity(text_run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text_run.table()
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "perplexity on local test data (lower is better): mean 5.00 ± 3.00 over clients, worst 8.00"
        in shown
    )
    assert "1.00–9.00" in shown and "acc. %" in shown


def test_a_federation_tells_no_macs(prepared):
    import dataclasses

    from fedloom.report.run_table import run_table

    prepared_run = prepared()
    engine = prepared_run.config.engine.model_copy(update={"federation": "hearts"})
    prepared_run = dataclasses.replace(
        prepared_run, config=prepared_run.config.model_copy(update={"engine": engine})
    )
    result = built(prepared_run, outcome(answered(0, 4, 2), answered(1, 1, 1)), {})
    assert result.macs is None  # sites do not tell; 0 would be a wrong number
    assert "MACs, " not in str(run_table(result).caption)

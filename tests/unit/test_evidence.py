"""The evidence for FedorAS: which runs there are, how they start, and what the tables say."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from result_files import client, result

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import evidence_fedoras
from evidence_fedoras import Matrix, keep_images, main
from evidence_matrix import (
    BASE,
    PARTITIONS,
    SUPERNET_ROUNDS,
    TRIALS,
    Case,
    NotPossible,
    Setting,
    cases_of,
    command_of,
    is_finished,
    nearest_width,
)
from evidence_tables import (
    APPEARS,
    DOES_NOT,
    NOT_RUN,
    NOT_TOLD,
    Runs,
    all_judged,
    claims,
    judged_by_skew,
    judged_over,
    of_tier,
    per_tier,
    report,
    verdict_of,
)
from fedloom import cli
from fedloom.commands import run
from fedloom.errors import FedloomError
from fedloom.evaluate.paired import Paired, paired
from fedloom.runs.configure import configure, resolve_options


def trial(name):
    return next(trial for trial in TRIALS if trial.name == name)


def tier(number, accuracy, control=("conv1",), **more):
    return {
        "tier": number,
        "limit": {"macs": 1000.0 * number},
        "clients": 5,
        "eligible": 5,
        "path": ["conv1"],
        "architecture": "cnn:1",
        "params": 10,
        "macs": 500 * number,
        "macs_paper": 600,
        "global": accuracy,
        "supernet": accuracy / 2,
        "own": {"mean": accuracy, "std": 0.1, "worst": 0.0, "pooled": accuracy},
        "control": {"path": list(control), "macs": 500},
        **more,
    }


def finish(setting, name, partition, seed, accuracies=(0.3, 0.4), **more):
    folder = setting.folder(name, partition, seed)
    folder.mkdir(parents=True)
    tiers = [tier(number, accuracy) for number, accuracy in enumerate(accuracies, 1)]
    file = result([client(0, 0.5)], seed=seed, tiers=tiers, **more)
    (folder / "result.json").write_text(json.dumps(file))
    return folder


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path, tmp_path / "images.npz")


# The matrix


def test_the_most_important_trials_are_complete_first():
    cases = cases_of(TRIALS, (0, 1, 2))
    assert [case.trial.name for case in cases[:6]] == [BASE] * 6
    first = {(case.partition, case.seed) for case in cases[:6]}
    assert first == set(product(PARTITIONS, (0, 1, 2)))
    assert len({case.folder(Setting(Path("a"), Path("b"))) for case in cases}) == len(cases)


def test_a_trial_may_have_fewer_seeds():
    assert [case.seed for case in cases_of([trial("zerofl")], (4, 5))] == [4]


@pytest.fixture
def configured(monkeypatch):
    """The configurations of a command line; nothing is run."""
    configurations = []

    def configure_alone(options, method, tree):
        config = configure(method, tree)
        resolve_options(config.method, config.options)
        configurations.append((config, options))
        raise FedloomError("this test", "only configures", "nothing")

    monkeypatch.setattr(run, "start_run", configure_alone)
    return configurations


def test_the_command_line_takes_every_command(configured, setting, tmp_path):
    setting = Setting(tmp_path / "runs", setting.images, tmp_path, tmp_path)
    for partition in PARTITIONS:
        finish(setting, BASE, partition, 5, server_macs=500)
    for case in cases_of(TRIALS, (5,)):
        cli.main(command_of(case, setting))
        assert configured, case.title
        config, options = configured.pop()
        assert config.method == case.trial.method
        assert options.out == str(case.folder(setting))
        if not case.trial.name.startswith("scratch"):  # which take all from the run that they name
            assert (config.seed, config.data.partition) == (5, case.partition)


def test_a_run_that_was_interrupted_is_resumed(setting):
    case = Case(trial(BASE), PARTITIONS[0], 0)
    case.folder(setting).mkdir(parents=True)
    (case.folder(setting) / "config.toml").touch()
    assert command_of(case, setting) == ["resume", str(case.folder(setting)), "--quiet"]


def test_controls_are_the_random_paths_of_the_finished_run(setting):
    finish(setting, BASE, PARTITIONS[0], 0)
    command = command_of(Case(trial("control"), PARTITIONS[0], 0), setting)
    assert json.loads(Path(command[command.index("--paths") + 1]).read_text()) == [
        ["conv1"],
        ["conv1"],
    ]


def test_a_tier_without_a_control_is_told(setting):
    folder = finish(setting, BASE, PARTITIONS[0], 0)
    file = json.loads((folder / "result.json").read_text())
    file["tiers"][1]["control"] = {"reason": "none was found"}
    (folder / "result.json").write_text(json.dumps(file))
    with pytest.raises(NotPossible, match="tier 2 has no control: none was found"):
        command_of(Case(trial("control"), PARTITIONS[0], 0), setting)


def test_baselines_have_the_budget_and_the_limits_of_the_finished_run(setting):
    finish(setting, BASE, PARTITIONS[1], 2, macs=9000, server_macs=1000)
    command = command_of(Case(trial("fjord"), PARTITIONS[1], 2), setting)
    assert command[command.index("--tiers") + 1] == "1000,2000"
    assert command[command.index("--cost") + 1] == "macs"
    assert "budget.amount=10000" in command
    of_one_tier = command_of(Case(trial("cnn-tier-1"), PARTITIONS[1], 2), setting)
    assert "budget.amount=5000.0" in of_one_tier


def test_scoring_by_clients_leaves_the_supernet_as_many_rounds(setting):
    """By the rule of the budget's shares, the supernet gets what the search leaves."""
    command = command_of(Case(trial("score-clients-4"), PARTITIONS[1], 0), setting)

    def value(name):
        return float(command[command.index(name) + 1])

    rounds_of_training = value("--rounds") * (1 - value("--search-share"))
    assert rounds_of_training * value("--supernet-share") == pytest.approx(SUPERNET_ROUNDS)


def test_nearest_width_is_by_macs():
    assert nearest_width(0) == 1 / 16
    assert nearest_width(1e12) == 2
    assert nearest_width(5e5) < nearest_width(5e6)


# Running


class Finished:
    """Replaces a process; the run that it should make exists at once."""

    begun: list[list[str]] = []

    def __init__(self, command, **_):
        self.begun.append(command)
        folder = Path(command[-1])
        folder.mkdir(parents=True, exist_ok=True)
        tiers = [tier(1, 0.3), tier(2, 0.4)]
        (folder / "result.json").write_text(json.dumps(result([client(0, 0.5)], tiers=tiers)))

    def poll(self):
        return 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(evidence_fedoras, "PAUSE", 0.0)
    monkeypatch.setattr(subprocess, "Popen", Finished)
    monkeypatch.setattr(Finished, "begun", [])
    return Finished.begun


def test_a_run_waits_for_the_one_that_it_needs(setting, quick):
    cases = cases_of([trial("fjord"), trial(BASE)], (0,))  # in the wrong order
    assert Matrix(cases, setting, 10.0).run() == 0
    assert [command[4] for command in quick] == ["fedoras", "fjord", "fedoras", "fjord"]


def test_a_finished_run_is_not_run_again(setting, quick):
    finish(setting, BASE, PARTITIONS[0], 0)
    assert Matrix(cases_of([trial(BASE)], (0,)), setting, 10.0).run() == 0
    assert len(quick) == 1
    assert is_finished(setting.folder(BASE, PARTITIONS[1], 0))


def test_nothing_is_begun_when_the_time_is_over(setting, quick, capsys):
    assert Matrix(cases_of([trial(BASE)], (0,)), setting, 0.0).run() == 0
    assert quick == []
    assert "the time is over" in capsys.readouterr().out


def test_a_run_whose_base_is_missing_is_a_failure(setting, quick, capsys):
    assert Matrix(cases_of([trial("fjord")], (0,)), setting, 10.0).run() == 2
    assert "its run of fedoras is not there" in capsys.readouterr().out


def test_an_unknown_trial_is_told(capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--out", str(tmp_path), "--only", "fedora"])
    assert stop.value.code == 2
    assert "there are fedoras" in capsys.readouterr().err


def test_a_plan_tells_what_is_finished(setting, capsys):
    finish(setting, BASE, PARTITIONS[0], 0)
    assert main(["plan", "--out", str(setting.out), "--only", BASE, "--seeds", "0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "finished  fedoras dirichlet:1.0 seed 0",
        "to run    fedoras dirichlet:0.1 seed 0",
        "2 runs, 1 of them to run",
    ]


def test_images_are_the_first_of_the_file(tmp_path, monkeypatch):
    """A row of CIFAR-10's binary version is a label and 3 × 32 × 32 bytes."""
    monkeypatch.setattr(evidence_fedoras, "IMAGES", 3)
    rows = np.arange(12 * 3073).reshape(12, 3073).astype(np.uint8)
    rows[:, 0] = [6, 9, 9, 4, 1, 1, 2, 7, 8, 3, 0, 5]
    (tmp_path / "data_batch_1.bin").write_bytes(rows.tobytes())
    keep_images(tmp_path / "data_batch_1.bin", tmp_path / "runs" / "images.npz")
    with np.load(tmp_path / "runs" / "images.npz") as images:
        assert images["y"].tolist() == [6, 9, 9]
        assert images["x"].reshape(3, -1).sum(1).tolist() == rows[:3, 1:].sum(1).tolist()


# Tables


@pytest.mark.parametrize(
    ("low", "high", "least", "verdict"),
    [
        (0.1, 2.0, 0.0, APPEARS),
        (-2.0, -0.1, 0.0, DOES_NOT),
        (-1.0, 1.0, 0.0, NOT_TOLD),
        (-0.9, 0.5, -1.0, APPEARS),  # costs less than a point
        (-3.0, -1.1, -1.0, DOES_NOT),
        (-3.0, 0.5, -1.0, NOT_TOLD),
        (None, None, 0.0, NOT_TOLD),
    ],
)
def test_a_verdict_is_by_the_interval_alone(low, high, least, verdict):
    assert verdict_of(Paired(5.0, low, high, 3), least) == verdict


def test_runs_are_paired_by_partition_and_seed(setting):
    """A seed that only one of both has does not count.

    Differences of 10, 12 and 11 points have t's interval of two degrees of freedom:
    11 ± 4.3027 · 1 / √3.
    """
    for seed, figure in enumerate((0.40, 0.42, 0.41, 0.99)):
        finish(setting, BASE, PARTITIONS[0], seed, (figure, figure))
    for seed in (0, 1, 2):
        finish(setting, "fjord", PARTITIONS[0], seed, (0.30, 0.30))
    (claim, _) = per_tier("beats", "Table 5", "fjord")
    row = judged_over(claim, Runs(setting.out), PARTITIONS[0])
    assert (row.first, row.second) == (pytest.approx(30), pytest.approx(41))
    assert row.pair.n == 3
    assert row.pair.low == pytest.approx(11 - 4.3027 / 3**0.5, abs=1e-3)
    assert row.verdict == f"{APPEARS}, by the plain interval alone"
    assert replace(row, adjusted=0.01).verdict == APPEARS
    assert replace(row, adjusted=0.06).verdict == f"{APPEARS}, by the plain interval alone"
    assert judged_over(claim, Runs(setting.out), PARTITIONS[1]).verdict == NOT_RUN


def test_a_claim_of_at_least_so_much_is_judged_against_that(setting):
    """One point less is allowed: differences of −0.5, 0 and 0.5 are 1 above the claimed least."""
    for seed, accuracy in enumerate((0.295, 0.3, 0.305)):
        finish(setting, "comm-1", PARTITIONS[0], seed, (0.3, 0.3))
        finish(setting, BASE, PARTITIONS[0], seed, (accuracy, accuracy))
    (claim,) = [claim for claim in claims() if claim.first == "comm-1" and claim.second == BASE]
    row = judged_over(claim, Runs(setting.out), PARTITIONS[0])
    assert row.pair.difference == pytest.approx(0)
    assert row.pair.p == pytest.approx(1)
    assert row.p == pytest.approx(paired([-1, -1, -1], [-0.5, 0, 0.5]).p)


def test_p_is_adjusted_for_all_claims_that_were_run_but_not_for_single_partitions(setting):
    for seed in (0, 1, 2):
        for partition in PARTITIONS:
            finish(setting, "fjord", partition, seed, (0.2, 0.3))
            finish(setting, BASE, partition, seed, (0.3 + 0.001 * seed, 0.4 + 0.002 * seed))
    rows = all_judged(Runs(setting.out))
    counted = [row for row in rows if row.adjusted is not None]
    run = [row for row in rows if row.were_run and row.partition not in PARTITIONS]
    best = min(counted, key=lambda row: row.p)
    assert best.adjusted == pytest.approx(best.p * len(run))
    assert best.verdict == APPEARS
    for row in rows:
        if row.partition in PARTITIONS:
            assert row.adjusted is None


def test_gains_of_two_partitions_are_paired_by_seed(setting):
    """The supernet gains 1, 2 and 3 points at dirichlet:1.0, and 9, 11 and 13 at dirichlet:0.1.

    That is 8, 9 and 10 points more.
    """
    for seed in (0, 1, 2):
        for partition, gain in zip(
            PARTITIONS, (0.01 * (1 + seed), 0.09 + 0.02 * seed), strict=True
        ):
            finish(setting, "scratch-rounds", partition, seed, (0.2, 0.3))
            finish(setting, BASE, partition, seed, (0.2 + gain, 0.3 + gain))
    row = judged_by_skew(Runs(setting.out))
    assert (row.first, row.second, row.pair.difference) == pytest.approx((2, 11, 9))
    assert row.pair.low == pytest.approx(9 - 4.3027 / 3**0.5, abs=1e-3)


def test_a_run_without_the_figure_tells_nothing(setting):
    finish(setting, "tune-top", PARTITIONS[1], 0)
    (claim,) = [claim for claim in claims() if claim.first == "tune-top"]
    assert judged_over(claim, Runs(setting.out), PARTITIONS[1]).verdict == NOT_TOLD


def test_every_claim_is_of_trials_that_there_are():
    names = {trial.name for trial in TRIALS}
    for claim in claims():
        assert {claim.first, claim.second} <= names


def test_tables_of_nothing_say_so(tmp_path):
    text = report(tmp_path)
    assert text.startswith("0 finished runs.")
    assert text.count(f"| {NOT_RUN} |") == len(claims()) + 1  # one is of two partitions


def test_tables_show_what_was_run(setting):
    finish(setting, BASE, PARTITIONS[0], 0, (0.25, 0.5))
    text = report(setting.out)
    assert "| fedoras | 1 | 25.0 | 12.5 | 0 | 50.0 | 25.0 | 1 |" in text
    assert of_tier(3)(Runs(setting.out).of(BASE, PARTITIONS[0])[0]) is None

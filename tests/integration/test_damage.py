"""Power cuts, failing disks and diverged models.

Damage is named, the work is asked for again, or the run goes back to an earlier round.
"""

from pathlib import Path

import pytest
import tiny
from damaging import figures_of, flip, resumed, stopped_in_round

from fedloom import cli
from fedloom.federation.protocol import parcels
from fedloom.files import write_whole
from fedloom.records.folder import RunFolder

pytestmark = pytest.mark.processes

CLUSTERED = {"engine": {"topology": "clustered:2x3"}}


@pytest.fixture
def replies_in_files(monkeypatch):
    """However small they are."""
    monkeypatch.setattr(parcels, "MOST_HELD", 0)


def first_reply(out):
    return sorted((out / "spool").glob("*.reply"))[0]


def rewrite(change):
    """Damage to the journal."""

    def damage(out):
        journal = out / "spool" / "journal.jsonl"
        journal.write_bytes(change(journal.read_bytes()))

    return damage


# What a power cut does to files that were not synced: their names are there, their content is not,
# or in part.
DAMAGES = {
    "an empty reply": lambda out: first_reply(out).write_bytes(b""),
    "a reply of zeros": lambda out: first_reply(out).write_bytes(
        bytes(first_reply(out).stat().st_size)
    ),
    "half a reply": lambda out: first_reply(out).write_bytes(first_reply(out).read_bytes()[:300]),
    "a missing reply": lambda out: first_reply(out).unlink(),
    "a flipped bit in a reply": lambda out: flip(first_reply(out)),
    "no journal": lambda out: (out / "spool" / "journal.jsonl").unlink(),
    "an empty journal": rewrite(lambda lines: b""),
    "a journal of zeros": rewrite(lambda lines: bytes(len(lines))),
    "a journal whose end is zeros": rewrite(lambda lines: lines[:-40] + bytes(40)),
    "a torn journal": rewrite(lambda lines: lines[:-40]),
    "half the journal": rewrite(
        lambda lines: b"".join(lines.splitlines(keepends=True)[: lines.count(b"\n") // 2])
    ),
    "a zeroed line in the journal": rewrite(
        lambda lines: lines.replace(lines.splitlines()[1], bytes(50))
    ),
    "a flipped bit in the journal": rewrite(lambda lines: bytes([lines[0] ^ 1]) + lines[1:]),
}


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """The same without clusters."""
    folder = tmp_path_factory.mktemp("flat")
    configuration = tiny.tree(tiny.write_images(folder / "images.npz"), rounds=3)
    tiny.start(folder / "run", "ditto", configuration)
    return folder / "run", configuration


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_after_a_power_cut_a_run_ends_with_the_same_bits(damage, flat, tmp_path, replies_in_files):
    undisturbed, configuration = flat
    out = tmp_path / "run"
    stopped_in_round(2, 2, out, "ditto", configuration)
    damage(out)
    resumed(out)
    assert tiny.unlike(tiny.left_behind(undisturbed), tiny.left_behind(out)) == []


@pytest.fixture(scope="module")
def in_clusters(tmp_path_factory):
    """An undisturbed run with three hops per round and private states, and its configuration."""
    folder = tmp_path_factory.mktemp("clusters")
    configuration = tiny.tree(tiny.write_images(folder / "images.npz"), rounds=3, **CLUSTERED)
    tiny.start(folder / "run", "ditto", configuration)
    return folder / "run", configuration


@pytest.mark.parametrize(
    "name",
    [
        "a missing reply",
        "a zeroed line in the journal",
        "a journal whose end is zeros",
        "half the journal",
    ],
)
@pytest.mark.parametrize("replies", [5, 8])
def test_in_clusters_too(name, replies, in_clusters, tmp_path, replies_in_files):
    """In a round of several hops, wherever it was stopped."""
    undisturbed, configuration = in_clusters
    out = tmp_path / "run"
    stopped_in_round(2, replies, out, "ditto", configuration)
    DAMAGES[name](out)
    resumed(out)
    assert tiny.unlike(tiny.left_behind(undisturbed), tiny.left_behind(out)) == []


def test_what_was_damaged_is_told(images, tmp_path, replies_in_files):
    stopped_in_round(2, 2, tmp_path / "run", "fedavg", tiny.tree(images, rounds=3))
    DAMAGES["a missing reply"](tmp_path / "run")
    (notice,) = resumed(tmp_path / "run")
    assert notice == (
        "replies to round 2 were damaged (journal lines: 0, replies: 1); "
        "1 orders are settled, the others are sent again"
    )
    assert notice in (tmp_path / "run" / "run.log").read_text()


# Checkpoints and metrics

GONE = {
    "a flipped bit in the last checkpoint": (
        lambda out: flip(out / "checkpoints" / "000003.state"),
        2,
    ),
    "metrics shorter": (lambda out: cut(out / "metrics.jsonl", -5), 2),
    "metrics much shorter": (lambda out: cut(out / "metrics.jsonl", 10), 0),
    "metrics of zeros": (lambda out: cut(out / "metrics.jsonl", 0, 5000), 0),
    "a flipped bit in the last row": (lambda out: flip(out / "metrics.jsonl", -9), 2),
    "no metrics": (lambda out: (out / "metrics.jsonl").unlink(), 0),
    "no checkpoint that can be read": (
        lambda out: [flip(path) for path in (out / "checkpoints").iterdir()],
        0,
    ),
}


def cut(path, size, zeros=0):
    path.write_bytes(path.read_bytes()[:size] + bytes(zeros))


@pytest.mark.parametrize(("damage", "back_to"), GONE.values(), ids=GONE)
def test_a_run_goes_back_to_what_is_whole(damage, back_to, images, tmp_path):
    configuration = tiny.tree(images, rounds=4)
    tiny.start(tmp_path / "undisturbed", "ditto", configuration)
    out = tmp_path / "run"
    tiny.stopped_after(3, out, "ditto", configuration)
    damage(out)
    (notice,) = resumed(out)
    assert f"round {back_to}" in notice
    assert figures_of(out) == figures_of(tmp_path / "undisturbed")
    assert [row["round"] for row in tiny.rows(out)] == [1, 2, 3, 4]


def test_nothing_is_left_over(images, tmp_path):
    """Files after damage, a resume and the end: checkpoints, the clients' states, the results."""
    out = tmp_path / "run"
    tiny.stopped_after(3, out, "local", tiny.tree(images, rounds=4))
    flip(out / "checkpoints" / "000003.state")
    write_whole(out / "checkpoints" / "000001.state", [b"surplus"], durable=False)
    for name in (
        ".result.json.99.tmp",
        "clients/1/.9.0.state.99.tmp",
        "checkpoints/.000009.state.99.tmp",
    ):
        (out / name).write_bytes(b"half")
    resumed(out)
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    states = set()
    for client in range(3):
        for version in ("2.0", "3.0", "4.0"):
            states.add(f"clients/{client}/{version}.state")
    assert files == states | {
        "checkpoints/000003.state", "checkpoints/000004.state", "classes.json", "config.toml",
        "metrics.csv", "metrics.jsonl", "report.html", "result.json", "run.json", "run.lock",
        "run.log", "split.json",
    }  # fmt: skip


# Finished runs


def test_damage_to_a_finished_run_is_named(images, tmp_path, capsys, caplog):
    out = tmp_path / "run"
    tiny.start(out, "fedavg", tiny.tree(images, rounds=3))
    assert RunFolder(out).damaged() == []
    flip(out / "metrics.jsonl", 30)
    assert RunFolder(out).damaged() == ["metrics.jsonl"]
    assert cli.main(["resume", str(out), "--quiet"]) == 0
    assert "metrics.jsonl was changed or damaged after the run had finished" in caplog.text
    assert cli.main(["report", str(out)]) == 0
    assert "changed or damaged since" in (out / "report.html").read_text()


def test_a_model_is_exported_from_the_checkpoint_before_a_damaged_one(images, tmp_path, caplog):
    """And nobody is left to believe that it is the last one."""
    out = tmp_path / "run"
    tiny.start(out, "fedavg", tiny.tree(images, rounds=3))
    flip(out / "checkpoints" / "000003.state")
    assert cli.main(["export", str(out), "--shared"]) == 0
    assert "the checkpoint of round 3 cannot be used: it is damaged" in caplog.text
    assert "checkpoints/000003.state was changed or damaged" in caplog.text


# Absurd updates, and the way back from a divergence

POISONER = """
import pathlib
from dataclasses import dataclass

import torch

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Reply

POISON = pathlib.Path(__file__).with_name("poison")


@dataclass(frozen=True)
class Poisoner(FedAvg):
    def client(self, order, data, own, run):
        if order.client == 1 and run.round == 3 and POISON.exists():
            huge = {}
            for name, tensor in order.tensors.items():
                if tensor.is_floating_point():
                    huge[name] = torch.full_like(tensor, 1e30)
            return Reply(1, {**order.tensors, **huge}, len(data), {"loss": 0.0}), None
        return super().client(order, data, own, run)


poisoner = Recipe(
    "poisoner",
    FedAvgOptions,
    lambda task: (Stage("train", Poisoner(FedAvgOptions(**task.options))),),
)
"""


@pytest.fixture
def poisoner(tmp_path):
    (tmp_path / "poisoner.py").write_text(POISONER)
    (tmp_path / "poison").touch()
    return f"{tmp_path / 'poisoner.py'}:poisoner"


def test_one_client_cannot_end_a_run(poisoner, images, tmp_path):
    out = tmp_path / "run"
    run = tiny.start(out, poisoner, tiny.tree(images, clients=4, rounds=5))
    refused = []
    for row in tiny.rows(out):
        refused += row["refused"]
    assert [refusal["client"] for refusal in refused] == [1]
    assert "its update of train parameters is 1e+30 per element" in refused[0]["reason"]
    assert run.result["rounds"] == 5 and run.figures["mean"] > 0


def test_a_run_that_diverged_is_taken_back(poisoner, images, tmp_path, capsys):
    """Without the bound, all diverge; without the attacker, a resume fails the same way.

    A resume from an earlier round succeeds.
    """
    out = tmp_path / "run"
    words = [
        "--set",
        f"data.name={images}",
        "--set",
        "data.partition=iid",
        "--clients",
        "4",
        "--rounds",
        "5",
    ]
    small = ["--width", "0.125", "--batch", "8", "--workers", "0", "--quiet", "--norm-bound", "off"]
    assert cli.main(["run", poisoner, *words, *small, "--out", str(out)]) == 3
    assert "`fedloom resume RUN --from 2` goes back" in capsys.readouterr().err
    (tmp_path / "poison").unlink()
    assert cli.main(["resume", str(out), "--quiet"]) == 3
    assert cli.main(["resume", str(out), "--quiet", "--from", "1"]) == 2
    assert (
        "--from must be a round whose checkpoint is kept, but got 1, and the run has 2, 3"
        in capsys.readouterr().err
    )
    assert cli.main(["resume", str(out), "--quiet", "--from", "2"]) == 0
    result = RunFolder(out).result().to_json()
    assert result["taken_back"] == [{"since": 3, "to": 2}] and result["rounds"] == 5
    notice = "The run had reached round 3 and was taken back to round 2 (resume --from)."
    assert notice in (out / "report.html").read_text()
    assert "taken back to round 2" in " ".join(capsys.readouterr().out.split())
    honest = tiny.start(tmp_path / "honest", poisoner, tiny.tree(images, clients=4, rounds=5))
    assert result["accuracy"] == honest.result["accuracy"]


@pytest.mark.parametrize("number", [7, -1, 1])
def test_a_wrong_round_throws_nothing_away(number, images, tmp_path, capsys, replies_in_files):
    out = tmp_path / "run"
    stopped_in_round(4, 2, out, "fedavg", tiny.tree(images, rounds=5))
    before = contents(out)
    assert cli.main(["resume", str(out), "--quiet", "--from", str(number)]) == 2
    assert "--from must be a round" in capsys.readouterr().err
    assert contents(out) == before


def contents(run):
    """Of every file that belongs to a run; what a killed process left half written does not."""
    return {
        path: path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.suffix != ".tmp"
    }


def test_a_configuration_that_cannot_be_read_throws_nothing_away(images, tmp_path, capsys):
    out = tmp_path / "run"
    tiny.start(out, "fedavg", tiny.tree(images, rounds=3))
    (out / "config.toml").write_text(
        (out / "config.toml").read_text().replace("rounds = 3", 'rounds = "x"')
    )
    assert cli.main(["resume", str(out), "--quiet", "--from", "2"]) == 2
    assert (out / "result.json").exists() and len(list((out / "checkpoints").iterdir())) == 2


def test_a_run_is_taken_back_to_its_beginning(poisoner, images, tmp_path, capsys):
    """Where the first round was the bad one."""
    (tmp_path / "poisoner.py").write_text(
        POISONER.replace("run.round == 3 and", "run.round == 1 and")
    )
    out = tmp_path / "run"
    words = [
        "--set",
        f"data.name={images}",
        "--set",
        "data.partition=iid",
        "--clients",
        "2",
        "--rounds",
        "3",
    ]
    small = ["--width", "0.125", "--batch", "8", "--workers", "0", "--quiet"]
    assert cli.main(["run", poisoner, *words, *small, "--out", str(out)]) == 3
    assert "`fedloom resume RUN --from 0` goes back" in capsys.readouterr().err
    (tmp_path / "poison").unlink()
    assert cli.main(["resume", str(out), "--quiet", "--from", "0"]) == 0
    result = RunFolder(out).result().to_json()
    assert (result["rounds"], result["taken_back"]) == (3, [{"since": 1, "to": 0}])
    honest = tiny.start(tmp_path / "honest", poisoner, tiny.tree(images, clients=2, rounds=3))
    assert result["accuracy"] == honest.result["accuracy"]


def test_a_stage_that_chose_its_best_round_can_be_taken_back(images, tmp_path):
    """The last checkpoint of a stage is kept with the best round that it hands on."""
    out = tmp_path / "run"
    tiny.start(out, "fedrep", tiny.tree(images, rounds=5, evaluate={"select": "best"}))
    checkpoints = sorted(int(path.stem) for path in (out / "checkpoints").iterdir())
    before = figures_of(out)
    assert cli.main(["resume", str(out), "--quiet", "--from", str(checkpoints[-2])]) == 0
    assert figures_of(out) == before


def test_a_finished_run_can_be_taken_back(images, tmp_path):
    out = tmp_path / "run"
    tiny.start(out, "ditto", tiny.tree(images, rounds=4))
    before = figures_of(out)
    assert cli.main(["resume", str(out), "--quiet", "--from", "3"]) == 0
    assert figures_of(out) == before
    assert RunFolder(out).result().to_json()["taken_back"] == [{"since": 4, "to": 3}]


def test_taking_back_cuts_later_versions_of_client_states(images, tmp_path):
    out = tmp_path / "run"
    tiny.stopped_after(4, out, "local", tiny.tree(images, rounds=6))
    from fedloom.runs.running import take_back

    take_back(RunFolder(out), 3)
    assert {path.stem for path in Path(out / "clients").rglob("*.state")} == {"2.0", "3.0"}


def test_a_comparison_cannot_be_taken_back(images, tmp_path, capsys):
    RunFolder.create("compare", "x", tmp_path / "both")
    assert cli.main(["resume", str(tmp_path / "both"), "--from", "3"]) == 2
    errors = capsys.readouterr().err
    assert (
        "--from must be for one run, but " in errors
        and "is a comparison; name one of the runs in it" in errors
    )


def test_checkpoints_stay_until_a_round_succeeds(poisoner, images, tmp_path):
    """After the poison, round after round only the poisoner is accepted.

    The last good checkpoint is still there.
    """
    text = POISONER.replace("run.round == 3 and", "run.round >= 3 and")
    (tmp_path / "poisoner.py").write_text(text)
    out = tmp_path / "run"
    tiny.start(out, poisoner, tiny.tree(images, clients=4, rounds=8, engine={"norm_bound": "off"}))
    assert [len(row["refused"]) for row in tiny.rows(out)] == [0, 0, 0, 3, 3, 3, 3, 3]
    checkpoints = sorted(path.stem for path in (out / "checkpoints").iterdir())
    assert checkpoints == ["000002", "000003", "000007", "000008"]

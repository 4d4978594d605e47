"""Clients that fail or lie are refused by id and reason.

Disks that fail lose nothing that was saved.
"""

import os
import random
import subprocess

import pytest
import tiny
import torch
from disk import Disk, full

from fedloom import cli
from fedloom.errors import RunStopped
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol import parcels
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.events import Replied
from fedloom.launch import go_on
from fedloom.report.progress import Screen
from fedloom.runs import experiment
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.running import carry_out
from fedloom.types import Reply

pytestmark = pytest.mark.processes

# Client 1 does what the file `fault` beside this one says; without it, it is honest.
ROGUE = """
import os, pathlib, time
from dataclasses import dataclass, replace

import torch

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions

FAULT = pathlib.Path(__file__).with_name("fault")
CRASHED = pathlib.Path(__file__).with_name("crashed")
KEY = "net.classifier.bias"


@dataclass(frozen=True)
class Rogue(FedAvg):
    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        if order.client != 1 or not FAULT.exists():
            return reply, own
        return spoil(reply, FAULT.read_text()), own


def spoil(reply, fault):
    tensors, bias = dict(reply.tensors), reply.tensors[KEY]
    if fault == "raises":
        raise ValueError("the moon is in the wrong place")
    if fault == "dies":
        os._exit(7)
    if fault == "crashes":
        os.kill(os.getpid(), 11)
    if fault == "crashes once" and not CRASHED.exists():
        CRASHED.touch()
        os.kill(os.getpid(), 6)
    if fault == "sleeps":
        time.sleep(600)
    if fault in ("nan", "inf"):
        tensors[KEY] = torch.full_like(bias, float(fault))
    if fault == "missing":
        del tensors[KEY]
    if fault == "extra":
        tensors["backdoor"] = bias
    if fault == "shape":
        tensors[KEY] = bias[:-1]
    if fault == "dtype":
        tensors[KEY] = bias.double()
    changes = {
        "weight": {"weight": 1e12}, "negative": {"weight": -1.0},
        "field": {"meta": {"diary": "secret"}}, "other": {"client": 0},
        "overflow": {"meta": {"loss": 1.7e308}}, "integer": {"meta": {"loss": 10**400}},
        "text": {"meta": {"loss": "much"}}, "list": {"meta": {"loss": [1.0]}},
    }
    return replace(reply, tensors=tensors, **changes.get(fault, {}))


rogue = Recipe(
    "rogue", FedAvgOptions, lambda task: (Stage("train", Rogue(FedAvgOptions(**task.options))),)
)
"""


@pytest.fixture
def rogue(tmp_path):
    (tmp_path / "rogue.py").write_text(ROGUE)
    return f"{tmp_path}/rogue.py:rogue"


def refusals(out):
    """For every round a list of (client, reason)."""
    of_rounds = []
    for row in tiny.rows(out):
        of_rounds.append([(refused["client"], refused["reason"]) for refused in row["refused"]])
    return of_rounds


REASONS = {
    "raises": "raised: ValueError: the moon is in the wrong place",
    "nan": "tensor 'net.classifier.bias' holds a NaN or Inf",
    "inf": "tensor 'net.classifier.bias' holds a NaN or Inf",
    "missing": "tensor 'net.classifier.bias' is missing",
    "extra": "it contains the undeclared tensor 'backdoor'",
    "shape": "tensor 'net.classifier.bias' has shape [2], not [3]",
    "dtype": "tensor 'net.classifier.bias' is torch.float64, not torch.float32",
    "weight": "its weight 1e+12 is not between 0 and 19",
    "negative": "its weight -1 is not between 0 and 19",
    "field": "it contains the undeclared field 'diary'",
    "other": "it says it comes from client 0",
    "integer": (
        "its loss: neither a finite number, nor a string of at most 1,000 characters, nor null"
    ),
    "list": "its loss: neither a finite number, nor a string of at most 1,000 characters, nor null",
}


@pytest.mark.parametrize("fault", REASONS)
def test_a_bad_reply_is_refused_and_the_round_goes_on(fault, rogue, images, tmp_path):
    (tmp_path / "fault").write_text(fault)
    run = tiny.start(tmp_path / "run", rogue, tiny.tree(images, rounds=1))
    assert refusals(tmp_path / "run") == [[(1, REASONS[fault])]]
    assert tiny.rows(tmp_path / "run")[0]["replies"] == 2
    assert (
        f"round 1: client 1 refused: {REASONS[fault]}" in (tmp_path / "run" / "run.log").read_text()
    )
    assert run.accuracy["mean"] is not None
    assert (
        run.client(1).accuracy is not None
    )  # it did not help to train, but can use what the others made


@pytest.mark.parametrize("fault", ["overflow", "text"])
def test_figures_of_a_reply_cannot_stop_the_server(fault, rogue, images, tmp_path):
    """A loss is only noted: an absurd one is left out of the curve, and the model still counts."""
    (tmp_path / "fault").write_text(fault)
    tiny.start(tmp_path / "run", rogue, tiny.tree(images, rounds=1))
    (row,) = tiny.rows(tmp_path / "run")
    assert (row["replies"], row["refused"]) == (3, [])
    assert 0 < row["meta"]["loss"] < 10


def claim(size):
    return size.to_bytes(8, "little") + b'{"__metadata__": {}'


def tensor_of(size):
    """An honest header, but for the size of its one tensor, which is not there."""
    honest = (
        reply_chunks(Reply(1, {"bomb": torch.zeros(1, dtype=torch.uint8)}, 1.0))[0][8:]
        .decode()
        .rstrip()
    )
    header = honest.replace(
        '"shape":[1],"data_offsets":[0,1]', f'"shape":[{size}],"data_offsets":[0,{size}]'
    ).encode()
    assert str(size).encode() in header
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "it is not a valid message: a message needs at least 8 bytes, these are 0"),
        (claim(8 << 30), f"it is not a valid message: the header claims {8 << 30} bytes of 19"),
        (
            tensor_of(8 << 30),
            f"it is not a valid message: the header claims {8 << 30} bytes of tensors, 0 are there",
        ),
        (b"\0" * (2 << 20), f"it has {2 << 20} bytes, at most"),
        (random.Random(0).randbytes(5000), "it is not a valid message"),
    ],
    ids=["empty", "header", "tensor", "large", "noise"],
)
def test_raw_bytes(raw, reason, images, tmp_path, monkeypatch):
    class Lying(InlineEngine):
        def ask(self, parcels, deadline):
            for parcel, envelope in super().ask(parcels, deadline):
                if parcel.client == 1 and parcel.reply.name == "1.0.1.reply":
                    parcel.reply.put([raw])
                yield parcel, envelope

    monkeypatch.setattr(experiment, "InlineEngine", Lying)
    tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, rounds=2))
    ((client, found),), later = refusals(tmp_path / "run")
    assert (client, later) == (1, [])
    assert found.startswith(reason)


# Processes


def test_a_client_that_kills_its_process(rogue, images, tmp_path, pool_of):
    (tmp_path / "fault").write_text("dies")
    tiny.start(
        tmp_path / "run", rogue, tiny.tree(images, rounds=1, engine={"workers": 2}), pool=pool_of(2)
    )
    assert refusals(tmp_path / "run") == [
        [(1, "died: its process ended with exit code 7, and so did a second one")]
    ]
    (row,) = tiny.rows(tmp_path / "run")
    assert (row["replies"], row["deaths"]) == (2, [{"client": 1, "exit": 7}] * 2)


def test_a_late_client_makes_nobody_else_late(rogue, images, tmp_path, pool_of):
    """With one worker, the client after the late one waits for a new process.

    That wait is not its own delay.
    """
    (tmp_path / "fault").write_text("sleeps")
    setting = tiny.tree(images, rounds=1, engine={"workers": 1, "deadline": 2.0})
    tiny.start(tmp_path / "run", rogue, setting, pool=pool_of(1))
    assert refusals(tmp_path / "run") == [[(1, "late: no reply within 2 s (--deadline)")]]
    assert tiny.rows(tmp_path / "run")[0]["replies"] == 2


def test_late_without_processes(images, tmp_path):
    with pytest.raises(RunStopped, match="late: no reply within 1e-09 s"):
        tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, engine={"deadline": 1e-9}))


# Too few replies


def test_too_few_replies_because_processes_died(rogue, images, tmp_path, pool_of):
    """The advice fits.

    After a resume the round's row has the deaths of the attempt that was given up.
    """
    out = tmp_path / "run"
    pool = pool_of(1)
    setting = tiny.tree(images, rounds=2, engine={"workers": 1, "min_replies": 3})
    tiny.start(tmp_path / "undisturbed", rogue, setting, pool=pool)
    (tmp_path / "fault").write_text("crashes")
    with pytest.raises(RunStopped) as caught:
        tiny.start(out, rogue, setting, pool=pool)
    reason = (
        "client 1: died: its process was killed by signal 11 (SIGSEGV), and so was a second one"
    )
    assert f"but got 2 ({reason}); native code of torch or another library crashed" in str(
        caught.value
    )
    assert "fix the clients" not in str(caught.value)
    (tmp_path / "fault").unlink()
    tiny.go_on(out, pool=pool)
    first, second = tiny.rows(out)
    assert first["deaths"] == [{"client": 1, "signal": "SIGSEGV"}] * 2
    assert "deaths" not in second
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []


def test_a_death_in_the_journal_survives_a_kill(rogue, images, tmp_path, pool_of):
    """A second process did the work: figures are the same, and the round's row has the death."""
    setting = tiny.tree(images, rounds=2, engine={"workers": 1})
    out = tmp_path / "run"
    pool = pool_of(1)
    tiny.start(tmp_path / "undisturbed", rogue, setting, pool=pool)
    (tmp_path / "fault").write_text("crashes once")

    def stop(event):
        if isinstance(event, Replied) and event.client == 1 and (tmp_path / "crashed").exists():
            raise tiny.Enough

    folder, prepared = create(configure(rogue, setting), out)
    with pytest.raises(tiny.Enough):
        carry_out(folder, prepared, stop, pool=pool)
    tiny.go_on(out, pool=pool)
    first, second = tiny.rows(out)
    assert first["deaths"] == [{"client": 1, "signal": "SIGABRT"}] and "deaths" not in second
    assert first["refused"] == []
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []


def test_too_few_replies_stop_a_run_that_can_be_resumed(rogue, images, tmp_path, capsys):
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
    words += ["--min-replies", "3", "--width", "0.125", "--quiet"]
    assert cli.main(["run", rogue, *words, "--out", str(tmp_path / "undisturbed")]) == 0
    (tmp_path / "fault").write_text("nan")
    out = tmp_path / "run"
    capsys.readouterr()
    assert cli.main(["run", rogue, *words, "--out", str(out)]) == 3
    shown = capsys.readouterr()
    assert (
        "round 1 must get at least 3 replies (--min-replies), but got 2 (client 1: tensor"
        in shown.err
    )
    assert f"fedloom resume {out}" in shown.err
    assert "Traceback" not in shown.err
    assert cli.main(["resume", str(out), "--quiet"]) == 3  # the fault is still there
    (tmp_path / "fault").unlink()
    assert cli.main(["resume", str(out), "--quiet"]) == 0
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []


# Lost states


def delete(path):
    path.unlink()


def tear(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("lose", [delete, tear])
def test_a_lost_state_is_refused_by_name(lose, images, tmp_path):
    out = tmp_path / "run"
    tiny.stopped_after(2, out, "local", tiny.tree(images, rounds=4))
    lose(out / "clients" / "1" / "2.0.state")
    run = tiny.go_on(out)
    ((_, reason),) = refusals(out)[2]
    assert reason.startswith(
        {
            delete: "lost: client 1 no longer has version 2.0 of its state",
            tear: "lost: version 2.0 of the state of client 1 cannot be read (",
        }[lose]
    )
    assert refusals(out) == [[], [], [(1, reason)], [(1, reason)]]
    assert run.result["lost_states"] == [
        {"client": 1, "round": number, "how": "refused"} for number in (3, 4)
    ]
    page = (out / "report.html").read_text()
    assert "Client 1 lost its own state (rounds 3 and 4) and was left out of those rounds." in page
    assert f"client 1 refused: {reason}" in (out / "run.log").read_text()
    assert run.client(1).accuracy is None
    assert run.client(1).figures["reason"] == reason
    assert run.client(0).accuracy is not None


def test_a_lost_state_may_start_afresh(images, tmp_path):
    out = tmp_path / "run"
    tiny.stopped_after(2, out, "local", tiny.tree(images, rounds=4, engine={"lost_state": "fresh"}))
    delete(out / "clients" / "1" / "2.0.state")
    run = tiny.go_on(out)
    assert refusals(out) == [[], [], [], []]
    assert "client 1 continues with a fresh state" in (out / "run.log").read_text()
    assert run.client(1).accuracy is not None
    assert run.result["lost_states"] == [{"client": 1, "round": 3, "how": "fresh"}]
    page = (out / "report.html").read_text()
    assert "Client 1 lost its own state (round 3) and continued with a fresh one." in page


# Checkpoints


def test_a_damaged_checkpoint_is_passed_over(images, tmp_path):
    tiny.start(tmp_path / "undisturbed", "local", tiny.tree(images, rounds=4))
    out = tmp_path / "run"
    tiny.stopped_after(3, out, "local", tiny.tree(images, rounds=4))
    tear(out / "checkpoints" / "000003.state")
    tiny.go_on(out)
    unlike = tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out))
    # Figures and states are equal; orders name fewer versions to keep, so some bytes of the ledger
    # are not.
    assert [
        name for name in unlike if name.startswith(("client", "result accuracy", "result clients"))
    ] == []


def test_an_older_damaged_checkpoint_does_no_harm(images, tmp_path):
    out = tmp_path / "run"
    tiny.stopped_after(3, out, "fedavg", tiny.tree(images, rounds=4))
    tear(out / "checkpoints" / "000002.state")
    assert tiny.go_on(out).result["rounds"] == 4


def test_the_last_round_is_a_candidate_for_the_best_in_a_stage_without_a_budget_too(
    images, tmp_path
):
    """Per-FedAvg's local steps come after the budget, in one round that `every` does not name."""
    setting = tiny.tree(images, rounds=2, evaluate={"select": "best", "every": 100})
    result = tiny.start(tmp_path / "run", "perfedavg", setting).result
    assert (result["rounds"], result["selected"]) == (3, 3) and result["validation"] is not None


def test_a_damaged_best_checkpoint_costs_those_that_need_it(images, tmp_path):
    """Here all of them: the best round was the first, so the run begins anew, and says so."""
    out = tmp_path / "run"
    setting = tiny.tree(images, rounds=8, evaluate={"select": "best"}, options={"lr": "1e-9"})
    tiny.stopped_after(7, out, "fedavg", setting)
    (best,) = {int(path.stem) for path in (out / "checkpoints").glob("*.state")} - {6, 7}
    tear(out / "checkpoints" / f"{best:06d}.state")
    run = tiny.go_on(out)
    assert (run.result["rounds"], run.result["selected"]) == (8, best)
    log = (out / "run.log").read_text()
    assert (
        f"the checkpoint of round 7 cannot be used: the best round so far, {best}, is missing or "
        "damaged" in log
    )
    assert "no checkpoint can be used: the run starts again at round 0" in log


# Full disks


@pytest.mark.parametrize("method", [pytest.param("fedavg", marks=pytest.mark.slow), "local"])
@pytest.mark.parametrize("most_held", [0, parcels.MOST_HELD], ids=["files", "journal"])
def test_a_full_disk_loses_nothing(method, most_held, images, tmp_path, monkeypatch):
    monkeypatch.setattr(parcels, "MOST_HELD", most_held)
    setting = tiny.tree(images, rounds=2)
    folder, _ = create(configure(method, setting), tmp_path / "undisturbed")
    with Disk().mounted() as disk:
        tiny.go_on(folder.path)
    expected = tiny.left_behind(folder.path)
    moments: dict[str, int] = {}
    for at, kind in enumerate(disk.log, start=1):
        if kind.startswith(("write", "rename")) and (
            kind not in moments or random.Random(at).random() < 0.3
        ):
            moments[kind] = at
    assert {
        "write checkpoints state",
        "write run jsonl",
        "write spool jsonl",
        "write run json",
    } <= set(moments)
    page = {kind: moments.pop(kind) for kind in list(moments) if kind.endswith(" html")}
    for at in (
        page.values()
    ):  # the results are safe by then: the run has ended, and a resume writes its page
        folder, _ = create(configure(method, setting), tmp_path / f"full-{at}")
        with Disk(at, full, half=True).mounted():
            tiny.go_on(folder.path)
        assert not (folder.path / "report.html").exists()
        go_on(folder, Screen(None, None))
        assert (folder.path / "report.html").exists()
    for kind, at in moments.items():
        folder, _ = create(configure(method, setting), tmp_path / f"full-{at}")
        with (
            Disk(at, full, half=True).mounted(),
            pytest.raises(RunStopped, match="No space left") as caught,
        ):
            tiny.go_on(folder.path)
        assert "make room" in str(caught.value) or "free some space" in str(caught.value)
        tiny.go_on(folder.path)
        assert tiny.unlike(expected, tiny.left_behind(folder.path)) == [], (
            f"full at operation {at} ({kind})"
        )


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small disk of one's own needs root and the right to mount")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_disk_that_is_really_full(workers, small_disk, images, tmp_path, capfd, pool_of):
    setting = tiny.tree(
        images, clients=6, rounds=6, engine={"workers": workers}, options={"width": "0.5"}
    )
    more = {"pool": pool_of(2)} if workers else {}
    tiny.start(tmp_path / "undisturbed", "local", setting, **more)
    out = small_disk / "run"
    with pytest.raises(RunStopped, match="No space left"):
        tiny.start(out, "local", setting, **more)
    shown = capfd.readouterr()
    assert "Traceback" not in shown.out + shown.err
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    tiny.go_on(out, **more)
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []

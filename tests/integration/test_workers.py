"""The same bits for any number of worker processes, even if one is killed while it works."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import tiny

from fedloom.federation.engines import local

pytestmark = pytest.mark.processes


def with_workers(count, **more):
    return {"engine": {"workers": count, **more}}


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_one_two_and_three_workers_and_none(method, images, tmp_path, pool_of):
    tiny.start(tmp_path / "0", method, tiny.tree(images, clients=4))
    expected = tiny.left_behind(tmp_path / "0")
    for count in (1, 2, 3):
        out = tmp_path / str(count)
        tiny.start(
            out, method, tiny.tree(images, clients=4, **with_workers(count)), pool=pool_of(count)
        )
        assert tiny.unlike(expected, tiny.left_behind(out)) == []


def test_clusters_with_sub_spaces_of_their_own(images, tmp_path, pool_of):
    """FINCH, whose clients keep a memory between hops and score sub-spaces before a round."""
    small = {
        "ops": "s3",
        "nodes": 1,
        "group": 2,
        "stack": 1,
        "lambda1": 1,
        "channels": 2,
        "batch": 8,
    }
    tree = tiny.tree(images, clients=4, rounds=4)
    tree["options"] = small
    tiny.start(tmp_path / "0", "finch", tree)
    expected = tiny.left_behind(tmp_path / "0")
    for count in (1, 2):
        out = tmp_path / str(count)
        tree["engine"] = {**tree["engine"], "workers": count}
        tiny.start(out, "finch", tree, pool=pool_of(count))
        assert tiny.unlike(expected, tiny.left_behind(out)) == []


def capped(images, workers):
    """Clients of very different sizes, of whom none may have more than 30 % of the weight."""
    setting = tiny.tree(images, clients=4, **with_workers(workers, max_weight_share=0.3))
    setting["data"].update(partition="dirichlet:0.3", min_samples=4)
    return setting


def test_a_cap_on_weights_is_the_same_for_any_number_of_workers(images, tmp_path, pool_of):
    run = tiny.start(tmp_path / "0", "fedavg", capped(images, 0))
    expected = tiny.left_behind(tmp_path / "0")
    rows = tiny.rows(tmp_path / "0")
    assert all(row["capped"] for row in rows)
    client, cap = next(iter(run.result["capped"].items()))
    assert cap == {"rounds": 3, "share": rows[0]["capped"][client]}
    assert max(cap["share"] for cap in run.result["capped"].values()) > 0.3
    assert {row["capped"] for row in run.metrics} == {len(run.result["capped"])}
    assert (
        "Weights were capped by --max-weight-share: client"
        in (tmp_path / "0" / "report.html").read_text()
    )
    tiny.start(tmp_path / "2", "fedavg", capped(images, 2), pool=pool_of(2))
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "2")) == []
    assert "max_weight_share = 0.3" in (tmp_path / "2" / "config.toml").read_text()
    tiny.stopped_after(2, tmp_path / "resumed", "fedavg", capped(images, 0))
    tiny.go_on(tmp_path / "resumed")
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "resumed")) == []


def test_every_worker_works(images, tmp_path, pool_of):
    """Or the test above compares one worker with itself."""
    pool = pool_of(2)
    seen = set()
    (tmp_path / "who.py").write_text(WHO)
    method = f"{tmp_path}/who.py:who"
    tiny.start(
        tmp_path / "run",
        method,
        tiny.tree(images, clients=4, rounds=1, **with_workers(2)),
        pool=pool,
    )
    for path in tmp_path.glob("*.pid"):
        seen.add(int(path.stem))
    assert seen == {worker.process.pid for worker in pool.workers}


WHO = """
import os, pathlib, time
from dataclasses import dataclass

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions

HERE = pathlib.Path(__file__).parent


@dataclass(frozen=True)
class Who(FedAvg):
    def client(self, order, data, own, run):
        (HERE / f"{os.getpid()}.pid").touch()
        while (HERE / "wait").exists():
            time.sleep(0.01)
        return super().client(order, data, own, run)


who = Recipe(
    "who", FedAvgOptions, lambda task: (Stage("train", Who(FedAvgOptions(**task.options))),)
)
"""


def test_a_worker_killed_while_it_works_is_replaced(images, tmp_path, pool_of):
    (tmp_path / "who.py").write_text(WHO)
    method = f"{tmp_path}/who.py:who"
    setting = tiny.tree(images, clients=4, rounds=2, **with_workers(2))
    tiny.start(tmp_path / "undisturbed", method, setting, pool=pool_of(2))
    (tmp_path / "wait").touch()
    for path in tmp_path.glob("*.pid"):
        path.unlink()
    pool = pool_of(2)
    victim = threading.Thread(target=kill_one, args=(tmp_path,))
    victim.start()
    tiny.start(tmp_path / "killed", method, setting, pool=pool)
    victim.join()
    dead = int((tmp_path / "dead").read_text())
    assert dead not in {worker.process.pid for worker in pool.workers}
    undisturbed = tiny.left_behind(tmp_path / "undisturbed")
    assert tiny.unlike(undisturbed, tiny.left_behind(tmp_path / "killed")) == []
    deaths = []
    for row in tiny.rows(tmp_path / "killed"):
        deaths += row.get("deaths", [])
    (death,) = deaths
    assert death == {"client": death["client"], "signal": "SIGKILL"}
    logged = (tmp_path / "killed" / "run.log").read_text()
    assert (
        f"client {death['client']}: its process was killed by signal 9 (SIGKILL); its order is "
        "given to" in logged
    )
    assert not any("deaths" in row for row in tiny.rows(tmp_path / "undisturbed"))


def kill_one(folder: Path) -> None:
    """As soon as a worker is at a client's work."""
    give_up = time.monotonic() + 60
    while not list(folder.glob("*.pid")) and time.monotonic() < give_up:
        time.sleep(0.01)
    pid = int(next(folder.glob("*.pid")).stem)
    (folder / "dead").write_text(str(pid))
    os.kill(pid, signal.SIGKILL)
    (folder / "wait").unlink()


# Short orders are handed out two at a time, and those of a moment many


@pytest.fixture
def always_brief(monkeypatch):
    monkeypatch.setattr(local, "BRIEF", float("inf"))
    monkeypatch.setattr(local, "MOMENT", 0.0)


def test_short_orders_wait_in_the_socket_and_change_no_bit(images, tmp_path, pool_of, always_brief):
    most = 0
    give = local.Worker.give

    def watched(self, *arguments):
        nonlocal most
        give(self, *arguments)
        most = max(most, len(self.jobs))

    setting = tiny.tree(images, clients=6, rounds=2)
    tiny.start(tmp_path / "0", "fedavg", setting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.Worker, "give", watched)
        tiny.start(tmp_path / "2", "fedavg", {**setting, **with_workers(2)}, pool=pool_of(2))
    assert most == 2
    assert tiny.unlike(tiny.left_behind(tmp_path / "0"), tiny.left_behind(tmp_path / "2")) == []


def test_orders_of_a_moment_go_out_many_at_a_time_and_change_no_bit(
    images, tmp_path, pool_of, monkeypatch
):
    """The first ones go out one by one: nobody knows yet how long they take."""
    monkeypatch.setattr(local, "MOMENT", float("inf"))
    sent = []
    send = local.Worker.send

    def watched(self):
        if self.unsent:
            sent.append(len(self.jobs))
        send(self)

    setting = tiny.tree(images, clients=7, rounds=2)
    tiny.start(tmp_path / "0", "fedavg", setting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.Worker, "send", watched)
        tiny.start(tmp_path / "2", "fedavg", {**setting, **with_workers(2)}, pool=pool_of(2))
    assert sent[:2] == [1, 1] and max(sent) >= 3
    assert tiny.unlike(tiny.left_behind(tmp_path / "0"), tiny.left_behind(tmp_path / "2")) == []


@pytest.mark.parametrize(
    ("seconds", "orders"), [(0.0005, local.MANY), (0.001, 2), (0.005, 2), (0.01, 1), (3.0, 1)]
)
def test_how_many_orders_a_worker_gets_follows_how_long_they_take(seconds, orders):
    assert local.orders_at_once(seconds) == orders


def test_long_orders_do_not_wait_for_a_busy_worker(images, tmp_path, pool_of, monkeypatch):
    monkeypatch.setattr(local, "BRIEF", 0.0)
    monkeypatch.setattr(local, "MOMENT", 0.0)
    most = 0
    give = local.Worker.give

    def watched(self, *arguments):
        nonlocal most
        give(self, *arguments)
        most = max(most, len(self.jobs))

    monkeypatch.setattr(local.Worker, "give", watched)
    tiny.start(
        tmp_path / "2",
        "fedavg",
        tiny.tree(images, clients=6, rounds=2, **with_workers(2)),
        pool=pool_of(2),
    )
    assert most == 1


FATAL = """
import os, time
from dataclasses import dataclass

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions


@dataclass(frozen=True)
class Fatal(FedAvg):
    def client(self, order, data, own, run):
        if order.client == 2 and order.stamp.round == 2:
            DEED
        return super().client(order, data, own, run)


fatal = Recipe(
    "fatal", FedAvgOptions, lambda task: (Stage("train", Fatal(FedAvgOptions(**task.options))),)
)
"""


@pytest.mark.parametrize(
    ("deed", "reason", "more"),
    [
        ("os._exit(1)", "died: its process ended with exit code 1, and so did a second one", {}),
        (
            "os.kill(os.getpid(), 11)",
            "died: its process was killed by signal 11 (SIGSEGV), and so was a second one",
            {},
        ),
        ("time.sleep(60)", "late: no reply within 1 s (--deadline)", {"deadline": 1.0}),
    ],
    ids=["ends", "crashes", "late"],
)
def test_only_the_order_at_work_answers_for_its_worker(
    deed, reason, more, images, tmp_path, pool_of, always_brief
):
    """Those that waited behind it are done by another worker, and are not refused."""
    (tmp_path / "fatal.py").write_text(FATAL.replace("DEED", deed))
    setting = tiny.tree(images, clients=6, rounds=3, **with_workers(2, **more))
    tiny.start(tmp_path / "run", f"{tmp_path}/fatal.py:fatal", setting, pool=pool_of(2))
    refused = [row["refused"] for row in tiny.rows(tmp_path / "run")]
    assert refused == [[], [{"client": 2, "reason": reason}], []]

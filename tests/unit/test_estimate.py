from dataclasses import replace

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.federation.protocol.wire import Body, order_head
from fedloom.runs import estimate as module
from fedloom.runs.configure import configure
from fedloom.runs.estimate import PROBE, Estimate, estimate, few, stage_rounds
from fedloom.runs.experiment import prepare
from fedloom.types import Round, Stamp, State


@pytest.fixture
def prepared(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(400 * 25, dtype=np.uint8).reshape(400, 5, 5), y=np.arange(400) % 2)

    def make(method="fedavg", *, clients=4, rounds=10, **sections):
        tree = {
            "data": {"name": str(tmp_path / "x.npz"), "clients": clients, "partition": "iid"},
            "options": {"width": "0.125"}, "budget": {"rounds": rounds}, "engine": {"workers": 0},
        }  # fmt: skip
        for name, values in sections.items():
            tree[name] = {**tree.get(name, {}), **values}
        return prepare(configure(method, tree))

    return make


def test_rounds_are_shared_out_as_the_loop_does(prepared):
    assert stage_rounds(prepared("fedavg", rounds=7)) == [7.0]
    assert stage_rounds(prepared("local-adaptation", rounds=10)) == [8.0, 2.0]
    assert stage_rounds(prepared("local-adaptation", rounds=2)) == [1.0, 1.0]


def test_bytes_grow_with_rounds_participants_and_hops(prepared):
    once = estimate(prepared(rounds=1))
    assert (once.rounds, once.clients_a_round) == (1, 4)
    assert estimate(prepared(rounds=3)).down == 3 * once.down
    half = estimate(prepared(rounds=1, budget={"participation": 0.5}))
    assert (half.clients_a_round, half.up) == (2, once.up / 2)
    assert estimate(prepared(rounds=1, engine={"topology": "clustered:2x3"})).up == 3 * once.up


def test_local_sends_next_to_nothing(prepared):
    assert 0 < estimate(prepared("local", rounds=1)).up < estimate(prepared(rounds=1)).up / 5


def test_headers_are_sent_too(prepared):
    """An order of local training has no tensors: all that goes down is its header, to 4 clients."""
    made = prepared("local", rounds=1)
    r = Round(1, 0.0, 1.0, range(4), 1.0, made.config.seed)
    _, orders = made.stages[0].method.plan(State(), r)
    stamp = Stamp("dry-run", made.task, made.stages[0].name, 1, 0, None, "1.0")
    head = order_head(replace(orders[0], stamp=stamp), Body({}))
    assert len(head) > 300
    assert estimate(made).down == 4 * len(head)


def test_memory_counts_the_workers(prepared, monkeypatch):
    monkeypatch.setattr(module, "peak_memory", lambda: 100)
    assert estimate(prepared()).memory == 100
    assert estimate(prepared(engine={"workers": 3})).memory == 400


def test_time_is_shared_by_workers_and_scaled_to_whole_clients(prepared, monkeypatch):
    """One second for the samples probed: 4 clients of 80 to train on, 2 rounds."""
    probe = module.Probe(seconds=1.0, down=1, up=1, orders=4)
    monkeypatch.setattr(module, "measure", lambda *arguments: (None, probe))
    assert estimate(prepared(rounds=2)).seconds == 8.0
    assert estimate(prepared(rounds=2, engine={"workers": 2})).seconds == 4.0
    assert estimate(prepared(rounds=2, engine={"workers": 3})).seconds == 4.0  # one of them has two to do
    assert estimate(prepared(rounds=2, engine={"workers": 9})).seconds == 2.0


def test_only_a_few_samples_are_trained_on(prepared, tmp_path):
    from fedloom.data.mapped_clients import MappedClients

    made = prepared(clients=2)
    clients_data = MappedClients.build(tmp_path / "data", made.source, made.split)
    assert len(clients_data.client(0).train) == 160
    assert len(few(clients_data, 0.0)(0).train) == PROBE
    assert len(few(clients_data, 0.0)(0).test) == 40


def test_nothing_is_left_behind(prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module.tempfile, "tempdir", None)
    estimate(prepared("local"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_a_client_that_cannot_work(prepared, tmp_path):
    (tmp_path / "broken.py").write_text(
        "from torch import nn\n"
        "class Broken(nn.Linear):\n"
        "    def __init__(self, shape, classes, width): super().__init__(3, classes)\n"
    )
    made = prepared(options={"network": f"{tmp_path}/broken.py:Broken"})
    with pytest.raises(FedloomError, match=r"a client's code must run, but RuntimeError: .*; mend it"):
        estimate(made)


def test_in_words_and_as_json(capsys):
    found = Estimate(600.0, 2_000_000, 1_000, 3_000_000_000, 20, 8)
    found.table()
    words = capsys.readouterr().out
    assert words.startswith("about 10 min of training for 20 rounds of 8 clients, 2 MB down, 1 kB up, 3 GB of memory")
    assert found.to_json() == {
        "dry_run": True, "seconds": 600.0, "down": 2_000_000, "up": 1_000, "memory": 3_000_000_000, "rounds": 20,
        "clients_a_round": 8,
    }  # fmt: skip


PLANS_BY_SIZE = """
from dataclasses import dataclass

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import State


@dataclass(frozen=True)
class Largest(FedAvg):
    describe = {"want": "classes"}

    def describe_client(self, ask, data, run):
        return {"classes": len(data.y.unique()), "asked": ask}

    def init(self, setup, previous):
        state = super().init(setup, previous)
        for client in range(setup.population):
            assert setup.clients[client]["extra"] == {"classes": 2, "asked": {"want": "classes"}}
        sizes = {client: facts["samples"]["train"] for client, facts in setup.clients.items()}
        assert set(sizes.values()) == {160}, "not those of the probe"
        return State(state.tensors, {**state.meta, "chosen": max(sizes, key=sizes.get)})

    def plan(self, state, r):
        state, orders = super().plan(state, r)
        return state, [order for order in orders if order.client == state.meta["chosen"]]


largest = Recipe("by size", FedAvgOptions, lambda task: (Stage("train", Largest(FedAvgOptions(**task.options))),))
"""


def test_a_method_that_plans_from_what_clients_describe(prepared, tmp_path):
    (tmp_path / "largest.py").write_text(PLANS_BY_SIZE)
    found = estimate(prepared(f"{tmp_path}/largest.py:largest", clients=2, rounds=1))
    assert found.clients_a_round == 1 and 0 < found.up < estimate(prepared(clients=2, rounds=1)).up


def test_a_client_that_cannot_describe_itself(prepared, tmp_path):
    (tmp_path / "largest.py").write_text(PLANS_BY_SIZE.replace("len(data.y.unique())", "1 // 0"))
    with pytest.raises(FedloomError, match="a client's code must run, but ZeroDivisionError"):
        estimate(prepared(f"{tmp_path}/largest.py:largest", clients=2))

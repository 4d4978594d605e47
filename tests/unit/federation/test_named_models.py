"""Models that a method names: every client is asked for each in the final evaluation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from fedloom.data.samples import ClientData, Samples
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.envelope import Fault
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.loop import Loop
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat
from fedloom.testing.engines import Passing, Recorder, order_of
from fedloom.types import Fields, Order, Reply, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("named", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))
# Three answers of four are "no": models answer one class, whatever they are shown.
SAMPLES = Samples(torch.arange(4.0).view(-1, *SHAPE), torch.tensor([0, 0, 0, 1]))
CLIENTS = 3


class Naming(Method):
    """Has a model for every class, and the client's own is that of class 1."""

    fields = {"train": Fields(tensors=("w",))}

    def init(self, setup, previous):
        return State({"w": torch.zeros(1)})

    def plan(self, state, r):
        return state, [Order(client, "train", state.tensors) for client in r.clients]

    def client(self, order, data, own, run):
        return Reply(order.client, dict(order.tensors), len(data)), None

    def serve(self, state, client):
        return self.serve_model(state, "yes", client)

    def models(self, state):
        return LABELS

    def serve_model(self, state, name, client):
        bias = torch.zeros(2)
        bias[LABELS.index(name)] = 1.0
        return Order(client, "evaluate", {"bias": bias}, {"name": name})

    def network(self, order, data, own, run):
        linear = nn.Linear(1, 2)
        nn.init.zeros_(linear.weight)
        linear.bias.data.copy_(order.tensors["bias"])
        return nn.Sequential(nn.Flatten(), linear)


class Unnamed(Naming):
    def models(self, state):
        return ()


class Silent(Passing):
    """One client's process fails whenever it is asked for one of the named models."""

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            order = order_of(parcel)
            if parcel.client == 1 and order.meta.get("name") == "no":
                envelope = replace(envelope, fault=Fault("error", "it fell over"))
            yield parcel, envelope


def run(folder, method, wrap=lambda inner: inner):
    data = ClientData(SAMPLES, SAMPLES, SAMPLES)
    stages = (Stage("train", method),)
    site = Site(
        lambda client: data, ClientStore(folder / "clients"), lambda task: stages, SHAPE, LABELS
    )
    settings = Settings("named", TASK, CLIENTS, rounds=1, min_replies=CLIENTS, evaluate_every=1)
    engine = wrap(InlineEngine(site))
    return Loop(settings, stages, engine, Spool(folder / "spool"), Flat(), Archive(folder)).run()


def test_every_client_is_asked_for_each_after_its_own(tmp_path):
    recorded = []
    outcome = run(tmp_path, Naming(), lambda inner: Recorder(inner, recorded))
    evaluations = [exchange.order for exchange in recorded if exchange.order.kind == "evaluate"]
    asked = [(order.client, order.meta["name"], order.meta["final"]) for order in evaluations]
    during = [(client, "yes", False) for client in range(CLIENTS)]
    own = [(client, "yes", True) for client in range(CLIENTS)]
    no = [(client, "no", False) for client in range(CLIENTS)]
    yes = [(client, "yes", False) for client in range(CLIENTS)]
    assert asked == during + own + no + yes
    for client in outcome.clients:
        assert client.own.figures.value == 1 / 4
        assert client.named.keys() == {"no", "yes"}
        assert client.named["no"].figures.value == 3 / 4
        assert client.named["yes"].figures.value == 1 / 4


def test_what_they_cost_is_booked_as_evaluation(tmp_path):
    recorded = []
    named = run(tmp_path / "named", Naming(), lambda inner: Recorder(inner, recorded)).totals
    unnamed = run(tmp_path / "unnamed", Unnamed()).totals
    further = [exchange for exchange in recorded if exchange.order.kind == "evaluate"][
        -2 * CLIENTS :
    ]
    down = sum(len(exchange.head) + len(exchange.body) for exchange in further)
    up = sum(len(exchange.answer) for exchange in further)
    assert named.evaluate_down - unnamed.evaluate_down == down > 0
    assert named.evaluate_up - unnamed.evaluate_up == up > 0
    assert (named.down, named.up, named.macs) == (unnamed.down, unnamed.up, unnamed.macs)


def test_a_client_that_does_not_answer_has_a_reason_there_alone(tmp_path):
    first, second, third = run(tmp_path, Naming(), Silent).clients
    assert second.named["no"].figures is None
    assert "it fell over" in second.named["no"].reason
    assert second.named["yes"].figures.value == second.own.figures.value == 1 / 4
    assert first.named["no"].figures.value == third.named["no"].figures.value == 3 / 4


def test_a_method_that_names_none_asks_for_none(tmp_path):
    assert [client.named for client in run(tmp_path, Unnamed()).clients] == [{}] * CLIENTS

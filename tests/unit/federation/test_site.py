"""One order at one site: what its reply says, and what of the client's data it was made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.data.samples import ClientData, Samples
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.method import Declined, Method, Stage
from fedloom.federation.protocol.wire import Body, order_head, read_reply
from fedloom.types import Fields, Order, Reply, Stamp, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("boasting", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))


@dataclass(frozen=True)
class Boasting(Method):
    """Claims to speak for a thousand clients.

    It always predicts the label in its state, or else the one that it is sent.
    """

    fields = {"work": Fields(tensors=("*",), meta=("drawn",))}

    def client(self, order, data, own, run):
        assert data.x.unique().tolist() == [1.0]  # its training part
        drawn = float(torch.rand(()))  # as dropout draws
        reply = Reply(
            order.client,
            {"w": torch.ones(2)},
            len(data),
            {"drawn": drawn},
            count={"w": 1000},
            wrote=True,
        )
        return reply, State({"label": torch.tensor(1)}) if order.meta["keeps"] else None

    def network(self, order, data, own, run):
        label = order.meta["label"] if own is None else int(own.tensors["label"])

        class Constant(nn.Module):
            def forward(self, x):
                return nn.functional.one_hot(torch.full((len(x),), label), 2).float()

        return Constant()


def part(value: float, *labels: int) -> Samples:
    return Samples(torch.full((len(labels), *SHAPE), value), torch.tensor(labels))


# Of the label 1 there are: all in training, half in validation, a quarter in test.
DATA = ClientData(part(1.0, 1, 1, 1), part(2.0, 0, 1), part(3.0, 0, 0, 0, 1))


@pytest.fixture
def ask(tmp_path):
    """The reply to an order, as it crosses."""
    store = ClientStore(tmp_path)
    store.write(5, "1.0", State({"label": torch.tensor(1)}))
    site = Site(
        lambda client: DATA, store, lambda task: (Stage("train", Boasting()),), SHAPE, LABELS
    )

    def answer(kind: str, *, read: str | None = None, number: int = 2, **meta) -> Reply:
        stamp = Stamp("experiment", TASK, "train", number, 0, read, f"{number}.0")
        order = Order(
            5, kind, meta={"label": 0, "final": False, "keeps": False, **meta}, stamp=stamp
        )
        body = Body(order.tensors)
        chunks, envelope = site.handle(order_head(order, body), b"".join(body.chunks))
        assert envelope.fault is None, envelope.fault
        return read_reply(b"".join(chunks))

    return answer


def test_a_client_speaks_for_itself_alone(ask):
    """Only an aggregator counts clients behind a reply, and the site itself says if it wrote."""
    reply = ask("work")
    assert (reply.count, reply.wrote, reply.weight) == (None, False, 3)
    assert ask("work", keeps=True).wrote


def test_torchs_own_draws_depend_on_the_order_and_not_on_the_process(ask):
    first = ask("work").meta["drawn"]
    torch.rand(3)  # something else that this process did
    assert ask("work").meta["drawn"] == first
    assert ask("work", number=3).meta["drawn"] != first


@pytest.mark.parametrize(("named", "samples", "correct"), [("validation", 2, 1), ("test", 4, 3)])
def test_evaluation_is_on_the_part_that_the_order_names(ask, named, samples, correct):
    figures = ask("evaluate", part=named).meta["personal"]
    assert (figures["samples"], figures["correct"]) == (samples, correct)


def test_a_client_is_judged_by_its_own_model_and_the_shared_one_beside_it(ask):
    """Its own answers 1, of which a quarter of the test part is; the shared one answers 0."""
    meta = ask("evaluate", part="test", read="1.0").meta
    assert (meta["personal"]["correct"], meta["shared"]["correct"]) == (1, 3)


def test_without_a_state_both_are_the_shared_model(ask):
    meta = ask("evaluate", part="test").meta
    assert meta["personal"] == meta["shared"] and meta["shared"]["correct"] == 3


def test_a_description_counts_every_part(ask):
    assert ask("describe").meta["samples"] == {"train": 3, "validation": 2, "test": 4}


def test_an_order_for_another_stage_is_a_fault(tmp_path):
    site = Site(
        lambda client: DATA,
        ClientStore(tmp_path),
        lambda task: (Stage("train", Boasting()),),
        SHAPE,
        LABELS,
    )
    stamp = Stamp("experiment", TASK, "search", 2, 0)
    order = replace(Order(5, "work"), stamp=stamp)
    chunks, envelope = site.handle(order_head(order, Body({})), b"")
    assert chunks == [] and envelope.fault is not None and envelope.fault.kind == "raised"


# What the device may spend


class Frugal(Boasting):
    """Does work of 100 MACs with one operation, if the device may."""

    fields = {"work": Fields(meta=("macs", "params", "latency_ms", "unsupported"))}

    def client(self, order, data, own, run):
        limit = run.limit_for(order)
        if limit.most.macs is not None and limit.most.macs < 100:
            raise Declined(f"its cheapest network has 100 MACs, {limit.most.macs:g} are allowed")
        return Reply(order.client, {}, len(data), limit.to_plain()), State(
            {"label": torch.tensor(0)}
        )

    def describe_client(self, ask, data, run):
        return run.limit.to_plain()


@pytest.fixture
def spend(tmp_path):
    """What became of an order at a device of this limit; the same site serves all of them."""
    allowed = [DeviceLimit()]
    store = ClientStore(tmp_path)
    frugal = (Stage("train", Frugal()),)
    site = Site(
        lambda client: DATA, store, lambda task: frugal, SHAPE, LABELS, limit=lambda: allowed[0]
    )

    def answer(own: DeviceLimit, kind: str = "work", **meta):
        allowed[0] = own
        order = Order(
            5, kind, meta=meta, stamp=Stamp("experiment", TASK, "train", 2, 0, None, "2.0")
        )
        chunks, envelope = site.handle(order_head(order, Body({})), b"")
        if envelope.fault is not None:
            return envelope.fault
        return read_reply(b"".join(chunks)).meta

    return answer


def test_a_client_knows_what_its_device_may_spend_at_every_order(spend):
    assert spend(DeviceLimit()) == {}
    assert spend(DeviceLimit(Limit(macs=500, latency_ms=2.5))) == {"macs": 500, "latency_ms": 2.5}
    assert spend(DeviceLimit(Limit(macs=700), frozenset({"mb3e2"}))) == {
        "macs": 700,
        "unsupported": ["mb3e2"],
    }
    assert spend(DeviceLimit(Limit(params=9)), "describe", ask=None)["extra"] == {"params": 9}


def test_the_tighter_of_the_devices_limit_and_the_orders_counts(spend):
    own = DeviceLimit(Limit(macs=500, params=40), frozenset({"mb3e2"}))
    asked = {"macs": 300, "params": 60, "latency_ms": 7, "unsupported": ["conv1"]}
    expected = {"macs": 300, "params": 40, "latency_ms": 7, "unsupported": ["conv1", "mb3e2"]}
    assert spend(own, limit=asked) == expected
    assert spend(DeviceLimit(), limit=asked) == asked


@pytest.mark.parametrize(("own", "asked"), [(99, 500), (500, 99), (99, None)])
def test_a_limit_that_nothing_fits_is_a_refusal_and_no_error(spend, own, asked):
    meta = {}
    if asked is not None:
        meta = {"limit": {"macs": asked}}
    fault = spend(DeviceLimit(Limit(macs=own)), **meta)
    assert (fault.kind, fault.detail) == ("refused", "")
    assert fault.text == "its cheapest network has 100 MACs, 99 are allowed"


def test_label_counts_are_told_where_the_run_asks(ask):
    assert "histogram" not in ask("describe").meta
    assert ask("describe", histograms="exact").meta["histogram"] == [0, 3]  # of the training part
    noisy = [
        ask("describe", histograms="laplace:0.1", number=number).meta["histogram"]
        for number in (1, 2)
    ]
    assert noisy[0] == noisy[1]


def test_noise_comes_from_the_secret_of_the_site(tmp_path):
    """Of the store, unless it is given: a deployment's is one file for all its experiments."""

    def told(folder, secret=None):
        stages = (Stage("train", Boasting()),)
        site = Site(
            lambda client: DATA,
            ClientStore(folder),
            lambda task: stages,
            SHAPE,
            LABELS,
            secret=secret,
        )
        order = Order(
            5,
            "describe",
            meta={"histograms": "laplace:0.01"},
            stamp=Stamp("x", TASK, "train", 1, -2),
        )
        chunks, envelope = site.handle(order_head(order, Body({})), b"")
        assert envelope.fault is None, envelope.fault
        return read_reply(b"".join(chunks)).meta["histogram"]

    for name in "ab":  # random ones might give the same noise
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_bytes(name.encode() * 32)
    assert told(tmp_path / "a") == told(tmp_path / "a") != told(tmp_path / "b")
    own_secret = ClientStore(tmp_path / "b").secret()
    assert told(tmp_path / "a", lambda client: own_secret) == told(tmp_path / "b")
    assert ClientStore(tmp_path / "c").secret() != ClientStore(tmp_path / "d").secret()


def test_a_confusion_matrix_is_kept_where_it_is_not_asked_for(ask):
    evaluate = {"part": "test", "final": True}
    assert "confusion" in ask("evaluate", **evaluate).meta
    assert "confusion" not in ask("evaluate", **evaluate, confusion=False).meta

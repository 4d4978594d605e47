"""What a method declares about its replies: whether it can be checked, and whom it binds."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from fedloom.errors import FedloomError
from fedloom.federation.protocol.admission import check_fields
from fedloom.federation.protocol.method import PASSES, Method, Recipe, Stage, fields_of
from fedloom.methods import METHODS, stages
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.records.rows import Refusal
from fedloom.testing import Toy
from fedloom.types import Fields, Order, State


class Declaring(Method):
    def client(self, order, data, own, run):
        raise NotImplementedError


class Silent(Declaring):
    fields = {"train": Fields(meta=("loss",), writes=False)}


class Inheriting(Silent):
    """It has a client side of its own and says nothing of it, as a method from outside may."""

    def client(self, order, data, own, run):
        raise NotImplementedError


class Saying(Inheriting):
    fields = {"train": Fields(meta=("loss",), writes=True)}


def test_whether_a_kind_writes_is_said_by_whoever_wrote_the_client_side():
    assert fields_of(Silent(), "train") == Fields(meta=("loss",), writes=False)
    assert fields_of(Inheriting(), "train") == Fields(meta=("loss",), writes=None)
    assert fields_of(Saying(), "train").writes is True


@pytest.mark.parametrize("name", sorted(METHODS.names()))
def test_every_registered_method_says_whether_its_clients_keep_a_state(name):
    rounds = 100
    for stage in stages(Toy.of(name, rounds=rounds).task):
        for kind in stage.method.fields:
            assert fields_of(stage.method, kind).writes is not None
        check_fields(stage.method)


def test_the_most_steps_are_generous_and_may_be_none():
    method = FedAvg(FedAvgOptions(epochs=3))
    assert method.most_steps(Order(0, "train"), 10) == PASSES * 3 * 10
    assert Declaring().most_steps(Order(0, "train"), 0) == PASSES


@pytest.mark.parametrize(
    ("epochs", "counted"),
    [(None, 1), ("many", 1), ([3], 1), (float("inf"), 1), (float("nan"), 1), (0, 1), (2.5, 3)],
)
def test_epochs_of_a_method_from_outside_may_be_anything(epochs, counted):
    method = Declaring()
    method.options = SimpleNamespace(epochs=epochs)
    assert method.most_steps(Order(0, "train"), 10) == PASSES * counted * 10


@pytest.mark.parametrize(
    "meta",
    ["loss", {"loss": object()}, {"loss": 3}, {"loss": [float]}],
    ids=["text", "object", "number", "list"],
)
def test_a_declaration_that_cannot_be_checked(meta):
    class Wrong(Declaring):
        fields = {"train": Fields(meta=meta)}

    with pytest.raises(
        FedloomError, match="Wrong must declare the fields of 'train' as names, or as names with"
    ):
        check_fields(Wrong())


# In a run


@dataclass(frozen=True)
class Keeping(FedAvg):
    """Returns a state although it says that it never does."""

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def client(self, order, data, own, run):
        reply, _ = super().client(order, data, own, run)
        return reply, State(meta={"seen": 1}) if order.client == 1 else None


@dataclass(frozen=True)
class Counting(FedAvg):
    """As a method from outside that was written before states were declared."""

    def client(self, order, data, own, run):
        reply, _ = super().client(order, data, own, run)
        return reply, State(meta={"seen": 1})


@dataclass(frozen=True)
class Rushing(FedAvg):
    """One client says that it has seen as many batches as can be counted."""

    def client(self, order, data, own, run):
        reply, own = super().client(order, data, own, run)
        if order.client != 1:
            return reply, own
        counters = {
            name: tensor + 2**62
            for name, tensor in reply.tensors.items()
            if name.endswith("tracked")
        }
        return replace(reply, tensors={**reply.tensors, **counters}), own


def recipe_of(method):
    return Recipe(
        "a test",
        FedAvgOptions,
        lambda task: (Stage("train", method(FedAvgOptions(**task.options))),),
    )


keeping, counting, rushing = map(recipe_of, (Keeping, Counting, Rushing))


def run(name, folder):
    return replace(Toy.of(f"{__file__}:{name}", rounds=2), participation=1.0).run(folder)


def test_a_state_that_was_declared_away_is_the_sites_to_refuse(tmp_path):
    trace = run("keeping", tmp_path)
    reason = (
        "raised: ValueError: orders of kind 'train' are declared to keep no state, "
        "but the method returned one"
    )
    assert [row.refused for row in trace.rows] == [(Refusal(1, reason),)] * 2
    assert trace.owns == {} and not list((tmp_path / "clients").rglob("*.state"))


def test_a_subclass_from_outside_may_keep_a_state(tmp_path):
    trace = run("counting", tmp_path)
    assert [row.refused for row in trace.rows] == [(), ()]
    assert set(trace.last.versions) == {0, 1, 2, 3}


def test_a_client_that_counts_too_far_is_refused(tmp_path):
    trace = run("rushing", tmp_path)
    for row in trace.rows:
        (refusal,) = row.refused
        assert refusal.client == 1 and "at most 50000 is possible" in refusal.reason
    tracked = [
        tensor for name, tensor in trace.outcome.state.tensors.items() if name.endswith("tracked")
    ]
    assert tracked and all(tensor.item() < 10 for tensor in tracked)

"""What a method's functions return is checked: a mistake is named where it was made."""

from dataclasses import dataclass

import pytest

from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.protocol.admission import check_fields
from fedloom.federation.protocol.method import Method, Recipe, Stage
from fedloom.methods import METHODS, stages
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.testing import Toy
from fedloom.types import Fields, Order, State


def run(method, monkeypatch, folder):
    """A run of one round whose only stage has a method of this class."""
    recipe = recipe_with(lambda task: (Stage("train", method(FedAvgOptions(**task.options))),))
    monkeypatch.setattr(METHODS, "get", lambda name: recipe)
    return Toy.of("wrong", rounds=1).run(folder)


def recipe_with(its_stages, options=FedAvgOptions):
    return Recipe("for tests", options, its_stages)


@dataclass(frozen=True)
class InitReturnsTensors(FedAvg):
    def init(self, setup, previous):
        return super().init(setup, previous).tensors


@dataclass(frozen=True)
class PlanReturnsOrders(FedAvg):
    def plan(self, state, r):
        return super().plan(state, r)[1]


@dataclass(frozen=True)
class PlanReturnsClients(FedAvg):
    def plan(self, state, r):
        return state, r.cohort()


@dataclass(frozen=True)
class PlanOfAnotherKind(FedAvg):
    def plan(self, state, r):
        return state, [Order(client, "trian", state.tensors) for client in r.cohort()]


@dataclass(frozen=True)
class MergeReturnsTensors(FedAvg):
    def merge(self, state, orders, replies, r):
        return super().merge(state, orders, replies, r).tensors


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (InitReturnsTensors, "`init` of InitReturnsTensors must return a State, but it returned a"),
        (PlanReturnsOrders, "a list of orders, or None, but it returned a list of Order;"),
        (PlanReturnsClients, "or None, but it returned a tuple of State, tuple;"),
        (PlanOfAnotherKind, "but one is of kind 'trian', and declared are train;"),
        (MergeReturnsTensors, "`merge` of MergeReturnsTensors must return a State, but"),
    ],
)
def test_what_the_server_side_returns(method, sentence, monkeypatch, tmp_path):
    with pytest.raises(FedloomError) as caught:
        run(method, monkeypatch, tmp_path)
    assert sentence in str(caught.value)


@dataclass(frozen=True)
class ClientReturnsReply(FedAvg):
    def client(self, order, data, own, run):
        return super().client(order, data, own, run)[0]


@dataclass(frozen=True)
class ClientReturnsTensors(FedAvg):
    def client(self, order, data, own, run):
        reply, _ = super().client(order, data, own, run)
        return reply, dict(reply.tensors)


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (ClientReturnsReply, "but it returned a Reply"),
        (ClientReturnsTensors, "but it returned a tuple of Reply, dict"),
    ],
)
def test_what_the_client_side_returns(method, problem, monkeypatch, tmp_path):
    """It is the reason of a refusal, which names the clients together that it is the reason for."""
    with pytest.raises(RunStopped) as caught:
        run(method, monkeypatch, tmp_path)
    text = str(caught.value)
    assert problem in text
    assert text.count(problem) == 1 and text.count("client ") == 3
    assert text.endswith("run.log has the tracebacks.")


def test_a_function_that_is_not_defined():
    class Unfinished(Method):
        pass

    with pytest.raises(FedloomError, match="Unfinished must define `plan`, but it does not"):
        Unfinished().plan(State(), None)


# Recipes


@pytest.mark.parametrize(
    ("its_stages", "problem"),
    [
        (Stage("train", FedAvg(FedAvgOptions())), "got a Stage"),
        ((), "there is none"),
        ((FedAvg(FedAvgOptions()),), "one is a FedAvg"),
        ((Stage("train", FedAvg),), "the method of stage train is a type"),
    ],
)
def test_stages_that_are_none(its_stages, problem, monkeypatch):
    task = Toy.of("fedavg").task
    monkeypatch.setattr(METHODS, "get", lambda name: recipe_with(lambda task: its_stages))
    with pytest.raises(FedloomError, match=f"a tuple of Stage.*, but {problem}"):
        stages(task)


def test_options_that_are_none(monkeypatch):
    monkeypatch.setattr(METHODS, "get", lambda name: recipe_with(stages, options=stages))
    with pytest.raises(FedloomError, match="must be a subclass of Options, but got <function"):
        Toy.of("wrong")


# Declared fields


@pytest.mark.parametrize("name", ["tensors", "optional", "extra", "largest"])
def test_a_string_is_not_taken_for_patterns(name):
    """Each of its letters would be a pattern, and "*" fits all tensors."""

    class Wrong(Method):
        fields = {"train": Fields(**{name: "net.*"})}

    with pytest.raises(FedloomError) as caught:
        check_fields(Wrong())
    assert f'write {name}=("net.*",)' in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (None, "it declares none"),
        (Fields(), "it is a Fields"),
        ({"train": ("*",)}, "'train' as Fields(…), but it is a tuple"),
    ],
)
def test_fields_that_are_none(fields, problem):
    class Wrong(Method):
        pass

    if fields is not None:
        Wrong.fields = fields
    with pytest.raises(FedloomError) as caught:
        check_fields(Wrong())
    assert problem in str(caught.value)

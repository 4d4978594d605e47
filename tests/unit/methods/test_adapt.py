"""A newcomer's rounds by hand.

The first begins with the federation's network, the next with its own.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from textbook import gradient

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.records.result_parts import Input
from fedloom.records.warm_start import WarmStart
from fedloom.runs.newcomers import AdaptOptions, Newcomer
from fedloom.types import Round, Setup, State, Task

LEFT = np.array([[0.25, 0.0], [0.0, -0.5]])  # the federation's weights
X = [(1, 0), (1, 2), (0, 1)]
Y = [0, 1, 1]
DATA = Samples(torch.tensor(X, dtype=torch.float32).view(-1, 1, 1, 2), torch.tensor(Y))
NETWORK = f"{Path(__file__).parent}/linear.py:Zero"


@pytest.fixture
def newcomer():
    """A newcomer that takes one step of plain SGD on all samples per round."""
    return Newcomer(
        AdaptOptions(
            batch=8,
            lr=0.5,
            schedule="constant",
            momentum=0.0,
            weight_decay=0.0,
            clip=1e9,
            bn="frozen",
        )
    )


@pytest.fixture
def task():
    return Task("adapt", {}, "image", (1, 1, 2), ("no", "yes"), 7, (0.0,), (1.0,))


@pytest.fixture
def federated():
    """The state that the federation ended with."""
    start = WarmStart(
        method="fedavg",
        options={"network": NETWORK},
        seed=7,
        stage=0,
        meta={"build": {}, "parameters": ["net.weight"]},
        own=None,
        input=Input(kind="image", shape=[1, 1, 2], labels=["no", "yes"], mean=[0.0], std=[1.0]),
        prefix="own/",
    )
    return State({"net.weight": torch.tensor(LEFT, dtype=torch.float32)}, start.to_json())


def at(task: Task, number: int) -> ClientRun:
    return ClientRun(task, "adapt", number, 0, 0, "cpu", bytes)


def test_every_round_goes_on_from_the_newcomers_own_network(newcomer, task, federated):
    state = newcomer.init(Setup(task, 1), federated)
    expected = LEFT
    own = None
    for number in (1, 2, 3):
        _, orders = newcomer.plan(state, Round(number, number - 1.0, 3.0, range(1), 1.0, 7))
        reply, own = newcomer.client(orders[0], DATA, own, at(task, number))
        expected = expected - 0.5 * gradient(expected, X, Y)
        assert own is not None and not reply.tensors  # it sends no tensors
        np.testing.assert_allclose(own.tensors["net.weight"], expected, atol=1e-6)
        state = newcomer.merge(
            state, orders, [reply], Round(number, number - 1.0, 3.0, range(1), 1.0, 7)
        )


def test_before_is_the_network_as_it_came_and_after_is_its_own(newcomer, task, federated):
    state = newcomer.init(Setup(task, 1), federated)
    own = State({"net.weight": torch.ones(2, 2)})
    order = newcomer.serve(state, 0)
    before = newcomer.network(order, DATA, None, at(task, 4)).state_dict()
    after = newcomer.network(order, DATA, own, at(task, 4)).state_dict()
    np.testing.assert_allclose(before["net.weight"], LEFT)
    np.testing.assert_allclose(after["net.weight"], np.ones((2, 2)))


def test_what_does_not_say_where_it_comes_from_is_refused(newcomer, task, federated):
    begins = dict(federated.meta)
    del begins["prefix"]
    with pytest.raises(FedloomError, match=r"which run it was taken from, but .*`prefix`"):
        newcomer.init(Setup(task, 1), State(federated.tensors, begins))


def test_there_must_be_something_to_begin_with(newcomer, task):
    with pytest.raises(FedloomError, match="adapt must begin with a finished run"):
        newcomer.init(Setup(task, 1), None)

"""`bn = "received"`: clients send the BN statistics of the network that they were sent."""

import pytest
import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.methods import METHODS
from fedloom.nets.nesting import is_statistic
from fedloom.networks.building import build_model
from fedloom.runs.configure import resolve_options
from fedloom.stages.groups import SCORED_AT_ONCE, right_answers
from fedloom.testing import Toy

FULL_BATCH = {"batch": 100}
GROUP = {"ops": "s3", "nodes": 1, "group": 2, "stack": 1, "lambda1": 1, "pretrain": 1}
OPTIONS = {
    "auto": {"sizes": [1.0], "changes": "none", "tune": "never"},
    "decnas": GROUP,
    "finch": GROUP,
    "fednas": {"cells": 1, "nodes": 1, "ops": "s3"},
    "onenas": GROUP,
}
AVERAGING = [name for name in METHODS.names() if METHODS.get(name).options.measures_received]
OTHERS = [
    name
    for name in METHODS.names()
    if "bn" in METHODS.get(name).options.model_fields and name not in AVERAGING
]


def test_a_reply_has_the_statistics_of_the_received_network():
    toy = Toy.of("fedavg", {"bn": "received", **FULL_BATCH}, rounds=2)
    trace = toy.run_apart()
    exchange = next(
        e for e in trace.exchanges if e.order.kind == "train" and e.order.stamp.round == 2
    )
    inputs = {}

    def note(norm: nn.Module, arguments: tuple[torch.Tensor], _: object) -> None:
        inputs[norm] = arguments[0]

    net = build_model(
        toy.task, "cnn", toy.task.options["width"], weights=exchange.order.tensors
    ).train()
    norms = {name: part for name, part in net.named_modules() if isinstance(part, nn.BatchNorm2d)}
    for norm in norms.values():
        norm.register_forward_hook(note)
    net(toy.data[exchange.order.client].train.x)
    assert norms
    for name, norm in norms.items():
        seen = inputs[norm].detach()
        mean = exchange.reply.tensors[f"{name}.running_mean"]
        variance = exchange.reply.tensors[f"{name}.running_var"]
        torch.testing.assert_close(mean, seen.mean((0, 2, 3)))
        torch.testing.assert_close(variance, seen.transpose(0, 1).flatten(1).var(1))


@pytest.mark.parametrize("method", AVERAGING)
def test_training_is_the_same_and_only_statistics_differ(method):
    tensors = {}
    for bn in ("averaged", "received"):
        toy = Toy.of(method, {**OPTIONS.get(method, {}), "bn": bn}, rounds=3)
        tensors[bn] = toy.run_apart().outcome.state.tensors
    assert tensors["averaged"].keys() == tensors["received"].keys()
    differing = set()
    for name, tensor in tensors["averaged"].items():
        if not torch.equal(tensor, tensors["received"][name]):
            differing.add(name)
    assert differing
    assert all(is_statistic(name) for name in differing)


@pytest.mark.parametrize("bn", ["averaged", "received"])
def test_counters_of_batches_are_those_of_training(bn):
    """7 samples in batches of 4 are two steps. Measuring takes two more passes, not counted."""
    exchanges = Toy.of("fedavg", {"bn": bn}).run_apart().exchanges
    exchange = next(e for e in exchanges if e.order.client == 0 and e.order.kind == "train")
    counters = {
        name: tensor for name, tensor in exchange.reply.tensors.items() if name.endswith("tracked")
    }
    assert counters
    for name, tensor in counters.items():
        assert tensor == exchange.order.tensors[name] + 2


@pytest.mark.parametrize("method", ["decnas", "fedavg", "finch", "hfl", "onenas"])
def test_clients_of_different_sizes_are_all_accepted(method):
    trace = Toy.of(method, {**OPTIONS.get(method, {}), "bn": "received"}).run_apart()
    assert [row.refused for row in trace.rows] == [()] * len(trace.rows)


@pytest.mark.parametrize("method", OTHERS)
def test_methods_that_average_no_whole_network_refuse_it(method):
    with pytest.raises(FedloomError, match=r"bn.*must be averaged or frozen"):
        resolve_options(method, {"bn": "received"})


# Scores of networks


class Centred(nn.Module):
    """Answers 1 where a sample's number is above the mean that BN takes off."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(1, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = self.bn(x)
        return torch.cat([-centred, centred], dim=1)


def numbers(count: int) -> Samples:
    """Alternately 10 and 12, which are of class 0 and 1."""
    y = torch.arange(count) % 2
    return Samples(10.0 + 2 * y[:, None].float(), y)


def test_scores_take_the_statistics_of_the_scored_samples():
    assert right_answers(Centred(), numbers(8), "cpu") == 8
    # By its running mean of 0 everything is of class 1.
    assert right_answers(Centred(), numbers(8), "cpu", "frozen") == 4


def test_no_sample_is_left_out_of_a_score_and_none_is_alone():
    assert (
        right_answers(Centred(), numbers(2 * SCORED_AT_ONCE + 1), "cpu") == 2 * SCORED_AT_ONCE + 1
    )


def test_one_sample_alone_is_scored_with_running_statistics():
    one = Samples(torch.tensor([[12.0]]), torch.tensor([1]))
    assert right_answers(Centred(), one, "cpu") == 1

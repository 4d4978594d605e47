"""FjORD: widths that lie in one another, each trained by the batches that drew it."""

from dataclasses import replace

import pytest
import torch

from fedloom.learning.widths import Plan, cost_of
from fedloom.methods.fjord import FjordOptions, tiers_of
from fedloom.testing import Toy
from fedloom.testing.watch import ServerLog


def as_fedavg_has_it(tensors, width="1"):
    """Statistics of the one width under the network's own names."""
    return {name.removeprefix(f"statistics/{width}/"): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("epochs", [1, 3])
def test_with_one_width_it_is_fedavg(tmp_path, epochs):
    """Bit for bit: momentum, decay, clip, BN's statistics, participation and schedule included."""
    fedavg = Toy.of("fedavg", {"epochs": epochs}, rounds=2).run(tmp_path / "fedavg").outcome
    fjord = Toy.of("fjord", {"epochs": epochs, "widths": [1.0]}, rounds=2).run(tmp_path / "fjord").outcome
    tensors = as_fedavg_has_it(fjord.state.tensors)
    assert tensors.keys() == fedavg.state.tensors.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], fedavg.state.tensors[name])] == []
    figures = [[client.own.figures for client in outcome.clients] for outcome in (fedavg, fjord)]
    assert figures[0] == figures[1]


@pytest.fixture(scope="module")
def halves():
    """Widths ½ and 1 of a cnn of 2, 4 and 8 channels; clients 0 to 3 in tiers."""
    log = ServerLog()
    toy = replace(Toy.of("fjord", {"widths": [0.5, 1.0]}, rounds=2), participation=1.0)
    return toy, toy.run_apart(server=log.watch), log


def trained(trace):
    return [exchange for exchange in trace.exchanges if exchange.order.kind == "train"]


def test_only_what_a_tier_can_hold_goes_down(halves):
    toy, trace, _ = halves
    for exchange in trained(trace):
        order = exchange.order
        tier = toy.tiers.of_client[order.client]
        channels = {1: 1, 2: 2}[tier]
        assert order.tensors["net.features.0.weight"].shape[0] == channels
        assert order.tensors["statistics/0.5/net.features.1.running_mean"].shape == (1,)
        assert ("statistics/1/net.features.1.running_mean" in order.tensors) == (tier == 2)
        assert (order.region is None) == (tier == 2)
        if tier == 1:
            assert order.region["net.features.0.weight"] == ((0,), None, None, None)


def test_every_weight_is_the_mean_of_those_who_hold_it(halves):
    toy, _, log = halves
    merge = log.merges[0]
    name = "net.features.4.weight"  # 4 channels from 2, in the narrow network 2 from 1
    new = merge.method.merge(merge.state, merge.orders, merge.replies, merge.round).tensors[name]
    inner, outer, everybody, wide = 0.0, 0.0, 0, 0
    for reply in merge.replies:
        samples = len(toy.data[reply.client].train)
        everybody += samples
        inner = inner + samples * reply.tensors[name][:2, :1].double()
        if toy.tiers.of_client[reply.client] == 2:
            wide += samples
            outer = outer + samples * reply.tensors[name].double()
    assert torch.allclose(new[:2, :1], (inner / everybody).float(), atol=1e-7)
    assert torch.allclose(new[2:], (outer / wide).float()[2:], atol=1e-7)
    assert torch.allclose(new[:2, 1:], (outer / wide).float()[:2, 1:], atol=1e-7)


def test_a_batch_moves_its_own_width_and_nothing_else(tmp_path):
    """With widths of which only the narrow one is ever drawn, the rest stays as it was, decay and all."""
    toy = Toy.of("fjord", {"widths": [0.5, 1.0], "epochs": 1, "batch": 8}, rounds=1, seed=3)
    trace = replace(toy, participation=1.0).run(tmp_path)
    seen = set()
    for exchange in trained(trace):
        if toy.tiers.of_client[exchange.order.client] == 1:
            continue
        before, after = exchange.order.tensors, exchange.reply.tensors
        drawn = {name.split("/")[1] for name in after if name.startswith("statistics/")}
        seen |= drawn
        name = "net.features.4.weight"
        assert not torch.equal(before[name][:2, :1], after[name][:2, :1])
        assert torch.equal(before[name][2:], after[name][2:]) == (drawn == {"0.5"})
    assert seen, "no wide client took part"


def test_statistics_weigh_what_went_through_their_width(halves):
    toy, trace, _ = halves
    for exchange in trained(trace):
        weights, samples = exchange.reply.weight, len(toy.data[exchange.order.client].train)
        assert weights["net.classifier.weight"] == samples
        shares = {}
        for name, weight in weights.items():
            if name.startswith("statistics/"):
                shares[name.split("/")[1]] = weight
        assert sum(shares.values()) == pytest.approx(samples)


def test_a_text_network_has_widths_too():
    """The width scales the two layers of the LSTM, and what the classifier sees of them."""
    task = replace(
        Toy.of("fjord").task,
        kind="text", shape=(5,), labels=tuple("abcd"), mean=(), std=(),
        options=FjordOptions(widths="0.25/1").model_dump(),
    )  # fmt: skip
    options = FjordOptions(**task.options)
    tiered = tiers_of(task)
    assert tiered.table.dearest("params") == cost_of(Plan.of(task, options), 1.0).cost.params
    hidden = 64
    by_hand = 4 * 8 + 4 * hidden * (8 + hidden + 2) + 4 * hidden * (2 * hidden + 2) + 4 * hidden + 4
    assert cost_of(Plan.of(task, options), 0.25).cost.params == by_hand

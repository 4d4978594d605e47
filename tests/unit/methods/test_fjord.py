"""FjORD: widths that lie in one another, each trained by the batches that drew it."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedloom.learning.training import sgd
from fedloom.learning.width_costs import NestedNetwork, cost_of, inside_of
from fedloom.methods.fjord import Family, FjordOptions, step, tiers_of
from fedloom.testing import Toy
from fedloom.testing.watch import ServerLog


def as_fedavg_has_it(tensors, width="1"):
    """Statistics of the one width under the network's own names."""
    return {name.removeprefix(f"statistics/{width}/"): tensor for name, tensor in tensors.items()}


def test_with_one_width_it_is_fedavg(tmp_path):
    """Bit for bit: momentum, decay, clip, BN's statistics, participation and schedule included."""
    epochs = 3
    of_fedavg = Toy.of("fedavg", {"epochs": epochs}, rounds=2)
    of_fjord = Toy.of("fjord", {"epochs": epochs, "widths": [1.0]}, rounds=2)
    fedavg = of_fedavg.run(tmp_path / "fedavg").outcome
    fjord = of_fjord.run(tmp_path / "fjord").outcome
    tensors = as_fedavg_has_it(fjord.state.tensors)
    assert tensors.keys() == fedavg.state.tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, fedavg.state.tensors[name]), name
    for ours, theirs in zip(fjord.clients, fedavg.clients, strict=True):
        assert ours.own.figures == theirs.own.figures


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
    inner = 0.0
    outer = 0.0
    everybody = 0
    wide = 0
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


def test_batches_of_a_width_train_its_network_and_nothing_else():
    """Steps on the widest network's weights are those of the narrow one alone, to the bit.

    Weights outside do not move, neither by momentum nor by decay, though a wide step came before.
    """
    toy = Toy.of("fjord", {"widths": [0.5, 1.0]})
    method = toy.stages[0].method
    plan = NestedNetwork.of(toy.task, method.options)
    widest = method.model(toy.task, 1.0)
    narrow = method.model(toy.task, 0.5)
    inside = {width: inside_of(plan, width, 1.0) for width in (0.5, 1.0)}
    family = Family(widest, {0.5: narrow, 1.0: widest}, inside)
    velocity = {name: torch.zeros_like(parameter) for name, parameter in widest.named_parameters()}
    optimizers = {width: sgd(net, method.options, 0.1) for width, net in family.nets.items()}
    batch = toy.data[0].train
    step(family, 1.0, optimizers[1.0], velocity, batch, method.options)
    after_wide = {name: tensor.clone() for name, tensor in widest.state_dict().items()}
    alone = method.model(toy.task, 0.5)
    alone.load_state_dict(inside[0.5].take(after_wide), strict=False)
    momentum = inside[0.5].take({name: tensor.clone() for name, tensor in velocity.items()})
    own = sgd(alone, method.options, 0.1, momentum)
    for _ in range(2):
        step(family, 0.5, optimizers[0.5], velocity, batch, method.options)
        own.zero_grad()
        functional.cross_entropy(alone(batch.x), batch.y).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), method.options.clip)
        own.step()
    now = widest.state_dict()
    for name, tensor in inside[0.5].take(now).items():
        assert torch.equal(tensor, alone.state_dict()[name]), name
    name = "net.features.4.weight"  # 4 channels from 2, in the narrow network 2 from 1
    assert not torch.equal(now[name][:2, :1], after_wide[name][:2, :1])
    assert torch.equal(now[name][2:], after_wide[name][2:])
    assert torch.equal(now[name][:, 1:], after_wide[name][:, 1:])
    statistics = "net.features.1.running_mean"
    assert torch.equal(now[statistics], after_wide[statistics])


def test_statistics_weigh_what_went_through_their_width(halves):
    toy, trace, _ = halves
    for exchange in trained(trace):
        weights = exchange.reply.weight
        samples = len(toy.data[exchange.order.client].train)
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
    assert (
        tiered.table.dearest("params") == cost_of(NestedNetwork.of(task, options), 1.0).cost.params
    )
    hidden = 64
    by_hand = 4 * 8 + 4 * hidden * (8 + hidden + 2) + 4 * hidden * (2 * hidden + 2) + 4 * hidden + 4
    assert cost_of(NestedNetwork.of(task, options), 0.25).cost.params == by_hand

import pytest
import torch
from torch import nn

from fedloom.nets import reuse
from fedloom.nets.reuse import NetworkCache, network


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mean", torch.zeros(1), persistent=False)
        self.rate = 0.5

    def forward(self, x):
        return self.norm(self.layer(x - self.mean))


WEIGHTS = {name: torch.full_like(tensor, 2) for name, tensor in Net().state_dict().items()}
CONSTANTS = {"mean": torch.tensor([7.0])}


def borrowed(cache, weights=WEIGHTS, constants=CONSTANTS, change=lambda net: None, key="net"):
    with cache.serving():
        net = network(key, Net, weights, constants)
        change(net)
    return net


def test_outside_of_an_order_networks_are_built():
    first, second = (network("net", Net, WEIGHTS, CONSTANTS) for _ in range(2))
    assert first is not second
    assert torch.equal(first.layer.weight, WEIGHTS["layer.weight"])


def test_the_same_network_serves_the_next_order():
    cache = NetworkCache()
    assert borrowed(cache) is borrowed(cache)


def test_every_tensor_is_set_and_everything_else_as_new():
    cache = NetworkCache()

    def leave_a_mess(net):
        with torch.no_grad():
            for tensor in (*net.parameters(), *net.buffers()):
                tensor.fill_(99)
        net.layer.weight.grad = torch.ones(3, 2)
        net.layer.bias.requires_grad_(False)
        net.norm.eval()

    first = borrowed(cache, change=leave_a_mess)
    net = borrowed(cache)
    assert net is first
    assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in net.state_dict().items())
    assert net.mean.item() == 7.0
    assert net.layer.weight.grad is None and net.layer.bias.requires_grad
    assert all(module.training for module in net.modules())


def test_within_one_order_nobody_gets_anothers():
    cache = NetworkCache()
    borrowed(cache)
    with cache.serving():
        first, second = (network("net", Net, WEIGHTS, CONSTANTS) for _ in range(2))
        assert first is not second


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "layer", nn.Linear(2, 3)),
        lambda net: setattr(net, "rate", 0.7),
        lambda net: setattr(net, "memory", [1]),
        lambda net: setattr(net.norm, "momentum", None),
        lambda net: net.register_forward_hook(lambda *_: None),
        lambda net: net.add_module("more", nn.ReLU()),
        lambda net: net.double(),
    ],
)
def test_a_changed_network_does_not_serve_again(change):
    cache = NetworkCache()
    first = borrowed(cache, change=change)
    assert cache.waiting == []
    assert borrowed(cache) is not first


def test_an_order_that_failed_gives_nothing_back():
    cache = NetworkCache()
    with pytest.raises(ZeroDivisionError):
        borrowed(cache, change=lambda net: 1 / 0)
    assert cache.waiting == [] and cache.lent == []


def test_seed_weights_are_never_those_of_an_earlier_order():
    cache = NetworkCache()
    first = borrowed(cache)
    assert borrowed(cache, weights=None) is not first


@pytest.mark.parametrize(
    ("weights", "constants", "words"),
    [
        (WEIGHTS, {}, "nothing fills mean"),
        ({"norm.weight": WEIGHTS["norm.weight"]}, CONSTANTS, "nothing fills layer.weight"),
        (
            {**WEIGHTS, "layer.bias": torch.ones(4)},
            CONSTANTS,
            r"layer.bias must have the shape \[3\], got \[4\]",
        ),
    ],
)
def test_what_nothing_fills_is_an_error(weights, constants, words):
    cache = NetworkCache()
    borrowed(cache)
    with pytest.raises(RuntimeError, match=words):
        borrowed(cache, weights=weights, constants=constants)


def test_few_wait_the_longest_unused_goes(monkeypatch):
    monkeypatch.setattr(reuse, "MOST_NETWORKS", 2)
    cache = NetworkCache()
    nets = [borrowed(cache, key=name) for name in "abc"]
    assert [each.net for each in cache.waiting] == nets[1:]
    monkeypatch.setattr(reuse, "MOST_BYTES", 1)
    last = borrowed(cache, key="d")
    assert [each.net for each in cache.waiting] == [last]


def test_a_network_without_a_key_is_always_built():
    cache = NetworkCache()
    borrowed(cache, key=None)
    assert cache.waiting == []

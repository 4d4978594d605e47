"""Layers become one row only where nothing else looks at the values between them."""

import torch
from torch import nn

from fedloom.export.folding import folded
from fedloom.export.tracing import Whole, traced


class Part(nn.Module):
    """Two layers, one after the other."""

    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.skips = skips

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = self.first(x)
        after = self.second(between)
        return between + after if self.skips else after


class Body(nn.Module):
    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.part = Part(skips)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * 2


class Network(nn.Module):
    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.body = Body(skips)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def layers(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]


def test_a_plain_chain_becomes_a_row():
    net = Network(skips=False).eval()
    x = torch.arange(6.0).view(2, 3)
    graph = folded(traced(Whole(net)))
    assert "net.body.part" in layers(graph)
    graph.recompile()
    assert torch.equal(graph(x), net(x))


def test_a_value_that_is_looked_at_twice_stays():
    net = Network(skips=True).eval()
    x = torch.arange(6.0).view(2, 3)
    graph = folded(traced(Whole(net)))
    assert {"net.body.part.first", "net.body.part.second"} <= set(layers(graph))
    graph.recompile()
    assert torch.equal(graph(x), net(x))

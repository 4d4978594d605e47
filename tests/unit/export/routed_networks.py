"""Networks whose samples take many paths, for the tests of exports."""

import torch
from torch import nn

from fedloom.federation.protocol.method import ClientRun
from fedloom.nets.model import seeded
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Order, Setup


def search_and_network(method="ca-feddsnas", **options):
    """A network whose samplers differ widely, so that samples take many paths."""
    search = Toy.of(method, {"search": "random", **options}).stages[0].method
    tensors = search.init(Setup(search.task, 4), None).tensors
    run = ClientRun(search.task, "search", 1, 0, 0, "cpu", lambda: b"")
    network = search.network(Order(0, "evaluate", tensors), samples(2), None, run).eval()
    with torch.no_grad(), seeded(0):  # statistics and weights of BN that are not the first ones
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.uniform_(-0.5, 0.5)
                part.running_var.uniform_(0.5, 1.5)
                part.weight.uniform_(0.5, 1.5)
                part.bias.uniform_(-0.5, 0.5)
    return search, network


def guided(**options):
    return search_and_network(**options)[1]

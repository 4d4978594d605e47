"""No network, registered or drawn from a space, has a 1×1 convolution with a stride.

`fedloom.nets.strided` says why.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from every_network import every_network, strided_pointwise_in
from fedloom.networks import NETWORKS
from fedloom.spaces.cells.space import OP_SETS


def test_no_network_and_no_space_has_one():
    names = []
    for built in every_network(4, "channels_last"):
        assert strided_pointwise_in(built.net, built.samples) == [], built.name
        for part in built.net.modules():  # of ops that this pass did not need, too
            if isinstance(part, nn.Conv2d) and part.kernel_size == (1, 1):
                assert part.stride == (1, 1), built.name
        names.append(built.name)
    assert names[: len(NETWORKS.names())] == NETWORKS.names()
    assert {name.split(":")[1] for name in names if name.startswith("darts:")} == set(OP_SETS)
    assert any(name.startswith("nasbench201, architecture") for name in names)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Conv2d(4, 2, 1, 2)),
        nn.Conv2d(4, 2, 1, (1, 2)),
        lambda x: functional.conv2d(x, torch.ones(2, 4, 1, 1), stride=2),
    ],
)
def test_one_would_be_seen(net):
    assert len(strided_pointwise_in(net, torch.ones(1, 4, 5, 5))) == 1


def test_others_are_none():
    net = nn.Sequential(nn.Conv2d(4, 2, 3, 2), nn.Conv2d(2, 2, 1))
    assert strided_pointwise_in(net, torch.ones(1, 4, 5, 5)) == []

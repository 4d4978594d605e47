"""A narrow network is a part of a wide one, whose other channels might as well not be there."""

import pytest
import torch

from fedloom.federation.protocol.aggregate import region_index
from fedloom.nets.cnn import SmallCNN
from fedloom.nets.lstm import CharLSTM
from fedloom.nets.nesting import Axis, Inside, is_nested, is_statistic
from fedloom.nets.resnet import ResNet18

NETWORKS = [
    pytest.param(SmallCNN, (1, 8, 8), id="cnn"),
    pytest.param(ResNet18, (3, 8, 8), id="resnet18"),
    pytest.param(CharLSTM, (5,), id="lstm"),
]
CLASSES = 4


def inputs(shape):
    if len(shape) == 1:
        return torch.tensor([[0, 1, 2, 3, 0], [3, 3, 1, 0, 2]])
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("network", "shape"), NETWORKS)
def test_without_its_other_channels_a_wide_network_is_the_narrow_one(network, shape):
    """All weights outside are 0, so that the other channels are 0 (statistics are 0 and 1)."""
    torch.manual_seed(0)
    wide = network(shape, CLASSES, 0.125).eval()
    narrow = network(shape, CLASSES, 0.0625).eval()
    inside = Inside.of(narrow, wide)
    taken = inside.take(wide.state_dict())
    narrow.load_state_dict(taken, strict=False)
    emptied = {name: tensor.clone() for name, tensor in wide.state_dict().items()}
    for name in inside.axes:
        emptied[name].zero_()
    inside.put(taken, emptied)
    wide.load_state_dict(emptied)
    x = inputs(shape)
    assert torch.allclose(narrow(x), wide(x), atol=1e-6)
    assert narrow(x).abs().sum() > 0


@pytest.mark.parametrize(("network", "shape"), NETWORKS)
def test_an_orders_region_is_the_part_that_it_brings(network, shape):
    """What the server averages back into its place is what it took from there."""
    wide = network(shape, CLASSES, 0.125)
    narrow = network(shape, CLASSES, 0.0625)
    inside = Inside.from_plain(Inside.of(narrow, wide).to_plain())
    tensors = {name: tensor for name, tensor in wide.state_dict().items() if not is_statistic(name)}
    regions = inside.region()
    for name, part in inside.take(tensors).items():
        assert part.shape == narrow.state_dict()[name].shape
        expected = tensors[name]
        if name in regions:
            expected = tensors[name][region_index(regions[name], tensors[name].shape)]
        assert torch.equal(part, expected), name


def test_the_rows_of_every_gate():
    """Of an LSTM of 4 units, a narrow one of 1 has rows 0, 4, 8 and 12."""
    assert Axis(4, 4, 1).indices == (0, 4, 8, 12)
    assert Axis(1, 4, 3).indices == (0, 1, 2)
    assert Axis(4, 4, 4).indices is None


def test_as_wide_as_the_wide_one():
    net = SmallCNN((1, 8, 8), CLASSES, 0.125)
    inside = Inside.of(net, net)
    assert inside.region() == {}
    assert (
        inside.take(net.state_dict())["classifier.weight"].data_ptr()
        == net.classifier.weight.data_ptr()
    )


def test_only_marked_networks_nest():
    assert is_nested(SmallCNN) and is_nested(ResNet18) and is_nested(CharLSTM)
    assert not is_nested(torch.nn.Linear)


def test_what_was_taken_whole_is_in_its_place_already():
    """Widths that come out alike share every weight; torch copies no such tensor onto itself."""
    shape = (1, 6, 6)
    wide = SmallCNN(shape, 3, 0.0625).to(memory_format=torch.channels_last)
    narrow = SmallCNN(shape, 3, 0.06).to(memory_format=torch.channels_last)
    assert sum(p.numel() for p in wide.parameters()) == sum(p.numel() for p in narrow.parameters())
    inside = Inside.of(narrow, wide)
    velocity = {name: torch.zeros_like(parameter) for name, parameter in wide.named_parameters()}
    memory = inside.take({**wide.state_dict(), **velocity})
    memory["features.0.weight"].fill_(2.0)
    inside.put({name: memory[name] for name in velocity}, velocity)
    assert (velocity["features.0.weight"] == 2.0).all()

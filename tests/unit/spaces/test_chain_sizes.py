"""The sizes of FedorAS's spaces, to the unit."""

import pytest
import torch

from fedloom.cost.count import macs, parameters
from fedloom.spaces import open_space
from fedloom.spaces.paths import path_of
from fedloom.spaces.space import Size

HEAD = Size(1, 1, "mean")
CASES = {
    # name, shape, classes: supernet, fixed, MACs fixed and most, MACs of the paper fixed and most
    ("cnn-l", (3, 32, 32), 10): (
        20_802_298,
        619_226,
        18_179_976,
        710_938_504,
        18_686_242,
        715_979_746,
    ),
    ("cnn-l", (3, 32, 32), 100): (
        20_831_548,
        648_476,
        18_209_136,
        710_967_664,
        18_715_492,
        716_008_996,
    ),
    ("cnn-s", (1, 40, 51), 12): (3_170_572, 47_740, 445_568, 19_707_008, 514_700, 19_999_084),
    ("cnn-s", (1, 40, 51), 35): (3_176_483, 53_651, 451_456, 19_712_896, 520_611, 20_004_995),
    ("rnn", (80,), 90): (1_238_570, 12_330, 921_600, 33_034_240, 921_690, 33_771_610),
    ("cnn-tiny", (3, 16, 16), 10): (77_272, 5_148, 120_270, 1_360_142, 135_844, 1_444_460),
}
FIRST_LAYER = (4_224, 2_816, 4_928, 9_728, 49_792, 22_784, 49_536, 115_328, 0)  # of cnn-l


@pytest.mark.parametrize(("case", "sizes"), CASES.items(), ids=lambda value: str(value[0]))
def test_sizes_of_the_paper(case, sizes):
    name, shape, classes = case
    table = open_space(name).cost_table(shape, classes, HEAD)
    actual = (
        table.everything("params"),
        table.fixed.params,
        table.fixed.macs,
        table.dearest("macs"),
        table.fixed.macs_paper,
        table.dearest("macs_paper"),
    )
    assert actual == sizes


@pytest.mark.parametrize(("case", "sizes"), CASES.items(), ids=lambda value: str(value[0]))
def test_a_supernet_has_as_many_parameters(case, sizes):
    name, shape, classes = case
    with torch.device("meta"):
        net = open_space(name).network(shape, classes, HEAD)
    assert parameters(net) == sizes[0]
    fixed = [tensor.numel() for key, tensor in net.named_parameters() if net.owner(key) is None]
    assert sum(fixed) == sizes[1]


def test_the_first_layer_of_cnn_l():
    table = open_space("cnn-l").cost_table((3, 32, 32), 10, HEAD)
    assert table.numbers("params")[0] == FIRST_LAYER


@pytest.mark.parametrize(
    ("name", "shape", "classes", "slots"),
    [
        ("cnn-l", (3, 32, 32), 10, [0, 15]),
        ("cnn-s", (1, 40, 51), 12, [0, 5]),
        ("rnn", (80,), 90, [0, 1, 2, 3]),
    ],
)
def test_the_meter_counts_every_operation_so(name, shape, classes, slots):
    """On a path of the cheapest operations, with one other in its place."""
    space = open_space(name)
    table = space.cost_table(shape, classes, HEAD)
    cheap = [slot.options[-1] for slot in space.slots]  # identity or zero, where there is one
    for number in slots:
        for option in space.slots[number].options:
            path = list(cheap)
            path[number] = option
            arch = path_of(space, path)
            net = space.network(shape, classes, HEAD, arch=arch)
            assert parameters(net) == table.of(arch, "params"), (number, option)
            assert macs(net, shape) == table.of(arch, "macs"), (number, option)

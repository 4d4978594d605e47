"""FedPNAS's two stacks: sizes by Table 3 of its paper, the network, its edges and its inputs."""

import math

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.spaces import open_space
from fedloom.spaces.edges import now
from fedloom.spaces.ops import build_op, op_cost
from fedloom.spaces.space import Size
from fedloom.spaces.stacks.space import BASE_OPS, PERSONAL_OPS
from fedloom.types import Arch

# Parameters of an operation of stride 1, with 32 and with 16 channels.
TABLE_3 = {
    "avg_pool_3x3": (64, 32),
    "max_pool_3x3": (64, 32),
    "sep_conv_3x3": (2_752, 864),
    "sep_conv_5x5": (3_776, 1_376),
    "sep_conv_7x7": (5_312, 2_144),  # missing in print
    "dil_conv_3x3": (1_376, 432),
    "dil_conv_5x5": (1_888, 688),
    "conv_7x1_1x7": (14_400, 3_616),
    "skip_connect": (0, 0),
}
MAP = (8, 8)


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def edge_size(names, channels):
    return sum(op_cost(name, channels, 1, MAP, affine=True).params for name in names)


@pytest.mark.parametrize(("column", "channels"), [(0, 32), (1, 16)])
@pytest.mark.parametrize("name", TABLE_3)
def test_sizes_of_table_3(name, column, channels):
    expected = TABLE_3[name][column]
    assert op_cost(name, channels, 1, MAP, affine=True).params == expected
    assert parameters(build_op(name, channels, 1, MAP, affine=True)) == expected


@pytest.mark.parametrize(("channels", "params"), [(32, 1_088), (16, 288)])
def test_a_skip_that_reduces(channels, params):
    assert op_cost("skip_connect", channels, 2, MAP, affine=True).params == params
    assert parameters(build_op("skip_connect", channels, 2, MAP, affine=True)) == params


def test_the_operations_in_their_order():
    assert tuple(TABLE_3) == BASE_OPS
    large = {"sep_conv_5x5", "sep_conv_7x7", "dil_conv_5x5", "conv_7x1_1x7"}
    assert tuple(name for name in BASE_OPS if name not in large) == PERSONAL_OPS


@pytest.mark.parametrize(
    ("channels", "base", "printed", "all_edges", "personal"),
    [(32, 29_632, 24_320, 948_224, 4_256), (16, 9_184, 7_040, 293_888, 1_360)],
)
def test_sizes_of_an_edge(channels, base, printed, all_edges, personal):
    assert edge_size(BASE_OPS, channels) == base
    assert base - edge_size(["sep_conv_7x7"], channels) == printed
    assert 32 * base == all_edges
    assert edge_size(PERSONAL_OPS, channels) == personal


@pytest.mark.parametrize(
    ("name", "edges"),
    [
        ("stacks:4:4:2", 32),
        ("stacks:3:1:1", 7),
        ("stacks:3:1:2", 18),
        ("stacks:3:1:3", 33),
        ("stacks:3:1:4", 52),
    ],
)
def test_the_number_of_edges(name, edges):
    assert len(open_space(name).slots) == edges


def test_every_edge_of_every_cell_is_a_slot():
    space = open_space("stacks:3:1:2")
    names = [slot.name for slot in space.slots]
    assert names[:5] == ["base.0.0-2", "base.0.1-2", "base.0.0-3", "base.0.1-3", "base.0.2-3"]
    assert names[15:] == ["personal.0.0-1", "personal.0.0-2", "personal.0.1-2"]
    assert len(set(names)) == 18
    assert math.prod(len(slot.options) for slot in space.slots) == 9**15 * 5**3


@pytest.mark.parametrize("side", [8, 28, 32])
@pytest.mark.parametrize(("inputs", "channels", "params"), [(1, 16, 145_610), (3, 32, 472_010)])
def test_the_size_of_the_network(inputs, channels, params, side):
    space = open_space("stacks:3:1:2")
    shape = (inputs, side, side)
    size = Size(4, channels, "mean")
    net = space.network(shape, 10, size)
    assert parameters(net) == params
    assert space.cost(shape, 10, space.full(), size).params == params


def test_the_parts_of_the_network():
    net = open_space("stacks:3:1:2").network((1, 8, 8), 10, Size(4, 16, "mean"))
    skips = sum(parameters(cell.skip) for cell in net.base)
    operations = sum(parameters(cell.edges) for cell in [*net.base, *net.personal])
    assert (parameters(net.stem), skips, operations, parameters(net.classifier)) == (
        432,
        864,
        144_144,
        170,
    )


@pytest.mark.parametrize(
    ("base", "reducing"),
    [(1, [0]), (2, [0, 1]), (3, [1, 2]), (4, [1, 2]), (5, [1, 3]), (6, [2, 4])],
)
def test_where_the_base_reduces(base, reducing):
    """At a third and at two thirds of its cells."""
    space = open_space(f"stacks:{base}:2:1")
    assert [number for number, cell in enumerate(space.cells) if cell.reduces] == reducing


@pytest.mark.parametrize("node", ["mean", "sum"])
def test_a_node_of_its_edges_and_a_cell_of_its_nodes(node):
    """A personal cell whose edges all pass their input on: by hand."""
    name = "stacks:1:1:2" if node == "mean" else "stacks:1:1:2:sum"
    space = open_space(name)
    skips = Arch(space.name, tuple((slot.options.index("skip_connect"),) for slot in space.slots))
    net = space.network((1, 8, 8), 3, Size(2, 4, "mean"), arch=skips).eval()
    x = torch.randn(2, 4, 4, 4)
    cell = net.personal[0]
    result = cell.flow(now, x, x, (None, None))
    # Sums: the first node is x, the second x + x. Means: all of them are x.
    expected = x if node == "mean" else (x + 2 * x) / 2
    torch.testing.assert_close(result, expected)


def test_the_likeliest_operation_of_every_slot():
    space = open_space("stacks:1:1:1")
    rows = [
        torch.arange(9.0).numpy(),
        torch.arange(9.0).flip(0).numpy(),
        torch.tensor([0, 3.0, 1, 2, 0]).numpy(),
    ]
    assert space.derive(rows).choice == ((8,), (0,), (1,))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "stacks:3:1",
            "must look like stacks:BASE_CELLS:PERSONAL_CELLS:NODES[:NODE], but got stacks:3:1;",
        ),
        ("stacks:3:1:x", "but got stacks:3:1:x;"),
        ("stacks:3:1:2:min", "must be 'mean' or 'sum', but got stacks:3:1:2:min;"),
        ("stacks:0:1:2", "base_cells of the space stacks must be 1 to 100, but got 0"),
    ],
)
def test_names_that_do_not_parse(name, words):
    with pytest.raises(FedloomError) as error:
        open_space(name)
    assert words in str(error.value)

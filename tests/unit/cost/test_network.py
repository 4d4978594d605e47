import csv
import gzip
from pathlib import Path

import pytest
import torch
from torch import fx

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import space_of
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.space import DARTS_V2, from_genotype
from fedloom.spaces.nasbench201.space import from_string
from fedloom.spaces.space import Cost, Size
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

TABLE = Path(__file__).parents[4] / "shared/data/nas/nasbench201_reduced.csv.gz"
SIZE = Size(cells=3, channels=4)


def build(shape, classes, arch: Arch, size: Size, affine: bool) -> Supernet:
    return space_of(arch.space).network(shape, classes, size, arch=arch, affine=affine)


def by_formula(shape, classes, arch: Arch, size: Size, affine: bool) -> Cost:
    return space_of(arch.space).cost(shape, classes, arch, size, affine=affine)


class Tensors(fx.Interpreter):
    """Counts the elements of every tensor that a plain network makes, without views.

    Results that are written in place do not count either.
    """

    def run_node(self, node):
        result = super().run_node(node)
        if isinstance(result, torch.Tensor) and node.op in (
            "call_module",
            "call_function",
            "call_method",
        ):
            self.kept.append(result)  # alive, so that no address is used twice
        return result

    def count(self, x: torch.Tensor) -> int:
        self.kept: list[torch.Tensor] = []
        self.run(x, None)
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in self.kept
        }
        storages.pop(x.untyped_storage().data_ptr(), None)
        return sum(storages.values()) // 4


def measured(net: Supernet) -> Cost:
    """Parameters, MACs and activations of the network as it runs."""
    net = net.eval()
    with torch.no_grad():
        elements = Tensors(net.cut(net.arch)).count(torch.zeros(1, *net.shape))
    return Cost(parameters(net), macs(net, net.shape), elements)


@pytest.mark.parametrize(
    "space",
    ["darts:full:4", "darts:s1:4", "darts:s2:1", "darts:s4:3", "group:full:4:3", "nasbench201"],
)
@pytest.mark.parametrize("affine", [False, True])
def test_the_formula_is_what_the_network_does(space, affine):
    shape = (3, 8, 12) if space == "nasbench201" else (2, 9, 10)
    for number in range(4):
        arch = space_of(space).sample(rng(number, "arch"))
        assert by_formula(shape, 5, arch, SIZE, affine) == measured(
            build(shape, 5, arch, SIZE, affine)
        )


@pytest.mark.parametrize("space", ["darts:full:2", "group:full:2:3", "nasbench201"])
def test_masks_and_empty_cells(space):
    slots = space_of(space).slots
    masks = (
        [tuple(range(len(slot.options))) for slot in slots],
        [(0,)] * len(slots),
        [()] * len(slots),
    )
    for mask in masks:
        arch = Arch(space, tuple(mask))
        assert by_formula((1, 8, 8), 2, arch, SIZE, True) == measured(
            build((1, 8, 8), 2, arch, SIZE, True)
        )


def test_the_published_darts_v2():
    """DARTS's own code counts 3,349,342 for 20 cells and 36 channels.

    Its pools have no BN once the search is over.
    """
    arch = from_genotype(DARTS_V2, DartsCells())
    cost = by_formula((3, 32, 32), 10, arch, Size(20, 36), True)
    pools = (
        5 * 2 * (72 + 144)
    )  # five of a reduction cell, γ and β of its channels, two reduction cells
    assert cost.params - pools == 3_349_342


def test_supernets():
    for ops, classes, expected in (
        ("full", 10, 1_930_618),
        ("s2", 10, 665_466),
        ("s2", 100, 688_596),
    ):
        arch = DartsCells(ops, 4).full()
        assert by_formula((3, 32, 32), classes, arch, Size(8, 16), False).params == expected


@pytest.mark.skipif(not TABLE.exists(), reason=f"{TABLE} is absent")
def test_three_hundred_cells_of_nasbench201():
    with gzip.open(TABLE, "rt") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15_625
    for number in rng(0, "rows").choice(len(rows), size=300, replace=False):
        row = rows[int(number)]
        cost = by_formula((3, 32, 32), 10, from_string(row["arch_str"]), Size(5, 16), True)
        assert cost.params / 1e6 == pytest.approx(float(row["cifar10_params_M"]), rel=1e-4)
        assert cost.macs / 1e6 == pytest.approx(float(row["cifar10_flops_M"]), rel=1e-4)


def test_an_architecture_that_does_not_fit_is_refused():
    with pytest.raises(
        FedloomError, match=r"slot normal\.0-2 must choose among 0 skip_connect, 1 sep_conv_3x3"
    ):
        by_formula((3, 8, 8), 2, Arch("darts:s2:1", ((5,), (), (), ())), SIZE, True)

"""Networks of DARTS cells that can be trained by name: the published one, and supernets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedloom.errors import FedloomError
from fedloom.nets.heads import HeadChoice, ends_in_map
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.space import DARTS_V2, from_genotype
from fedloom.spaces.genotype import scaled
from fedloom.spaces.space import Size
from fedloom.spaces.supernet import Supernet


@ends_in_map
def darts_v2(
    shape: tuple[int, ...],
    classes: int,
    width: float = 1.0,
    *,
    head: HeadChoice = "auto",
) -> Supernet:
    """The DARTS-V2 cells (Liu et al. 2019, found on CIFAR-10): 8 cells, 16 × width channels."""
    space = DartsCells("full", 4)
    arch = from_genotype(DARTS_V2, space)
    size = scaled(space.usual, width)._replace(head=head)
    return space.network(shape, classes, size, arch=arch, affine=True)


@ends_in_map
def supernet(
    shape: tuple[int, ...],
    classes: int,
    width: float = 1.0,
    *,
    ops: str = "s2",
    nodes: int = 4,
    cells: int = 8,
    head: HeadChoice = "auto",
) -> Supernet:
    """SPIDER's supernet with all operations: DARTS s2, 8 cells; or supernet:OPS:NODES:CELLS."""
    space = DartsCells(ops, nodes)
    size = scaled(Size(cells, space.usual.channels, head), width)
    return space.network(shape, classes, size)


def sized_supernet(size: str) -> Callable[..., Supernet]:
    """Returns the supernet for a size such as `s2:4:8`: op set, nodes per cell, cells."""
    ops, *numbers = size.split(":")
    if len(numbers) != 2 or not all(is_count(number) for number in numbers):
        rule = "a supernet must look like supernet:OPS:NODES:CELLS"
        raise FedloomError(rule, f"got supernet:{size}", "try supernet:s2:4:8")
    DartsCells(ops, int(numbers[0]))  # raises the error for an unknown op set
    return ends_in_map(partial(supernet, ops=ops, nodes=int(numbers[0]), cells=int(numbers[1])))


def is_count(text: str) -> bool:
    """Whether the text is a whole number from 1 on, with at most six digits."""
    return text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) > 0

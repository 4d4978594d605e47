"""Genotypes as fixed networks, to train as they are: the published ones by name, any other from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.nets.nasbench201 import BenchNetwork
from fedloom.nets.supernet import CellNetwork, Supernet
from fedloom.spaces.cells import DARTS_V2, CellSpace, from_genotype
from fedloom.spaces.nasbench201 import NasBench201
from fedloom.types import Arch, Json

CELLS, CHANNELS = 8, 16
STAGE = 5  # cells of each stage of NAS-Bench-201's network


def darts_v2(shape: tuple[int, ...], classes: int, width: float = 1.0) -> CellNetwork:
    """The published DARTS-V2 cells (Liu et al. 2019, found on CIFAR-10): 8 cells, 16 × width channels."""
    return of_cells(from_genotype(DARTS_V2, CellSpace("full", 4)), CELLS, shape, classes, width)


def supernet(
    shape: tuple[int, ...], classes: int, width: float = 1.0, *, ops: str = "s2", nodes: int = 4, cells: int = CELLS
) -> CellNetwork:
    """SPIDER's supernet, every operation alive: DARTS s2, 8 cells; supernet:OPS:NODES:CELLS for others."""
    return CellNetwork(shape, classes, CellSpace(ops, nodes), cells=cells, channels=scaled(width))


def sized_supernet(size: str) -> Callable[..., CellNetwork]:
    """The supernet that `s2:4:8` names: op set, nodes of a cell, cells."""
    ops, *numbers = size.split(":")
    if len(numbers) != 2 or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        must = "a supernet must look like supernet:OPS:NODES:CELLS"
        raise FedloomError(must, f"got supernet:{size}", "try supernet:s2:4:8")
    CellSpace(ops, int(numbers[0]))  # an unknown op set is named here
    return partial(supernet, ops=ops, nodes=int(numbers[0]), cells=int(numbers[1]))


def of_cells(
    arch: Arch, cells: int, shape: tuple[int, ...], classes: int, width: float = 1.0, *, channels: int = CHANNELS,
    affine: bool = True,
) -> CellNetwork:  # fmt: skip
    space, channels = CellSpace.from_name(arch.space), scaled(width, channels)
    return CellNetwork(shape, classes, space, cells=cells, channels=channels, arch=arch, affine=affine)


def of_bench(
    arch: Arch, cells: int, shape: tuple[int, ...], classes: int, width: float = 1.0, *, channels: int = CHANNELS,
    affine: bool = True,
) -> BenchNetwork:  # fmt: skip
    return BenchNetwork(shape, classes, cells=cells, channels=scaled(width, channels), arch=arch, affine=affine)


def scaled(width: float, channels: int = CHANNELS) -> int:
    return max(1, round(channels * width))


def read(file: Path) -> Callable[..., Supernet]:
    """A network from a file: what a run wrote under architectures/, an export's architecture.json, or
    {"normal": [[op, input], …], "reduce": […]}.

    `"cells"` may say how many cells, `"channels"` how many channels the first has (16, times the width), `"affine"`
    whether BN has weights (yes): an export says all of them.
    """
    try:
        raw = json.loads(file.read_text())
        sizes = {name: raw.pop(name, None) for name in ("cells", "channels")}
        affine = raw.pop("affine", True)
        arch = parse(raw)
        wrong = [name for name, size in sizes.items() if size is not None and (type(size) is not int or size < 1)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        must = f"{file} must be a genotype in JSON"
        found = f"it could not be read ({type(error).__name__}: {error})"
        todo = 'give {"normal": [["sep_conv_3x3", 0], …], "reduce": […]}, or a file of a run\'s architectures/'
        raise FedloomError(must, found, todo) from None
    if wrong:
        raise FedloomError(f"{wrong[0]} in {file} must be a number above 0", f"got {sizes[wrong[0]]!r}", "try 8")
    if not isinstance(affine, bool):
        raise FedloomError(f"affine in {file} must be true or false", f"got {affine!r}", "leave it out")
    cells, channels = sizes["cells"], sizes["channels"] or CHANNELS
    if arch.space == NasBench201.name:
        return partial(of_bench, arch, cells or STAGE, channels=channels, affine=affine)
    return partial(of_cells, arch, cells or CELLS, channels=channels, affine=affine)


def parse(raw: Json) -> Arch:
    if "space" in raw:
        arch = Arch.from_plain(raw)
        space = NasBench201() if arch.space == NasBench201.name else CellSpace.from_name(arch.space)
        space.check(arch)
        return arch
    cells = {kind: tuple((str(op), int(source)) for op, source in raw[kind]) for kind in ("normal", "reduce")}
    return from_genotype(cells, CellSpace("full", len(cells["normal"]) // 2))

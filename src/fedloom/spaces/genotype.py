"""Genotypes as fixed networks, to train as they are: the published ones by name, any other from a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, read_json
from fedloom.spaces import space_of
from fedloom.spaces.cells.space import DARTS_V2, INPUTS_KEPT, CellSpace, from_genotype
from fedloom.spaces.nasbench201.net import BenchNetwork
from fedloom.spaces.nasbench201.space import NasBench201
from fedloom.spaces.supernet import MOST_CELLS, MOST_CHANNELS, CellNetwork, Supernet
from fedloom.types import Arch

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
    if len(numbers) != 2 or not all(is_count(number) for number in numbers):
        must = "a supernet must look like supernet:OPS:NODES:CELLS"
        raise FedloomError(must, f"got supernet:{size}", "try supernet:s2:4:8")
    CellSpace(ops, int(numbers[0]))  # an unknown op set is named here
    return partial(supernet, ops=ops, nodes=int(numbers[0]), cells=int(numbers[1]))


def is_count(text: str) -> bool:
    """A number from 1 up, of so few digits that it can be one of something."""
    return text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) > 0


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


class GenotypeFile(BaseModel):
    """What every genotype's file may say beside its operations. An export's file has more, which is not looked at."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    cells: int | None = Field(None, ge=1, le=MOST_CELLS)
    channels: int | None = Field(None, ge=1, le=MOST_CHANNELS)
    affine: bool = True

    def arch(self) -> Arch:
        raise NotImplementedError


class FoundGenotype(GenotypeFile):
    """As a run writes it under architectures/, and an export."""

    space: str
    choice: list[list[int]]

    def arch(self) -> Arch:
        arch = Arch(self.space, tuple(tuple(live) for live in self.choice))
        space_of(arch.space).check(arch)
        return arch


Input = Annotated[list[str | int], Field(min_length=2, max_length=2)]  # an operation, and the state it is applied to


class PublishedGenotype(GenotypeFile):
    """As papers print it."""

    normal: list[Input]
    reduce: list[Input]

    def arch(self) -> Arch:
        cells = {"normal": pairs_of("normal", self.normal), "reduce": pairs_of("reduce", self.reduce)}
        return from_genotype(cells, CellSpace("full", len(self.normal) // INPUTS_KEPT))


def pairs_of(kind: str, inputs: list[Input]) -> tuple[tuple[str, int], ...]:
    pairs = []
    for op, source in inputs:
        if not isinstance(op, str) or not isinstance(source, int):
            must = f"an input of a genotype's {kind} cell must be an operation and a number"
            raise FedloomError(must, f"got {op!r} and {source!r}", 'try ["sep_conv_3x3", 0]')
        pairs.append((op, source))
    return tuple(pairs)


def read(file: Path) -> Callable[..., Supernet]:
    """A network from a file: what a run wrote under architectures/, an export's architecture.json, or
    {"normal": [[op, input], …], "reduce": […]}.

    `"cells"` may say how many cells, `"channels"` how many channels the first has (16, times the width), `"affine"`
    whether BN has weights (yes): an export says all of them.
    """
    try:
        raw = read_json(file)
    except Unreadable as error:
        raise no_genotype(file, f"{error}") from None
    if not isinstance(raw, dict):
        raise no_genotype(file, f"it is a {type(raw).__name__}")
    try:
        genotype = FoundGenotype.model_validate(raw) if "space" in raw else PublishedGenotype.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise no_genotype(file, f"{where}: {first['msg']}") from None
    arch, affine = genotype.arch(), genotype.affine
    channels = genotype.channels or CHANNELS
    if arch.space == NasBench201.name:
        return partial(of_bench, arch, genotype.cells or STAGE, channels=channels, affine=affine)
    return partial(of_cells, arch, genotype.cells or CELLS, channels=channels, affine=affine)


def no_genotype(file: Path, found: str) -> FedloomError:
    todo = 'give {"normal": [["sep_conv_3x3", 0], …], "reduce": […]}, or a file of a run\'s architectures/'
    return FedloomError(f"{file} must be a genotype in JSON", found, todo)

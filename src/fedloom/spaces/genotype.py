"""Reads an architecture from a file and builds it as a fixed network.

The file comes from a run or an export, or has the form in which papers print architectures.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.errors import FedloomError
from fedloom.nets.heads import Head, HeadChoice
from fedloom.reading import Unreadable, read_json
from fedloom.registry import CELLS, is_file
from fedloom.spaces import DEFAULT, SPACES, family_in, open_family, space_of, split_name
from fedloom.spaces.asking import asked
from fedloom.spaces.options import MOST_CELLS, MOST_CHANNELS
from fedloom.spaces.space import Size, Space
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.supernet import Supernet


class GenotypeFile(BaseModel):
    """What a genotype's file may contain besides its operations.

    An export's file has further fields, which are ignored.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    cells: int | None = Field(None, ge=1, le=MOST_CELLS)
    channels: int | None = Field(None, ge=1, le=MOST_CHANNELS)
    affine: bool = True
    head: Head = "mean"

    def size(self, usual: Size) -> Size:
        return Size(self.cells or usual.cells, self.channels or usual.channels, self.head)


class FoundArchitecture(BaseModel):
    """An architecture as runs (under architectures/) and exports write it."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    space: str
    choice: list[list[int]]

    def arch(self) -> Arch:
        arch = Arch(self.space, tuple(tuple(live) for live in self.choice))
        family, _ = split_name(self.space)
        if is_file(family) and Path(family.partition(".py:")[0]).is_absolute():
            open_family(family)  # its code runs: the user named a file that names it
        space = space_of(arch.space)
        asked(family, "check an architecture", lambda: space.check(arch))
        return arch


@dataclass(frozen=True)
class FixedArchitecture:
    """A network in the form that the registry of networks expects.

    It is a callable that knows which kinds of data it is for.
    """

    arch: Arch
    settings: GenotypeFile

    @property
    def takes_head(self) -> bool:
        return space_of(self.arch.space).takes_head

    @property
    def kinds(self) -> tuple[str, ...]:
        return space_of(self.arch.space).kinds

    def __call__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: float = 1.0,
        *,
        head: HeadChoice = "auto",
    ) -> Supernet:
        """Builds the network, with the head that the file names unless `head` is another choice.

        `head="old"`, for runs from before heads could be chosen, is the mean.
        """
        space = space_of(self.arch.space)
        arch = self.arch
        size = self.settings.size(space.usual)
        if not space.has_own_size:
            size = scaled(size, width)
        elif width != 1:
            arch = resized(space, arch, width)
            space = space_of(arch.space)
            size = self.settings.size(space.usual)
        if head != "auto":
            size = size._replace(head=head)
        affine = self.settings.affine
        build = partial(space.network, shape, classes, size, arch=arch, affine=affine)
        return asked(space.family, "build a network", build)


def read(file: Path) -> FixedArchitecture:
    """Reads a network from a file.

    The file is one that a run wrote under architectures/, an export's architecture.json, or has the
    form that a space's papers print, such as {"normal": [[op, input], …], "reduce": […]}.

    `"cells"` may give the number of cells and `"channels"` the channels of the first cell (default:
    the space's usual size, with the channels times the width), `"affine"` whether BN has weights
    (default: yes). An export gives all of them.
    """
    try:
        raw = read_json(file)
    except Unreadable as error:
        raise no_genotype(file, str(error)) from None
    if not isinstance(raw, dict):
        raise no_genotype(file, f"it is a {type(raw).__name__}")
    try:
        settings = GenotypeFile.model_validate(raw)
        arch = arch_in(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise no_genotype(file, f"{where}: {first['msg']}") from None
    if arch is None:
        raise no_genotype(file, "it names no space, and no space prints architectures in this form")
    return FixedArchitecture(arch, settings)


def arch_in(raw: Mapping[str, Any]) -> Arch | None:
    if "space" in raw:
        return FoundArchitecture.model_validate(raw).arch()
    return published(raw)


def published(raw: Mapping[str, Any]) -> Arch | None:
    """Reads an architecture in the form that the papers of some space print.

    Built-in spaces are tried before installed ones. None: no space knows this form.
    """
    for name in SPACES.builtin:
        arch = open_family(name).published(raw)
        if arch is not None:
            return arch
    for name in SPACES.names():
        if name in SPACES.builtin:
            continue
        # A space that fails is skipped: another one may know the form.
        with suppress(FedloomError):
            arch = asked(name, "read an architecture", partial(open_family(name).published, raw))
            if isinstance(arch, Arch):
                return arch
    return None


def recall(options: Mapping[str, Any]) -> None:
    """Opens the file of a space that a run's options name, so that its architectures are known.

    The options may name it directly (`space`) or by a genotype's file (`network`). If the file is
    gone or no longer works, nothing is opened, and the run's architectures cannot be described: not
    everybody who reads a run needs that.
    """
    space = options.get("space")
    network = options.get("network")
    with suppress(FedloomError):
        if space is not None and is_file(split_name(str(space))[0]):
            family_in(str(space))
        if isinstance(network, str):
            file = network.removeprefix(CELLS)
            if file != network or file.endswith(".json"):
                read(Path(file))


def scaled(size: Size, width: float) -> Size:
    """Returns the size with `width` times the channels, at least one."""
    return size._replace(channels=max(1, round(size.channels * width)))


def resized(space: Space, arch: Arch, width: float) -> Arch:
    """Returns the same operations in a space that is defined with `width` times the channels."""
    other = asked(space.family, "change its channels", lambda: space.resized(arch, width))
    if other is None:
        rule = f"a network of the space {space.title} must have width 1"
        raise FedloomError(rule, f"got {width:g}", "leave width out, or define a wider space")
    return other


def named_file(file: str) -> FixedArchitecture:
    """Returns the network that `cells:FILE` stands for, whatever the file's extension is."""
    if not file:
        raise FedloomError(
            "cells: must name a genotype's file",
            "got cells:",
            "try cells:RUN/architectures/client-0.json",
        )
    return read(Path(file))


def no_genotype(file: Path, problem: str) -> FedloomError:
    example = open_family(DEFAULT).published_example
    advice = f"give {example}, or a file of a run's architectures/"
    return FedloomError(f"{file} must be a genotype in JSON", problem, advice)

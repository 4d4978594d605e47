"""A found architecture as a fixed network, from its file.

The file is of a run, of an export, or as papers print architectures.
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
from fedloom.registry import is_file
from fedloom.spaces import DEFAULT, SPACES, family_in, open_family, space_of, split_name
from fedloom.spaces.asking import asked
from fedloom.spaces.options import MOST_CELLS, MOST_CHANNELS
from fedloom.spaces.space import Size
from fedloom.types import Arch

if TYPE_CHECKING:
    from fedloom.spaces.supernet import Supernet


class GenotypeFile(BaseModel):
    """What a genotype's file may say beside its operations.

    An export's file has more, which is not looked at.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    cells: int | None = Field(None, ge=1, le=MOST_CELLS)
    channels: int | None = Field(None, ge=1, le=MOST_CHANNELS)
    affine: bool = True
    head: Head = "mean"

    def size(self, usual: Size) -> Size:
        return Size(self.cells or usual.cells, self.channels or usual.channels, self.head)


class FoundArchitecture(BaseModel):
    """As a run writes it under architectures/, and an export."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    space: str
    choice: list[list[int]]

    def arch(self) -> Arch:
        arch = Arch(self.space, tuple(tuple(live) for live in self.choice))
        family, _ = split_name(self.space)
        if is_file(family) and Path(family.partition(".py:")[0]).is_absolute():
            open_family(family)  # the user named this file, and it names that one
        space = space_of(arch.space)
        asked(family, "check an architecture", lambda: space.check(arch))
        return arch


@dataclass(frozen=True)
class FixedArchitecture:
    """A network as the registry of networks wants one.

    It is a callable that knows which kinds of data it is for.
    """

    arch: Arch
    about: GenotypeFile

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
        """With the head that the file names, unless another one is asked for.

        Before there was a choice (`old`) it was the mean.
        """
        space = space_of(self.arch.space)
        if space.has_own_size and width != 1:
            rule = f"a network of the space {space.title} must have width 1"
            raise FedloomError(rule, f"got {width:g}", "leave width out, or define a wider space")
        size = scaled(self.about.size(space.usual), width)
        if head != "auto":
            size = size._replace(head=head)
        affine = self.about.affine
        build = partial(space.network, shape, classes, size, arch=self.arch, affine=affine)
        return asked(space.family, "build a network", build)


def read(file: Path) -> FixedArchitecture:
    """A network from a file.

    The file is what a run wrote under architectures/, an export's architecture.json, or what a
    space's papers print, such as {"normal": [[op, input], …], "reduce": […]}.

    `"cells"` may say how many cells, `"channels"` how many channels the first has (the space's
    usual ones, times the width), `"affine"` whether BN has weights (yes): an export says all of
    them.
    """
    try:
        raw = read_json(file)
    except Unreadable as error:
        raise no_genotype(file, str(error)) from None
    if not isinstance(raw, dict):
        raise no_genotype(file, f"it is a {type(raw).__name__}")
    try:
        about = GenotypeFile.model_validate(raw)
        arch = arch_in(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise no_genotype(file, f"{where}: {first['msg']}") from None
    if arch is None:
        raise no_genotype(file, "it names no space, and no space prints its architectures so")
    return FixedArchitecture(arch, about)


def arch_in(raw: Mapping[str, Any]) -> Arch | None:
    if "space" in raw:
        return FoundArchitecture.model_validate(raw).arch()
    return published(raw)


def recall(options: Mapping[str, Any]) -> None:
    """Open the space in a file that a run's own options name, for the run's architectures.

    A file that is gone, or no longer works, leaves them untold: not everybody who reads a run needs
    it.
    """
    named = options.get("space")
    network = options.get("network")
    with suppress(FedloomError):
        if named is not None and is_file(split_name(str(named))[0]):
            family_in(str(named))
        if isinstance(network, str) and network.endswith(".json"):
            read(Path(network))


def published(raw: Mapping[str, Any]) -> Arch | None:
    """An architecture as the papers of some space print it.

    Ours are asked before the installed ones.
    """
    for name in SPACES.builtin:
        arch = open_family(name).published(raw)
        if arch is not None:
            return arch
    for name in SPACES.names():
        if name in SPACES.builtin:
            continue
        # One that does not work is no reason to refuse what another may know.
        with suppress(FedloomError):
            arch = asked(name, "read an architecture", partial(open_family(name).published, raw))
            if isinstance(arch, Arch):
                return arch
    return None


def scaled(size: Size, width: float) -> Size:
    """With `width` times the channels, at least one."""
    return size._replace(channels=max(1, round(size.channels * width)))


def no_genotype(file: Path, found: str) -> FedloomError:
    example = open_family(DEFAULT).published_example
    advice = f"give {example}, or a file of a run's architectures/"
    return FedloomError(f"{file} must be a genotype in JSON", found, advice)

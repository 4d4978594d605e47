"""The options that say which space is searched, and how large its supernet is."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from fedloom.nets.heads import HeadChoice
from fedloom.options import Absent, Options, as_before
from fedloom.registry import absolute
from fedloom.spaces import DEFAULT, family_in, open_family, open_space, split_name
from fedloom.spaces.space import Size
from fedloom.types import Meta

MOST_CELLS = 1000
MOST_CHANNELS = 1 << 16
MOST_NODES = 32  # of a cell: its edges grow with their square


class SpaceOptions(Options):
    """Which space, and how large. A space takes from `ops` and `nodes` what it has a use for."""

    space: str = Field(
        DEFAULT,
        description="which space is searched: a name (`fedloom list spaces`) or path/file.py:Name, "
        "maybe with parameters, NAME:PARAMETERS",
    )
    ops: str = Field("full", description="op set of a cell's edges: full, s1, s2, s3, s4 or s5")
    cells: int = Field(
        8,
        ge=1,
        le=MOST_CELLS,
        description="cells of the network, or of each of its stages",
    )
    nodes: int = Field(4, ge=1, le=MOST_NODES, description="intermediate nodes of a cell")
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of the first cell")
    head: Annotated[HeadChoice, Absent("old")] = Field(
        "auto",
        description="what the classifier sees of the last map: its mean, or a grid of 2×2 means "
        "(auto: grid)",
    )

    @field_validator("space")
    @classmethod
    def _registered(cls, name: str) -> str:
        """Refuses a name that nobody has.

        A file gets its full path, so that it is found from any folder.
        """
        family, parameters = split_name(name)
        if not parameters:
            open_family(family)
            return absolute(family)
        open_space(name)
        return f"{absolute(family)}:{parameters}"

    @model_validator(mode="after")
    def _has_head(self) -> Self:
        if self.head in ("mean", "grid") and not family_in(self.space).takes_head:
            raise ValueError(
                f"head={self.head} needs a space whose networks end in a map and say so; "
                f"{self.space} does not: leave head out"
            )
        return self

    @property
    def size(self) -> Size:
        if not family_in(self.space).takes_head:
            return Size(self.cells, self.channels)
        return Size(self.cells, self.channels, self.head)


def space_options_in(options: Meta) -> SpaceOptions | None:
    """Which space a task searches, by its method's options; None: its method searches none.

    Options that came later may be missing: they mean what was done before.
    """
    own = {name: options[name] for name in SpaceOptions.model_fields if name in options}
    complete = as_before(SpaceOptions, own)
    if not all(name in complete for name in SpaceOptions.model_fields):
        return None
    return SpaceOptions(**complete)

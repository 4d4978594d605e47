"""The options that choose the search space and the size of its supernet.

A space declares its own parameters in its `schema`. They are given next to these options (`ops=s2`)
or in the space's name (`space=darts:s2:4`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from fedloom.config.models import validated
from fedloom.errors import FedloomError, shortened, unknown
from fedloom.nets.heads import HeadChoice
from fedloom.options import Absent, Options
from fedloom.registry import absolute
from fedloom.spaces import (
    DEFAULT,
    SPACES,
    chosen_space,
    configured_space,
    family_in,
    full_name,
    open_family,
    open_space,
    space_for,
    split_name,
    usual_space,
)
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.constants import check_constants
from fedloom.spaces.parameters import values_of
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.space import Size, Space
from fedloom.types import Task

MOST_CELLS = 1000
MOST_CHANNELS = 1 << 16
CHOICE_OF_SPACE = (
    "which space is searched: a name (`fedloom list spaces`) or path/file.py:Name, optionally with "
    "its parameters, NAME:PARAMETERS"
)
AUTO = "auto"  # a space's name that means: the usual space for the kind and shape of the data


class SpaceChoice(Options):
    """Options that choose a space and its parameters. Its network has the space's usual size.

    Subclasses may have another default space, or `auto`: the usual space for the data.
    """

    space: str = Field(DEFAULT, description=CHOICE_OF_SPACE)
    head: Annotated[HeadChoice, Absent("old")] = Field(
        "auto",
        description="what the classifier sees of the last map: its mean, or a grid of 2×2 means "
        "(auto: grid)",
    )
    _parameters: Options = PrivateAttr(default_factory=Options)

    @property
    def parameters(self) -> Options:
        """The space's own parameters, an instance of its schema."""
        return self._parameters

    def searched(self, task: Task) -> SearchedSpace:
        """The space and size that a task with these options searches."""
        space = self.space_of(task)
        check_constants(space)
        size = space.usual
        if space.takes_head:
            size = size._replace(head=self.head)
        return SearchedSpace(space, size)

    def space_of(self, task: Task) -> Space:
        if self.space == AUTO:
            return open_space(usual_space(task.kind, task.shape))
        return chosen_space(self)

    @model_validator(mode="wrap")
    @classmethod
    def _with_parameters(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Passes whatever is not an option of the method to the space, as its parameters."""
        choice = choice_of_space(cls, raw)
        if choice is None:
            return handler(raw)
        own_options = {}
        given_parameters = {}
        for name, value in raw.items():
            if name in cls.model_fields:
                own_options[name] = value
            elif name in choice.open_parameters:
                given_parameters[name] = value
            else:
                cls.check_place(name, raw)
                raise unknown(f"option `options.{name}`", name, cls.fields_beside(raw))
        parameters = choice.parameters(given_parameters)
        if choice.space_is_made_of_parameters:
            own_options["space"] = choice.family.family
            space = configured_space(choice.family, parameters)  # it may refuse the values
            if "cells" in cls.model_fields and space.searches_usual_cells:
                own_options.setdefault("cells", space.usual.cells)
        options = handler(own_options)
        options._parameters = parameters
        return options

    @model_serializer(mode="wrap")
    def _beside_each_other(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Stores the space's parameters next to the other options, as users give them."""
        return {**handler(self), **self._parameters.model_dump(mode="json")}

    @field_validator("space")
    @classmethod
    def _registered(cls, name: str) -> str:
        """Refuses an unknown space.

        A file's path becomes absolute, so that the file is found from any folder.
        """
        if is_left_to_data(cls, name):
            return name
        name = full_name(name)
        family, parameters = split_name(name)
        if not parameters:
            open_family(family)
            return absolute(family)
        open_space(name)
        return f"{absolute(family)}:{parameters}"

    @model_validator(mode="after")
    def _has_head(self) -> Self:
        if self.head not in ("mean", "grid") or self.space == AUTO:
            return self
        if not family_in(self.space).takes_head:
            raise FedloomError(
                "--head must be given for a space whose networks end in a map and say so",
                f"{self.space} does not (head={self.head})",
                "leave it out",
            )
        return self

    @classmethod
    def fields_beside(cls, given: Mapping[str, Any]) -> dict[str, FieldInfo]:
        choice = choice_of_space(cls, given)
        if choice is None:
            return dict(cls.model_fields)
        fields = {}
        for name, field in cls.model_fields.items():
            fields[name] = field
            if name == "space":
                fields.update(choice.open_parameters)
        return fields

    @classmethod
    def check_place(cls, name: str, given: Mapping[str, Any]) -> None:
        """Refuses a parameter that the chosen space lacks, or that its name already gives."""
        choice = choice_of_space(cls, given)
        if choice is None or name in cls.model_fields:
            return
        family = shown(choice.family.family)
        if choice.is_complete and name in choice.family.schema.model_fields:
            full_name = shortened(str(given["space"]), 80)
            raise FedloomError(
                f"the parameters of search space {family} must be given once",
                f"its name {full_name} gives them, and `{name}` is given too",
                f"leave {name} out, or set space={family}",
            )
        owners = list(families_with(name))
        if owners:
            parameters = ", ".join(choice.family.schema.model_fields) or "none"
            raise FedloomError(
                f"`{name}` must be a parameter of the search space that is chosen",
                f"{family} has {parameters}",
                f"leave {name} out, or choose space={' or '.join(owners)}, which has it",
            )

    @classmethod
    def without_ignored(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Drops the default space's parameters, which earlier versions stored in every run.

        The run's space used those that it had a use for. If the space's file is gone, they stay:
        not everybody who reads a run needs the space.
        """
        options = dict(raw)
        kept_by_all = open_family(DEFAULT).once_kept_by_all
        if not any(name in raw for name in kept_by_all):
            return options
        with suppress(FedloomError):
            choice = choice_of_space(cls, raw)
            for name in kept_by_all:
                if choice is not None and name not in choice.open_parameters:
                    options.pop(name, None)
        return options


class SpaceOptions(SpaceChoice):
    """Options that choose a space and the size of its network."""

    cells: int = Field(
        8,
        ge=1,
        le=MOST_CELLS,
        description="cells of the network, or of each of its stages",
    )
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of the first cell")

    @property
    def size(self) -> Size:
        if not family_in(self.space).takes_head:
            return Size(self.cells, self.channels)
        return Size(self.cells, self.channels, self.head)

    def searched(self, task: Task) -> SearchedSpace:
        return SearchedSpace(space_for(self), self.size)


@dataclass(frozen=True)
class ChoiceOfSpace:
    """The space that options name, and the values of parameters that are not given."""

    family: type[Space]
    values: Mapping[str, Any]
    is_complete: bool  # whether its name includes its parameters

    @property
    def space_is_made_of_parameters(self) -> bool:
        """False if the space declares no parameters and reads its name itself."""
        return not self.is_complete or bool(self.values)

    @property
    def open_parameters(self) -> dict[str, FieldInfo]:
        """The parameters that may still be given, with their defaults."""
        if self.is_complete:
            return {}
        fields = {}
        for name, declared in self.family.schema.model_fields.items():
            field = copy(declared)
            field.description = f"of the space {shown(self.family.family)}: {declared.description}"
            if name in self.values:
                field.default = self.values[name]
            fields[name] = field
        return fields

    def parameters(self, given: Mapping[str, Any]) -> Options:
        parameters = validated(self.family.schema, {**self.values, **given}, prefix="options.")
        assert isinstance(parameters, Options)
        return parameters


def choice_of_space(schema: type[SpaceChoice], given: Any) -> ChoiceOfSpace | None:
    """Returns the space that options name, or a method's default space.

    None: the space is left to the data, or the options cannot be read.

    If a method's default space has parameters, they also apply where the same space is named
    without parameters.
    """
    if not isinstance(given, Mapping):
        return None
    default = schema.model_fields["space"].default
    name = given.get("space", default)
    if not isinstance(name, str) or is_left_to_data(schema, name):
        return None
    name = full_name(name)
    family, parameters = split_name(name)
    space_class = open_family(family)
    for parameter in space_class.schema.model_fields:
        if parameter in schema.model_fields:
            rule = f"a parameter of search space {shown(family)} must not be named like an option"
            raise FedloomError(rule, f"the method has an option {parameter} too", "rename it")
    if parameters and "space" in given:
        return ChoiceOfSpace(space_class, values_in(name), is_complete=True)
    usual_family, usual_parameters = split_name(default)
    values = {}
    if family == usual_family and usual_parameters:
        values = values_in(default)
    return ChoiceOfSpace(space_class, values, is_complete=False)


def is_left_to_data(schema: type[SpaceChoice], name: str) -> bool:
    """Whether the name is `auto`, for a method that supports it."""
    return name == AUTO and schema.model_fields["space"].default == AUTO


def values_in(name: str) -> dict[str, Any]:
    """Returns the parameters in the name of a space."""
    space = open_space(name)
    return asked(
        space.family, "have each of its parameters as an attribute", lambda: values_of(space)
    )


def families_with(parameter: str) -> Iterator[str]:
    """Yields the registered spaces that have a parameter of this name."""
    for name in SPACES.names():
        with suppress(FedloomError):
            if parameter in open_family(name).schema.model_fields:
                yield name

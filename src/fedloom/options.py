"""Options: a closed, frozen schema that methods and networks build theirs on, and how one grows.

A run keeps every option that it was started with in its config.toml. An option that comes later
says, beside its default for new runs, what fedloom did before there was a choice:

    taste: Annotated[Literal["plain", "sweet"], Absent("plain")] = Field("sweet", description="…")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Options(BaseModel):
    """Unknown names are refused with their nearest match."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def for_given_constants(cls) -> dict[str, Any]:
        """Options that a run has, unless it names them, where the user gave data.mean or data.std.

        Those constants are for everybody: here a method says that no client takes its own instead.
        """
        return {}

    @classmethod
    def for_server_data(cls) -> dict[str, Any]:
        """Options that a run has, unless it names them, where the server has samples of its own."""
        return {}

    def check_for_federation(self) -> None:
        """Refuses what only a simulation can do, with a FedloomError."""

    @classmethod
    def for_data(
        cls,
        given: Mapping[str, Any],
        kind: str | None,
        shape: tuple[int, ...],
    ) -> dict[str, Any]:
        """Options that a run has, unless it names them, for samples of this kind and shape.

        `given` are those that it names; `kind` None: what the samples are is not known yet.
        """
        return {}

    @classmethod
    def run_named(cls, given: Mapping[str, Any]) -> str | None:
        """The finished run, or the file, whose networks a run with these options trains.

        None: it names none. Such a run has the tiers, the split and the budget of the one named.
        """
        return None

    @property
    def pooled_share(self) -> float | None:
        """Of what a client has to train on: so much a simulation's server has of each, at the end.

        None: nothing. No federation can do that.
        """
        return None

    @classmethod
    def fields_beside(cls, given: Mapping[str, Any]) -> dict[str, FieldInfo]:
        """The options that may be given beside these: a choice may bring options of its own."""
        return dict(cls.model_fields)

    @classmethod
    def check_place(cls, name: str, given: Mapping[str, Any]) -> None:
        """Refuses a name that would be known beside another choice than these options make."""

    @classmethod
    def without_ignored(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A run's options without those that the version that wrote them had no use for."""
        return dict(raw)


def as_list(value: Any) -> Any:
    """What a list option is given as: a list, one number, `a,b`, or `a/b` in a variant."""
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, str):
        return value.replace("/", ",").split(",")
    return value


@dataclass(frozen=True)
class Absent:
    """What an option means in a run that was made before the option came.

    It is an annotation of the option's field. TOML cannot say None: an option that may be None must
    mean None where it is absent.
    """

    value: Any


def as_before(schema: type[BaseModel], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A run's options with what the version that wrote them did where a later one has a choice.

    An option that was there from the beginning has no `Absent`: where it is missing, it means its
    default.
    """
    options = dict(raw)
    if issubclass(schema, Options):
        options = schema.without_ignored(raw)
    for name, field in schema.model_fields.items():
        absent = absence(field)
        if name not in options and absent is not None:
            options[name] = absent.value
        section = section_of(field)
        if section is not None and may_be_filled(field, options.get(name)):
            options[name] = as_before(section, options.get(name, {}))
    return options


def spelled_out(settled: BaseModel, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a person gave them, with every later one beside them as it is meant now.

    A file then has only what was given, and absence still means that an earlier version wrote it.
    """
    options = dict(raw)
    for name, field in type(settled).model_fields.items():
        value = getattr(settled, name)
        if absence(field) is not None:
            options[name] = value
        if isinstance(value, BaseModel):
            section = spelled_out(value, options.get(name, {}))
            if section:
                options[name] = section
    return options


def absence(field: FieldInfo) -> Absent | None:
    for mark in field.metadata:
        if isinstance(mark, Absent):
            return mark
    return None


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The schema of a field that has options of its own.

    The whole section may be one that can be left out.
    """
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def may_be_filled(field: FieldInfo, value: Any) -> bool:
    """Whether this is a section that is there, or that always is.

    What is no table is left for the schema to refuse.
    """
    if value is None:
        return isinstance(field.default, BaseModel)
    return isinstance(value, Mapping)

"""Options: the closed, frozen schema that options of methods and networks derive from.

It also defines how a schema may grow. A run keeps every option that it was started with in its
config.toml. An option that is added later declares, beside its default for new runs, what fedloom
did before the option existed:

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
        """Defaults of options for runs whose user gave data.mean or data.std.

        Those constants are for all clients: with these defaults a method makes sure that no client
        uses its own mean and std instead.
        """
        return {}

    @classmethod
    def for_server_data(cls) -> dict[str, Any]:
        """Defaults of options for runs whose server has samples of its own."""
        return {}

    def check_for_federation(self) -> None:
        """Raise a FedloomError for options that only a simulation can carry out."""

    @classmethod
    def for_data(
        cls,
        given: Mapping[str, Any],
        kind: str | None,
        shape: tuple[int, ...],
    ) -> dict[str, Any]:
        """Defaults of options for samples of this kind and shape.

        `given` are the options that the run names; `kind` is None while the kind of the samples is
        not known yet.
        """
        return {}

    @classmethod
    def run_named(cls, given: Mapping[str, Any]) -> str | None:
        """The finished run, or the file, whose networks a run with these options trains.

        Such a run has the tiers, the split and the budget of the run that it names. None: the
        options name no run.
        """
        return None

    @property
    def pooled_share(self) -> float | None:
        """The share of each client's training samples that a simulation's server gets at the end.

        None: it gets no samples. In a real federation this is impossible.
        """
        return None

    @classmethod
    def fields_beside(cls, given: Mapping[str, Any]) -> dict[str, FieldInfo]:
        """The fields that may be given together with these: a choice may add further options."""
        return dict(cls.model_fields)

    @classmethod
    def check_place(cls, name: str, given: Mapping[str, Any]) -> None:
        """Refuse an option that exists only together with another choice than the given one."""

    @classmethod
    def without_ignored(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A run's options without those that the version that wrote them ignored."""
        return dict(raw)


def as_list(value: Any) -> Any:
    """The value of a list option: given as a list, one number, `a,b`, or `a/b` in a variant."""
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, str):
        return value.replace("/", ",").split(",")
    return value


@dataclass(frozen=True)
class Absent:
    """The value that an option has in runs made before the option existed.

    It is an annotation of the option's field. TOML cannot represent None, so an option that may be
    None must mean None where it is absent.
    """

    value: Any


def as_before(schema: type[BaseModel], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A run's options, completed by the `Absent` values of options that were added later.

    An option that existed from the beginning has no `Absent`: where it is missing, its default
    applies.
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
    """Options as a person gave them, and the current value of every option that was added later.

    A file then has only what was given, and the absence of a later option still means that an
    earlier version wrote the file.
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
    """The schema of a field that is itself a section of options, optional sections included.

    None: the field is a single option.
    """
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def may_be_filled(field: FieldInfo, value: Any) -> bool:
    """Whether a section is present in the file, or always exists by default.

    A value that is not a table is left for the schema to refuse.
    """
    if value is None:
        return isinstance(field.default, BaseModel)
    return isinstance(value, Mapping)

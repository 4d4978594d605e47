"""The base of the types that describe the JSON files of runs and comparisons.

It defines how they are checked, and how they become JSON again. A field that was added by a later
version is absent from an older file, has its default here, and stays absent when the record is
written again. An unknown field, from a version newer than this one, is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import PydanticCustomError

from fedloom.metrics.metric import METRICS, Metric
from fedloom.reading import Unreadable
from fedloom.records.mistakes import first_mistake
from fedloom.types import Json


def two_ends(interval: list[float]) -> list[float]:
    if len(interval) != 2:
        raise PydanticCustomError("interval", "Input should be two numbers")
    return interval


LARGEST_COUNT = 10**30  # no run can reach a larger number
LARGEST_FIGURE = 1e100  # larger numbers in a reply are left out when it arrives
Count = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
FINITE = Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE, allow_inf_nan=False)
Figure = Annotated[float, Strict(), FINITE]
Seconds = Annotated[float, Strict(), Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]
Interval = Annotated[list[Figure], AfterValidator(two_ends)]


class Record(BaseModel):
    """A JSON object of a known shape. It is immutable; `replace` returns a changed copy."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, defer_build=True)

    def given_fields(self) -> dict[str, Any]:
        """The fields that were given, in their order, then unknown fields of a later version."""
        fields = {}
        for name in type(self).model_fields:
            if name in self.model_fields_set:
                fields[name] = getattr(self, name)
        return {**fields, **(self.model_extra or {})}

    def to_json(self) -> dict[str, Json]:
        return {name: plain_of(value) for name, value in self.given_fields().items()}

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; it is not checked again."""
        return self.model_copy(update=changes)

    @classmethod
    def checked(cls, fields: Json, names: Mapping[str, str], within: str | None = None) -> Self:
        """Check the fields and make a record of them. Raises Unreadable.

        `names` has the names in the file of fields that have another name here, or "" for those
        that the file does not have. `within` is the record's place in the file.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise Unreadable(as_in_the_file(first_mistake(error, within), names)) from None


def as_in_the_file(mistake: str, names: Mapping[str, str]) -> str:
    """The same sentence, in which the quoted place has the names of the file."""
    before, place, after = mistake.split("`", 2)
    parts = []
    for part in place.split("."):
        name = names.get(part, part)
        if name:
            parts.append(name)
    return f"{before}`{'.'.join(parts)}`{after}"


def object_in(raw: Json, subject: str) -> dict[str, Json]:
    """The same value, if it is an object. Otherwise raises Unreadable, about this subject."""
    if not isinstance(raw, dict):
        raise Unreadable(f"{subject} is not an object of JSON")
    return raw


def renamed(names: Mapping[str, str], raw: Mapping[str, Json]) -> dict[str, Json]:
    """The values of the file under our names of the fields.

    A field of the file that happens to have one of our names is left out.
    """
    fields = {}
    for name, value in raw.items():
        if name in names:
            fields[names[name]] = value
        elif name not in names.values():
            fields[name] = value
    return fields


def metric_in(raw: Mapping[str, Json], where: str = "") -> Metric:
    """The metric of the figures in an object. Raises Unreadable if this version lacks it."""
    name = raw.get("metric")
    if not isinstance(name, str) or name not in METRICS:
        names = ", ".join(METRICS)
        raise Unreadable(f"`{where}metric` should be one of {names}")
    return METRICS[name]


def plain_of(value: Any) -> Json:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, list):
        return [plain_of(item) for item in value]
    if isinstance(value, dict):
        return {name: plain_of(item) for name, item in value.items()}
    return value

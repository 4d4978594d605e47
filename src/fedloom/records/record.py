"""What the types of a run's and a comparison's JSON files have in common.

It is how they are checked, and how they become JSON again. A field that came with a later version
is absent from an older file, has its default here, and stays absent when the record is written
again. A field of a version yet to come is kept as it is.
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


LARGEST_COUNT = 10**30  # beyond it no run could have come
LARGEST_FIGURE = 1e100  # larger numbers in a reply are left out when it arrives
Count = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
FINITE = Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE, allow_inf_nan=False)
Figure = Annotated[float, Strict(), FINITE]
Seconds = Annotated[float, Strict(), Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]
Interval = Annotated[list[Figure], AfterValidator(two_ends)]


class Record(BaseModel):
    """A JSON object of a known shape. It cannot be changed, and `replace` gives a changed copy."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, defer_build=True)

    def given(self) -> dict[str, Any]:
        """The fields that were given, in their order, then what a later version added."""
        fields = {}
        for name in type(self).model_fields:
            if name in self.model_fields_set:
                fields[name] = getattr(self, name)
        return {**fields, **(self.model_extra or {})}

    def to_json(self) -> dict[str, Json]:
        return {name: plain_of(value) for name, value in self.given().items()}

    def replace(self, **changes: Any) -> Self:
        """A copy in which some fields are others; it is not checked again."""
        return self.model_copy(update=changes)

    @classmethod
    def checked(cls, fields: Json, names: Mapping[str, str], within: str | None = None) -> Self:
        """Raises Unreadable.

        `names`: what the file calls a field that has another name here ("": nothing at all).
        `within`: where in the file it stands.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise Unreadable(as_in_the_file(first_mistake(error, within), names)) from None


def as_in_the_file(mistake: str, names: Mapping[str, str]) -> str:
    """The same sentence, with the place that it quotes in the file's own names."""
    before, place, after = mistake.split("`", 2)
    parts = []
    for part in place.split("."):
        name = names.get(part, part)
        if name:
            parts.append(name)
    return f"{before}`{'.'.join(parts)}`{after}"


def object_in(raw: Json, what: str) -> dict[str, Json]:
    """Raises Unreadable where there is something else than an object."""
    if not isinstance(raw, dict):
        raise Unreadable(f"{what} is not an object of JSON")
    return raw


def renamed(names: Mapping[str, str], raw: Mapping[str, Json]) -> dict[str, Json]:
    """By our names of the fields.

    A name in the file that only looks like one of ours is left out.
    """
    fields = {}
    for name, value in raw.items():
        if name in names:
            fields[names[name]] = value
        elif name not in names.values():
            fields[name] = value
    return fields


def metric_in(raw: Mapping[str, Json], where: str = "") -> Metric:
    """What the figures beside it are of. Raises Unreadable where this version does not know it."""
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

"""A space's own parameters, as its schema declares them and as its name contains them.

A space declares them as methods declare their options, and has an attribute for each:

    class Lengths(Options):
        depth: int = Field(3, description="layers of the chain")

    class Chain(Space):
        schema = Lengths

They are given next to a method's options (`--depth 4`) or in the space's name, in the order of the
schema: `chain:4`. The last `optional_in_name` of them may be left out there. An architecture stores
only the space's name with these parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fedloom.errors import FedloomError, shortened
from fedloom.options import Options
from fedloom.spaces.asking import shown

if TYPE_CHECKING:
    from fedloom.spaces.space import Space


def values_of(space: Space) -> dict[str, Any]:
    """Returns a space's parameters by name."""
    return {name: getattr(space, name) for name in space.schema.model_fields}


def parameters_in(family: type[Space], text: str) -> Options:
    """Reads the parameters that follow a space's name: `s2:4` in `darts:s2:4`."""
    names = list(family.schema.model_fields)
    if text and not names:
        name = shown(family.family)
        rule = f"the space {name} must be named without parameters"
        raise FedloomError(rule, f"got {shortened(repr(text), 80)}", f"use {name}")
    values = text.split(":") if text else []
    least = len(names) - family.optional_in_name
    if not least <= len(values) <= len(names):
        raise misnamed(family, text)
    values_by_name = dict(zip(names, values, strict=False))  # those left out get their defaults
    try:
        return family.schema.model_validate(values_by_name)
    except ValidationError as error:
        raise misnamed(family, text, error) from None


def misnamed(family: type[Space], text: str, error: ValidationError | None = None) -> FedloomError:
    name = shown(family.family)
    rule = f"the space {name} must look like {pattern_of(family)}"
    if error is not None:
        mistake = error.errors(include_url=False)[0]
        parameter = str(mistake["loc"][0]).upper()
        values = mistake["msg"].removeprefix("Input should be ").partition(", unable to parse")[0]
        rule = f"{parameter} in {pattern_of(family)} must be {values}"
    if text:
        name = f"{name}:{text}"
    return FedloomError(rule, f"got {shortened(name, 80)}", "see `fedloom list spaces`")


def pattern_of(family: type[Space]) -> str:
    """Returns the pattern of a space's name with its parameters: `darts:OPS:NODES`.

    Optional parameters are in brackets: `stacks:BASE_CELLS:PERSONAL_CELLS:NODES[:NODE]`.
    """
    pattern = shown(family.family)
    least = len(family.schema.model_fields) - family.optional_in_name
    for number, parameter in enumerate(family.schema.model_fields):
        if number < least:
            pattern += f":{parameter.upper()}"
        else:
            pattern += f"[:{parameter.upper()}]"
    return pattern

"""`--small`: every search at a size that two cores finish in minutes.

A method's defaults are its paper's, which are for GPUs and days. What a user gives stays as it is;
what is smaller already, too. A method that searches nothing is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.config.variants import Variant
from fedloom.methods import recipe
from fedloom.runs.configure import parse_variant
from fedloom.spaces import FEW_OPERATIONS, SMALL_SEARCH
from fedloom.spaces.options import SpaceChoice


def small_options(method: str, given: Mapping[str, Any]) -> dict[str, int | str]:
    """What makes a variant's search small, beside the options that are given to it."""
    name, fixed_options = parse_variant(method)
    schema = recipe(name).options
    if not issubclass(schema, SpaceChoice):
        return {}
    known = {**given, **fixed_options}
    options: dict[str, int | str] = {}
    fields = schema.fields_beside(known)
    for option, most in SMALL_SEARCH.items():
        if option not in fields or option in known:
            continue
        usual = fields[option].default
        if usual is None or (isinstance(usual, int) and usual > most):
            options[option] = most
    for (beside, option), few in FEW_OPERATIONS.items():
        has_both = beside in fields and option in fields
        if has_both and option not in known and fields[option].default != few:
            options[option] = few
    return options


def small_variant(method: str, given: Mapping[str, Any]) -> str:
    """The variant that is meant."""
    options = small_options(method, given)
    if not options:
        return method
    variant = Variant.parse(method)
    parts = [f"{name}={value}" for name, value in options.items()]
    return f"{variant.name}:{','.join([*variant.parts, *parts])}"


def about_small(method: str, given: Mapping[str, Any]) -> str:
    """What became of a variant, in a sentence."""
    options = small_options(method, given)
    if not options:
        return f"--small changes nothing of {method}: it has no search that could be smaller"
    sizes = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"--small: {method} searches with {sizes}"

"""`--small`: shrinks every search to a size that two cores finish in minutes.

A method's defaults are those of its paper, which ran on GPUs for days. Options that the user gives
stay as they are, and so do defaults that are smaller already. A method without a search is not
changed.
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
    """The options that make a variant's search small, besides those that it is given."""
    name, fixed_options = parse_variant(method)
    schema = recipe(name).options
    if not issubclass(schema, SpaceChoice):
        return {}
    user_options = {**given, **fixed_options}
    options: dict[str, int | str] = {}
    fields = schema.fields_beside(user_options)
    for option, most in SMALL_SEARCH.items():
        if option not in fields or option in user_options:
            continue
        default = fields[option].default
        if default is None or (isinstance(default, int) and default > most):
            options[option] = most
    for (companion, option), few in FEW_OPERATIONS.items():
        has_both = companion in fields and option in fields
        if has_both and option not in user_options and fields[option].default != few:
            options[option] = few
    return options


def small_variant(method: str, given: Mapping[str, Any]) -> str:
    """The variant with the options that make its search small."""
    options = small_options(method, given)
    if not options:
        return method
    variant = Variant.parse(method)
    parts = [f"{name}={value}" for name, value in options.items()]
    return f"{variant.name}:{','.join([*variant.parts, *parts])}"


def about_small(method: str, given: Mapping[str, Any]) -> str:
    """A sentence that tells users how --small changes a variant."""
    options = small_options(method, given)
    if not options:
        return f"--small has no effect on {method}: it has no search that could be smaller"
    sizes = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"--small: {method} searches with {sizes}"

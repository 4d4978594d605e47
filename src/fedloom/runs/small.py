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
from fedloom.spaces.options import SpaceChoice

# The most of each option that says how large a search is, of a method or of its space.
MOST: Mapping[str, int] = {
    "cells": 3,  # of a network
    "channels": 8,
    "nodes": 2,  # of a cell
    "group": 2,  # cells that are searched apart
    "stack": 2,  # times that a group is repeated
    "models": 100,  # paths that are scored, a tier
}


def small_options(method: str, given: Mapping[str, Any]) -> dict[str, int]:
    """What makes a variant's search small, beside the options that are given to it."""
    name, fixed_options = parse_variant(method)
    schema = recipe(name).options
    if not issubclass(schema, SpaceChoice):
        return {}
    known = {**given, **fixed_options}
    options = {}
    for option, declared in schema.fields_beside(known).items():
        if option not in MOST or option in known:
            continue
        usual = declared.default
        if usual is None or (isinstance(usual, int) and usual > MOST[option]):
            options[option] = MOST[option]
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

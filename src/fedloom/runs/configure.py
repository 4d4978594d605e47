"""From a method's name, flags and files to a checked configuration.

This module has the steps that need the method itself; the others are in `fedloom.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedloom.config.assigning import assign, plain
from fedloom.config.flags import PATHS
from fedloom.config.models import Experiment, validated
from fedloom.config.variants import Variant
from fedloom.errors import FedloomError, unknown
from fedloom.methods import recipe
from fedloom.networks import NETWORKS
from fedloom.options import as_before
from fedloom.records.folder import RunFolder
from fedloom.registry import SPACE, absolute
from fedloom.spaces import full_name


def configure(method: str, tree: Mapping[str, Any]) -> Experiment:
    """A checked configuration of `method`, which may be a variant NAME:key=value,…"""
    name, options = parse_variant(method)
    config: Experiment = validated(Experiment, {**tree, "method": name})
    return config.model_copy(update={"options": {**config.options, **options}})


def split_flags(method: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Turn keywords of the Python API into a configuration.

    Common flags go to their section; all others are the method's options.
    """
    tree: dict[str, Any] = {}
    name_of_method, fixed_options = parse_variant(method)
    schema = recipe(name_of_method).options
    given = {**flags, **fixed_options}
    method_options = schema.fields_beside(given)
    for name, value in flags.items():
        if name not in PATHS and name not in method_options:
            schema.check_place(name, given)
            raise unknown(f"a keyword of {method}", name, [*PATHS, *method_options])
        assign(tree, PATHS.get(name, f"options.{name}"), plain(value))
    return tree


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A variant's name and its options; a bare word sets the method's short option."""
    variant = Variant.parse(text)
    options: dict[str, Any] = {}
    for part in variant.parts:
        key, equals, value = part.partition("=")
        if equals:
            options[key] = value
        else:
            options[short_option(variant.name, part)] = part
    return variant.name, options


def short_option(name: str, word: str) -> str:
    short = recipe(name).short
    if short is None:
        rule = f"a variant of {name} must look like key=value"
        raise FedloomError(rule, f"got {word!r}", f"try {name}:lr=0.1")
    return short


def resolve_options(method: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a method's options, fill in the defaults, and make paths absolute."""
    checked = validated(recipe(method).options, raw, prefix="options.")
    options: dict[str, Any] = checked.model_dump(mode="json", exclude_none=True)
    if isinstance(options.get("network"), str):
        options["network"] = full_network_name(options["network"])
        NETWORKS.get(options["network"])
    return options


def full_network_name(name: str) -> str:
    """The network's name with absolute paths, or with a space's definition in place of its file."""
    name = absolute(name)
    if name.startswith(SPACE):  # what a TOML file defines becomes part of the name
        return f"{SPACE}{full_name(name.removeprefix(SPACE))}"
    return name


def config_of(folder: RunFolder) -> Experiment:
    """The configuration that a run was started with, including the method's own options.

    An option that is newer than the run gets the value that means what the run did. If the
    method's file is gone, its options stay as they are: not every reader of a run needs the method.
    """
    config = folder.config()
    try:
        schema = recipe(config.method).options
    except FedloomError:
        return config
    return config.model_copy(update={"options": as_before(schema, config.options)})

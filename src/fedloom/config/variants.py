"""Methods as a person writes them: `NAME`, `file.py:Name`, either with `:key=value,…`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fedloom.config.flags import PATHS
from fedloom.config.models import Experiment, assign, plain, validated
from fedloom.errors import FedloomError, unknown
from fedloom.methods import recipe
from fedloom.registry import absolute


def configure(method: str, tree: Mapping[str, Any]) -> Experiment:
    """A checked configuration of `method`, which may be a variant NAME:key=value,…"""
    name, options = parse_variant(method)
    config: Experiment = validated(Experiment, {**tree, "method": name})
    return config.model_copy(update={"options": {**config.options, **options}})


def split_flags(method: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords into the configuration: common flags to their place, the rest are the method's options."""
    tree: dict[str, Any] = {}
    own = recipe(parse_variant(method)[0]).options.model_fields
    for name, value in flags.items():
        if name not in PATHS and name not in own:
            raise unknown(f"a keyword of {method}", name, [*PATHS, *own])
        assign(tree, PATHS.get(name, f"options.{name}"), plain(value))
    return tree


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """`NAME`, `file.py:Name`, either with `:key=value,…`; a bare word sets the method's short option."""
    match = re.fullmatch(r"([^:]*\.py:[^:]+|[^:]+)(?::(.*))?", text)
    if match is None:
        raise FedloomError(
            "a method must look like NAME or NAME:key=value", f"got {text!r}", "see `fedloom list methods`"
        )
    name, rest = match.groups()
    options = {}
    for part in (rest or "").split(","):
        key, equals, value = part.partition("=")
        if equals:
            options[key] = value
        elif key:
            options[short_option(name, key)] = key
    return name, options


def found_anywhere(variant: str) -> str:
    """The same variant with full paths to its files, whatever folder one resumes from."""
    name, _ = parse_variant(variant)
    rest = [absolute_option(part) for part in variant[len(name) + 1 :].split(",") if part]
    return ":".join([absolute(name), *([",".join(rest)] if rest else [])])


def absolute_option(part: str) -> str:
    key, equals, value = part.partition("=")
    return f"{key}={absolute(value)}" if equals else part


def short_option(name: str, word: str) -> str:
    short = recipe(name).short
    if short is None:
        raise FedloomError(f"a variant of {name} must look like key=value", f"got {word!r}", f"try {name}:lr=0.1")
    return short

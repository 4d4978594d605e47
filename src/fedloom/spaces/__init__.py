"""What can be chosen: search spaces, by name or from a file.

A file is named as `path/file.py:Name`; an installed package has an entry point `fedloom.spaces`.

A space is one folder (space.py: what can be chosen and its parameters, net.py: its supernet,
cost.py: what that costs, draw.py: how it looks) and one line here. Everything else asks the space.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.errors import FedloomError, shortened
from fedloom.options import Options
from fedloom.registry import Registry, absolute, is_file
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.space import Space

if TYPE_CHECKING:
    from fedloom.spaces.options import SpaceChoice, SpaceOptions


def is_space(value: object) -> bool:
    """Whether a class answers every question of a space."""
    return inspect.isclass(value) and issubclass(value, Space) and not inspect.isabstract(value)


SPACES = Registry(
    "search space",
    "fedloom.spaces",
    {
        "darts": "fedloom.spaces.cells:DartsCells",
        "group": "fedloom.spaces.groups:CellGroup",
        "nasbench201": "fedloom.spaces.nasbench201:NasBench201Cells",
        "stacks": "fedloom.spaces.stacks:Stacks",
        "cnn-l": "fedloom.spaces.chains:CnnL",
        "cnn-s": "fedloom.spaces.chains:CnnS",
        "cnn-tiny": "fedloom.spaces.chains:CnnTiny",
        "rnn": "fedloom.spaces.chains:Rnn",
        "map-chain": "fedloom.spaces.chains:MapChain",
        "text-chain": "fedloom.spaces.chains:SequenceChain",
    },
    fits=is_space,
)
DEFAULT = "darts"
LARGEST = "darts:full:4"  # what a device profile is measured for, if nobody says
SPARSE = "darts:s2:4"  # two operations an edge
SMALL = "darts:s2:2"  # the same in small cells: what the demo searches
# The most of each option that says how large a search is, of a method or of its space, for --small.
SMALL_SEARCH = {
    "cells": 3,  # of a network
    "channels": 8,
    "nodes": 2,  # of a cell
    "group": 2,  # cells that are searched apart
    "stack": 2,  # times that a group is repeated
    "models": 100,  # paths that are scored, a tier
}
# Two operations an edge, the same, of spaces that have both options.
FEW_OPERATIONS = {("cells", "ops"): "s2"}
GROUP = "group:full:4:4"  # cells with edges of their own, a group that is repeated
STACKS = "stacks:3:1:2"  # a shared base and a personal part
# Who makes a space's name of a file without code: the name holds what the file says.
DEFINITIONS = {".toml": "fedloom.spaces.chains:name_in_file"}
_OPENED: set[str] = set()  # spaces in files that this process was asked for by name


def open_family(name: str) -> type[Space]:
    """The class registered under a name, or in a file that the user named: its code is run."""
    reference = absolute(name)
    family = checked_class(reference, SPACES.get(reference))
    _OPENED.add(reference)
    return family


def space_of(name: str) -> Space:
    """The space that an architecture names.

    A name is `darts:s2:4`, `nasbench201` or `/path/file.py:Name:parameters`.

    The name may come from a file or a message, so it never makes this process run a file that
    nobody asked for.
    """
    family, _ = split_name(name)
    if is_file(family) and family not in _OPENED:
        rule = "a space in a file must be named by the run's own option `space`"
        found = f"an architecture names {shortened(family, 80)}"
        raise FedloomError(rule, found, "install it as an entry point")
    return open_space(name)


def full_name(name: str) -> str:
    """A name that leads to the same space everywhere: a TOML file's is what the file defines."""
    reader = DEFINITIONS.get(Path(name).suffix)
    if reader is None:
        return name
    module, attribute = reader.split(":")
    defined: str = getattr(import_module(module), attribute)(Path(name))
    return defined


def usual_space(kind: str, shape: tuple[int, ...]) -> str:
    """The space for this kind and shape of data, where the user says `auto`."""
    for name in SPACES.builtin:
        if open_family(name).suits(kind, shape):
            return name
    rule = "data must be of a kind that a search space is made for"
    raise FedloomError(rule, f"it is of kind {shortened(kind, 40)}", "name a space of your own")


def open_space(name: str) -> Space:
    """A space that the user names with its parameters, maybe in a file."""
    name = full_name(name)
    family, parameters = split_name(name)
    space_class = open_family(family)
    try:
        space = space_class.named(parameters)
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        rule = f"the search space {shown(family)} must be named with parameters that it knows"
        found = f"of {shortened(repr(parameters), 80)} it says: {shortened(str(error), 120)}"
        raise FedloomError(rule, found, "see what it says of itself, or its file") from error
    return checked_space(family, "named", space)


def space_for(options: SpaceOptions) -> Space:
    """The space that a method's options ask for, together with a size."""
    space = chosen_space(options)
    check_own_size(space, options)
    return space


def chosen_space(options: SpaceChoice) -> Space:
    """The space that a method's options name."""
    family, parameters = split_name(options.space)
    if parameters:  # of a space that declares none, and reads its name itself
        return open_space(options.space)
    return configured_space(open_family(family), options.parameters)


def configured_space(family: type[Space], parameters: Options) -> Space:
    """A space with parameters that its schema has checked."""
    name = family.family
    space = asked(name, "be made of its parameters", lambda: family.configured(parameters))
    return checked_space(name, "configured", space)


def check_own_size(space: Space, options: SpaceOptions) -> None:
    """Refuses a size for a space that has one of its own."""
    if not space.has_own_size:
        return
    for name in ("cells", "channels"):
        value = getattr(options, name)
        if value != type(options).model_fields[name].default:
            rule = f"the space {space.title} must be as large as it is defined"
            advice = f"leave {name} out, or define a space of your own in TOML"
            raise FedloomError(rule, f"got {name}={value}", advice)


def checked_space(family: str, question: str, answer: object) -> Space:
    if not isinstance(answer, Space):
        rule = f"`{question}` of search space {shown(family)} must return a space"
        raise FedloomError(rule, f"it returned {shortened(repr(answer), 80)}", "mend it")
    return answer


def family_in(name: str) -> type[Space]:
    """The class of a space that the user names, with its parameters or without."""
    family, _ = split_name(name)
    return open_family(family)


def split_name(name: str) -> tuple[str, str]:
    """A space's name as its family and the parameters behind it."""
    path, in_file, rest = name.partition(".py:")
    if in_file:
        attribute, _, parameters = rest.partition(":")
        return f"{path}.py:{attribute}", parameters
    family, _, parameters = name.partition(":")
    return family, parameters


def is_foreign(name: str) -> bool:
    """Whether a space that is named, with its parameters or without, is none of ours."""
    family, _ = split_name(name)
    return family not in SPACES.builtin


@cache
def checked_class(name: str, registered: object) -> type[Space]:
    """A space's class under the name it was asked for by, so that its architectures can name it."""
    if not (inspect.isclass(registered) and issubclass(registered, Space)):
        rule = f"search space {shown(name)} must be a class that subclasses fedloom.spaces.Space"
        raise FedloomError(
            rule,
            f"it is {shortened(repr(registered), 80)}",
            "see docs/add-a-space.md",
        )
    if not (inspect.isclass(registered.schema) and issubclass(registered.schema, Options)):
        rule = f"`schema` of search space {shown(name)} must subclass fedloom.options.Options"
        found = f"it is {shortened(repr(registered.schema), 80)}"
        raise FedloomError(rule, found, "see docs/add-a-space.md")
    missing = sorted(registered.__abstractmethods__)
    if missing:
        rule = f"search space {shown(name)} must answer every question of fedloom.spaces.Space"
        raise FedloomError(rule, f"it has no {missing[0]}", "see docs/add-a-space.md")
    if registered.family == name:
        return registered
    about = {"family": name, "__doc__": registered.__doc__}
    return type(registered.__name__, (registered,), about)

"""Search spaces, opened by name or from a file.

A space in a file is named `path/file.py:Name`. An installed package registers its spaces under the
entry point `fedloom.spaces`.

A built-in space is one folder (space.py: its slots and parameters, net.py: its supernet, cost.py:
cost formulas, draw.py: its drawing) and one line in `SPACES`. All other code asks the space.
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
    """Whether a value is a class that implements every abstract method of `Space`."""
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
LARGEST = "darts:full:4"  # a device profile is measured for this space by default
SPARSE = "darts:s2:4"  # two operations per edge
SMALL = "darts:s2:2"  # two operations per edge and smaller cells: the demo's space
# With --small, no option that sets the size of a search exceeds these values. The options are those
# of the method or of its space.
SMALL_SEARCH = {
    "cells": 3,  # per network
    "channels": 8,
    "nodes": 2,  # per cell
    "group": 2,  # cells that are searched separately
    "stack": 2,  # repetitions of the group
    "models": 100,  # paths scored per tier
}
# --small also leaves two operations per edge, in spaces that have both of these options.
FEW_OPERATIONS = {("cells", "ops"): "s2"}
GROUP = "group:full:4:4"  # a repeated group of cells, each with its own edges
STACKS = "stacks:3:1:2"  # a shared base and a personal part
# For files without code: the function that turns the file into a space's name. The name holds the
# whole definition.
DEFINITIONS = {".toml": "fedloom.spaces.chains:name_in_file"}
_OPENED: set[str] = set()  # the spaces in files that the user of this process has named


def open_family(name: str) -> type[Space]:
    """Returns the class of a space, registered or in a file that the user named.

    The code of such a file is run.
    """
    reference = absolute(name)
    family = checked_class(reference, SPACES.get(reference))
    _OPENED.add(reference)
    return family


def space_of(name: str) -> Space:
    """Returns the space that an architecture names.

    Names look like `darts:s2:4`, `nasbench201` or `/path/file.py:Name:parameters`.

    The name may come from a file or a message, so it never makes this process run a Python file
    that its user has not named.
    """
    family, _ = split_name(name)
    if is_file(family) and family not in _OPENED:
        rule = "a space in a file must be named by the run's own option `space`"
        problem = f"an architecture names {shortened(family, 80)}"
        raise FedloomError(rule, problem, "install it as an entry point")
    return open_space(name)


def full_name(name: str) -> str:
    """Returns a name that stands for the same space on every machine.

    The full name of a space in a TOML file holds the file's definition.
    """
    reader = DEFINITIONS.get(Path(name).suffix)
    if reader is None:
        return name
    module, attribute = reader.split(":")
    definition: str = getattr(import_module(module), attribute)(Path(name))
    return definition


def usual_space(kind: str, shape: tuple[int, ...]) -> str:
    """Returns the name of the space that `auto` means for this kind and shape of data."""
    for name in SPACES.builtin:
        if open_family(name).suits(kind, shape):
            return name
    rule = "data must be of a kind that a built-in search space supports"
    raise FedloomError(rule, f"it is of kind {shortened(kind, 40)}", "name a space for it yourself")


def open_space(name: str) -> Space:
    """Opens a space that the user names with its parameters; it may be in a file."""
    name = full_name(name)
    family, parameters = split_name(name)
    space_class = open_family(family)
    try:
        space = space_class.named(parameters)
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        rule = f"the search space {shown(family)} must be named with parameters that it knows"
        message = shortened(str(error), 120)
        problem = f"for {shortened(repr(parameters), 80)} it raised: {message}"
        raise FedloomError(rule, problem, "see its documentation or its file") from error
    return checked_space(family, "named", space)


def space_for(options: SpaceOptions) -> Space:
    """Returns the space that a method's options name, after checking the size they ask for."""
    space = chosen_space(options)
    check_own_size(space, options)
    return space


def chosen_space(options: SpaceChoice) -> Space:
    """The space that a method's options name."""
    family, parameters = split_name(options.space)
    if parameters:  # the space declares no parameters and reads its name itself
        return open_space(options.space)
    return configured_space(open_family(family), options.parameters)


def configured_space(family: type[Space], parameters: Options) -> Space:
    """Builds a space from parameters that its schema has validated."""
    name = family.family
    space = asked(name, "accept its own parameters", lambda: family.configured(parameters))
    return checked_space(name, "configured", space)


def check_own_size(space: Space, options: SpaceOptions) -> None:
    """Refuses `cells` and `channels` for a space whose definition fixes its size."""
    if not space.has_own_size:
        return
    for name in ("cells", "channels"):
        value = getattr(options, name)
        if value != type(options).model_fields[name].default:
            rule = f"the space {space.title} must be as large as it is defined"
            advice = f"leave {name} out, or define your own space in TOML"
            raise FedloomError(rule, f"got {name}={value}", advice)


def checked_space(family: str, method: str, answer: object) -> Space:
    if not isinstance(answer, Space):
        rule = f"`{method}` of search space {shown(family)} must return a space"
        raise FedloomError(rule, f"it returned {shortened(repr(answer), 80)}", "fix it")
    return answer


def family_in(name: str) -> type[Space]:
    """Returns the class of a space that the user names, with or without its parameters."""
    family, _ = split_name(name)
    return open_family(family)


def split_name(name: str) -> tuple[str, str]:
    """Splits a space's name into its family and the parameters that follow it."""
    path, in_file, attribute_and_parameters = name.partition(".py:")
    if in_file:
        attribute, _, parameters = attribute_and_parameters.partition(":")
        return f"{path}.py:{attribute}", parameters
    family, _, parameters = name.partition(":")
    return family, parameters


def is_foreign(name: str) -> bool:
    """Whether the space of this name, with or without its parameters, is not built in."""
    family, _ = split_name(name)
    return family not in SPACES.builtin


@cache
def checked_class(name: str, registered: object) -> type[Space]:
    """Checks a space's class, and sets its `family` to the name that it was opened by.

    The architectures of the space then carry that name.
    """
    if not (inspect.isclass(registered) and issubclass(registered, Space)):
        rule = f"search space {shown(name)} must be a class that subclasses fedloom.spaces.Space"
        raise FedloomError(
            rule,
            f"it is {shortened(repr(registered), 80)}",
            "see docs/add-a-space.md",
        )
    if not (inspect.isclass(registered.schema) and issubclass(registered.schema, Options)):
        rule = f"`schema` of search space {shown(name)} must subclass fedloom.options.Options"
        problem = f"it is {shortened(repr(registered.schema), 80)}"
        raise FedloomError(rule, problem, "see docs/add-a-space.md")
    missing = sorted(registered.__abstractmethods__)
    if missing:
        rule = f"search space {shown(name)} must implement every method of fedloom.spaces.Space"
        raise FedloomError(rule, f"it has no {missing[0]}", "see docs/add-a-space.md")
    if registered.family == name:
        return registered
    attributes = {"family": name, "__doc__": registered.__doc__}
    return type(registered.__name__, (registered,), attributes)

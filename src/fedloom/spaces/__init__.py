"""What can be chosen: search spaces, by name or from a file.

A file is named as `path/file.py:Name`; an installed package has an entry point `fedloom.spaces`.

A space is one folder (space.py: what can be chosen, net.py: its supernet, cost.py: what that costs,
draw.py: how it looks) and one line here. Everything else asks the space.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING

from fedloom.errors import FedloomError, shortened
from fedloom.registry import Registry, absolute, is_file
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.space import Space

if TYPE_CHECKING:
    from fedloom.spaces.options import SpaceOptions


def is_space(value: object) -> bool:
    """Whether a class answers every question of a space."""
    return inspect.isclass(value) and issubclass(value, Space) and not inspect.isabstract(value)


SPACES = Registry(
    "search space",
    "fedloom.spaces",
    {
        "darts": "fedloom.spaces.cells:DartsCells",
        "nasbench201": "fedloom.spaces.nasbench201:NasBench201Cells",
    },
    fits=is_space,
)
DEFAULT = "darts"
LARGEST = "darts:full:4"  # what a device profile is measured for, if nobody says
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


def open_space(name: str) -> Space:
    """A space that the user names with its parameters, maybe in a file."""
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
    """The space that a method's options ask for, or that they name with its parameters."""
    family, parameters = split_name(options.space)
    if parameters:
        return open_space(options.space)
    space_class = open_family(family)
    space = asked(options.space, "be made of the options", lambda: space_class.configured(options))
    return checked_space(options.space, "configured", space)


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
    missing = sorted(registered.__abstractmethods__)
    if missing:
        rule = f"search space {shown(name)} must answer every question of fedloom.spaces.Space"
        raise FedloomError(rule, f"it has no {missing[0]}", "see docs/add-a-space.md")
    if registered.family == name:
        return registered
    about = {"family": name, "__doc__": registered.__doc__}
    return type(registered.__name__, (registered,), about)

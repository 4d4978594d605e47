"""`fedloom data get|check|show`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from fedloom.commands.parsing import Commands, add_command, add_group, output_flags

MODULES = {
    "get": "fedloom.data.fetching.get",
    "check": "fedloom.data.fetching.check",
    "show": "fedloom.data.showing.show",
}


def add(commands: Commands, words: Sequence[str]) -> None:
    actions = add_group(commands, "data", "data sets: fetch one by name, verify its files, draw its split")
    about = "fetch a data set from its home; go on where an earlier call stopped"
    get = add_command(actions, "get", data_command, about)
    get.add_argument("name", metavar="NAME", help="see `fedloom list data`")
    get.add_argument("--dry-run", "--print", action="store_true", help="say what to fetch by hand and where to put it")
    about = "verify the files of a data set: there, whole, unchanged"
    check = add_command(actions, "check", data_command, about)
    check.add_argument("place", metavar="DIR|NAME")
    for added in (get, check):
        help_dir = "where data sets lie (default $FEDLOOM_DATA, or fedloom in your system's data folder)"
        added.add_argument("--data-dir", metavar="DIR", help=help_dir)
        output_flags(added)
    show = add_command(actions, "show", data_command, "draw how a data set is split among clients")
    if list(words[:2]) == ["data", "show"]:  # its flags are those of partitions, which take time to import
        from fedloom.data.showing.show import add_arguments

        add_arguments(show)


def data_command(options: argparse.Namespace) -> int:
    module = importlib.import_module(MODULES[options.action])
    code: int = getattr(module, options.action)(options)
    return code

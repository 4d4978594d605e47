"""`fedloom list`, `doctor` and `runs`: what there is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.commands.parsing import Commands, add_command
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.spaces.space import Space


def add(commands: Commands) -> None:
    listing = add_command(commands, "list", list_command, "what can be chosen by name")
    listing.add_argument("what", choices=["methods", "networks", "spaces", "data", "partitions", "augmentations"])
    add_command(commands, "doctor", doctor_command, "check that this machine is ready")
    runs = add_command(commands, "runs", runs_command, "list runs, or remove them")
    runs.add_argument("action", nargs="?", choices=["list", "remove"], default="list")
    runs.add_argument("path", nargs="*", metavar="RUN")


def list_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from fedloom.report.tables import names_table

    Console(markup=False).print(names_table(list(catalogue(options.what))))
    return 0


def catalogue(what: str) -> list[tuple[str, str]]:
    if what == "methods":
        load_torch()
        from fedloom.methods import METHODS, recipe

        return [row(name, lambda name: recipe(name).summary) for name in METHODS.names()]
    if what == "partitions":
        from fedloom.data.partition import catalogue as partitions

        return partitions()
    if what == "augmentations":
        load_torch()
        from fedloom.data.augmenting.augment import OPERATIONS

        return [(operation.example, operation.about) for _, operation in sorted(OPERATIONS.items())]
    if what == "spaces":
        from fedloom.spaces import SPACES, open_family

        return [row(name, lambda name: spaces_line(open_family(name))) for name in SPACES.names()]
    if what == "networks":
        load_torch()
        from fedloom.nets import NETWORKS

        return [row(name, lambda name: first_line(NETWORKS.get(name))) for name in NETWORKS.names()]
    from fedloom.data.fetching.places import availability
    from fedloom.data.sources import SOURCES

    def data_line(name: str) -> str:
        return f"{first_line(SOURCES.get(name))} {availability(name)}".strip()

    return [row(name, data_line) for name in SOURCES.names()]


def row(name: str, describe: Callable[[str], str]) -> tuple[str, str]:
    """A name and what it is; one that an installed package offers and that does not work says so in its place."""
    try:
        return name, describe(name)
    except FedloomError as error:
        return name, f"cannot be used: {error}"


def first_line(registered: object) -> str:
    """What a registered object says of itself."""
    lines = (registered.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""


def spaces_line(family: type[Space]) -> str:
    from fedloom.spaces.asking import asked

    kinds = asked(family.family, "say which kinds of data it is for", lambda: " and ".join(family.kinds))
    return f"{first_line(family)} For {kinds}."


def doctor_command(options: argparse.Namespace) -> int:
    from fedloom.commands.doctor import examine

    ready = True
    for finding in examine():
        print(f"{'ok  ' if finding.good else 'BAD '} {finding.name}: {finding.text}", flush=True)
        ready = ready and finding.good
    return 0 if ready else 1


def runs_command(options: argparse.Namespace) -> int:
    from fedloom.records.folder import RunFolder, all_runs

    if options.action == "remove":
        if not options.path:
            raise FedloomError("`fedloom runs remove` must be told which", "got no run", "name the folders")
        for folder in [RunFolder.open(Path(path), newer=True) for path in options.path]:
            folder.remove()
            print(f"removed {folder.path}")
        return 0
    from rich.console import Console

    from fedloom.report.tables import runs_table

    named = [RunFolder.open(Path(path)) for path in options.path]
    Console(markup=False).print(runs_table([folder.summary() for folder in named or all_runs()]))
    return 0

"""`fedloom list`, `doctor` and `runs`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.commands.parsing import Commands, add_command
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.spaces.space import Space

Row = tuple[str, str]  # a name and its description


def add(commands: Commands) -> None:
    listing = add_command(commands, "list", list_command, "list what can be chosen by name")
    listing.add_argument("what", choices=list(CATALOGUES))
    add_command(commands, "doctor", doctor_command, "check that this machine is ready")
    runs = add_command(commands, "runs", runs_command, "list runs, or remove them")
    runs.add_argument("action", nargs="?", choices=["list", "remove"], default="list")
    runs.add_argument("path", nargs="*", metavar="RUN")


def list_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from fedloom.report.tables import names_table

    Console(markup=False).print(names_table(CATALOGUES[options.what]()))
    return 0


def methods() -> list[Row]:
    load_torch()
    from fedloom.methods import METHODS, recipe

    return rows(METHODS.names(), lambda name: recipe(name).summary)


def networks() -> list[Row]:
    load_torch()
    from fedloom.networks import NETWORKS

    return rows(NETWORKS.names(), lambda name: first_line(NETWORKS.get(name)))


def spaces() -> list[Row]:
    from fedloom.spaces import SPACES, open_family

    return rows(SPACES.names(), lambda name: spaces_line(open_family(name)))


def data_sets() -> list[Row]:
    from fedloom.data.fetching.places import availability
    from fedloom.data.sources import SOURCES

    def describe(name: str) -> str:
        return f"{first_line(SOURCES.get(name))} {availability(name)}".strip()

    return rows(SOURCES.names(), describe)


def partitions() -> list[Row]:
    from fedloom.data.partition import catalogue

    return catalogue()


def augmentations() -> list[Row]:
    load_torch()
    from fedloom.data.augmenting.augment import OPERATIONS

    return [(operation.example, operation.about) for _, operation in sorted(OPERATIONS.items())]


CATALOGUES: dict[str, Callable[[], list[Row]]] = {
    "methods": methods,
    "networks": networks,
    "spaces": spaces,
    "data": data_sets,
    "partitions": partitions,
    "augmentations": augmentations,
}


def rows(names: Iterable[str], describe: Callable[[str], str]) -> list[Row]:
    """Every name with its description.

    If something that an installed package offers does not work, its description says so.
    """
    named = []
    for name in names:
        try:
            description = describe(name)
        except FedloomError as error:
            description = f"cannot be used: {error}"
        named.append((name, description))
    return named


def first_line(registered: object) -> str:
    """The first line of a registered object's docstring."""
    lines = (registered.__doc__ or "").strip().splitlines()
    if not lines:
        return ""
    return lines[0]


def spaces_line(family: type[Space]) -> str:
    from fedloom.spaces.asking import asked

    def kinds() -> str:
        return " and ".join(family.kinds)

    text = asked(family.family, "say which kinds of data it is for", kinds)
    return f"{first_line(family)} For {text}.{parameters_line(family)}"


def parameters_line(family: type[Space]) -> str:
    """A space's own parameters and their defaults, if it has any."""
    from fedloom.report.tables import default_of
    from fedloom.spaces.parameters import pattern_of

    parameters = []
    for name, field in family.schema.model_fields.items():
        parameters.append(f"{name} = {default_of(field)}, {field.description}")
    if not parameters:
        return ""
    places = f"as options or in the name, {pattern_of(family)}"
    return f" Parameters, {places}: {'; '.join(parameters)}."


def doctor_command(options: argparse.Namespace) -> int:
    from fedloom.commands.doctor import examine

    code = 0
    for finding in examine():
        verdict = "ok  "
        if not finding.good:
            verdict = "BAD "
            code = 1
        print(f"{verdict} {finding.name}: {finding.text}", flush=True)
    return code


def runs_command(options: argparse.Namespace) -> int:
    if options.action == "remove":
        remove_runs(options.path)
    else:
        list_runs(options.path)
    return 0


def remove_runs(paths: Sequence[str]) -> None:
    """Open all folders before removing the first, so that a wrong name removes nothing."""
    from fedloom.records.folder import RunFolder

    if not paths:
        rule = "`fedloom runs remove` must be given the runs to remove"
        raise FedloomError(rule, "got none", "name their folders")
    folders = [RunFolder.open(Path(path), newer=True) for path in paths]
    for folder in folders:
        folder.remove()
        print(f"removed {folder.path}")


def list_runs(paths: Sequence[str]) -> None:
    from rich.console import Console

    from fedloom.records.folder import RunFolder, all_runs
    from fedloom.report.tables import runs_table

    folders = [RunFolder.open(Path(path)) for path in paths]
    if not paths:
        folders = all_runs()
    summaries = [folder.summary() for folder in folders]
    Console(markup=False).print(runs_table(summaries))

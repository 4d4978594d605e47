"""`fedloom data get|check|show`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedloom.commands.parsing import Commands, add_command, add_group, output_flags


def add(commands: Commands, arguments: Sequence[str]) -> None:
    summary = "data sets: fetch one by name, verify its files, draw its split"
    actions = add_group(commands, "data", summary)
    summary = "fetch a data set from where it is published; continue where an earlier call stopped"
    get = add_command(actions, "get", get_command, summary)
    get.add_argument("name", metavar="NAME", help="see `fedloom list data`")
    help_dry = "print what to fetch by hand and where to put it"
    get.add_argument("--dry-run", "--print", action="store_true", help=help_dry)
    summary = "verify that the files of a data set are there, complete and unchanged"
    check = add_command(actions, "check", check_command, summary)
    check.add_argument("place", metavar="DIR|NAME")
    for added in (get, check):
        default = "$FEDLOOM_DATA, or fedloom in your system's data folder"
        help_dir = f"folder of the data sets (default {default})"
        added.add_argument("--data-dir", metavar="DIR", help=help_dir)
        output_flags(added)
    show = add_command(actions, "show", show_command, "draw how a data set is split among clients")
    if list(arguments[:2]) == ["data", "show"]:
        # its flags come from the partitions, which take time to import
        from fedloom.commands.data_show import add_arguments

        add_arguments(show)


def get_command(options: argparse.Namespace) -> int:
    from fedloom.data.fetching.catalogue import named
    from fedloom.data.fetching.fetch import Patience, Unfetched
    from fedloom.data.fetching.get import ManualDownload, command_to_get, obtain
    from fedloom.data.fetching.places import home
    from fedloom.data.fetching.screen import download_screen

    dataset = named(options.name)
    directory = home()
    if options.data_dir is not None:
        directory = Path(options.data_dir).expanduser()
    directory = directory.absolute()
    if options.dry_run:
        plan = ManualDownload(dataset, directory)
        text = json.dumps(plan.to_json()) if options.json else plan.in_words()
        print(text, file=options.stream)
        return 0
    try:
        with download_screen(quiet=options.quiet or options.json) as screen:
            outcome = obtain(dataset, directory, screen, Patience())
    except KeyboardInterrupt:
        command = command_to_get(dataset, directory)
        text = f"fedloom: what was downloaded is kept; `{command}` continues from there"
        print(text, file=sys.stderr)
        raise
    except Unfetched:
        print(ManualDownload(dataset, directory).in_words(), file=sys.stderr)
        raise
    text = json.dumps(outcome.to_json()) if options.json else outcome.sentence()
    print(text, file=options.stream)
    return 0


def check_command(options: argparse.Namespace) -> int:
    from fedloom.data.fetching.check import examine, table
    from fedloom.data.fetching.screen import download_screen

    with download_screen(quiet=options.quiet or options.json) as screen:
        reports = examine(options.place, options.data_dir, screen)
    is_bad = any(report.bad for report in reports)
    if options.json:
        data_sets = [report.to_json() for report in reports]
        print(json.dumps({"good": not is_bad, "sets": data_sets}), file=options.stream)
    else:
        for report in reports:
            table(report)
    return int(is_bad)


def show_command(options: argparse.Namespace) -> int:
    from fedloom.commands.data_show import show

    return show(options)

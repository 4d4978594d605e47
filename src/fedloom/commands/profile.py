"""`fedloom profile` and its `list`, `show` and `check`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import (
    Commands,
    Parser,
    add_command,
    number,
    of_run_flags,
    optional_number,
    optional_path,
    output_flags,
)
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.spaces.space import Space

# flags of what to measure for
SIZE = ("space", "cells", "channels", "head", "shape", "data", "data_dir", "classes")
MEASURING = (*SIZE, "like", "device", "name", "out", "repeats")
REPEATS = 50


def add(commands: Commands) -> None:
    purpose = "for latency estimates and limits"
    about = f"measure how long each operation takes on this machine, {purpose}"
    profile = add_command(commands, "profile", measure_command, about)
    help_space = "a search space with its parameters, NAME:PARAMETERS; see `fedloom list spaces`"
    profile.add_argument("--space", help=help_space)
    usual = "(default: what is usual in the space)"
    help_cells = f"of the network, or of each of its stages {usual}"
    profile.add_argument("--cells", metavar="N", help=help_cells)
    profile.add_argument("--channels", metavar="N", help=f"of the first cell {usual}")
    profile.add_argument(
        "--head",
        choices=("mean", "grid"),
        help="what the classifier sees of the last map (default grid)",
    )
    profile.add_argument(
        "--shape",
        metavar="CxHxW",
        help="of a sample, or the length of a text (default: as is usual)",
    )
    profile.add_argument(
        "--data",
        metavar="NAME|PATH",
        help="take shape and classes from a data set",
    )
    help_dir = "folder in which relative data paths are looked for"
    profile.add_argument("--data-dir", metavar="DIR", help=help_dir)
    profile.add_argument(
        "--classes", metavar="N", help="or symbols of a text (default: as is usual)"
    )
    help_run = "measure what the networks of this run need"
    profile.add_argument("--run", metavar="RUN", dest="like", help=help_run)
    profile.add_argument("--device", help="torch device (default cpu)")
    repeats_flag(profile)
    help_name = "keep it under this name in your data folder (default this-machine)"
    profile.add_argument("--name", help=help_name)
    profile.add_argument("--out", metavar="FILE", help="write it there instead")
    output_flags(profile)
    actions = profile.add_subparsers(
        dest="action",
        metavar="[list|show|check]",
        parser_class=Parser,
    )
    listing = add_command(actions, "list", list_command, "the profiles in your data folder")
    show = add_command(actions, "show", show_command, "a profile's machine and operations")
    show.add_argument("profile", metavar="NAME|FILE")
    for added in (listing, show):
        added.add_argument("--json", action="store_true", help="print JSON and nothing else")
    about = "a profile's estimate for each client's network beside the time it really takes"
    check = add_command(actions, "check", check_command, about)
    check.add_argument("path", metavar="RUN")
    check.add_argument(
        "--profile",
        default="this-machine",
        metavar="NAME|FILE",
        help="(default this-machine)",
    )
    help_limit = "mark networks above params=100k,macs=5M,latency_ms=2"
    check.add_argument("--limit", metavar="WHAT=N,…", help=help_limit)
    of_run_flags(check)
    repeats_flag(check)
    output_flags(check)


def repeats_flag(parser: Parser) -> None:
    help_repeats = f"turns, of which the mean counts (default {REPEATS})"
    parser.add_argument("--repeats", metavar="N", help=help_repeats)


def repeats_of(options: argparse.Namespace) -> int:
    if options.repeats is None:
        return REPEATS
    repeats: int = number("repeats", options.repeats, int, 3)
    return repeats


def measure_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.report.progress import screen
        from fedloom.runs.preparing import check_device
        from fedloom.runs.profiles import NAME, measure, place

        if options.name and options.out:
            found = "got --name and --out"
            raise FedloomError("a profile must have one place", found, "give one of them")
        repeats = repeats_of(options)
        device = options.device or "cpu"
        check_device(device)
        path = optional_path(options.out)
        if path is None:
            path = place(options.name or NAME)
        with screen(quiet=options.quiet or options.json) as shown:
            return measure(measured_model(options), path, device, repeats, shown.working)

    return finish(options, work)


def measured_model(options: argparse.Namespace) -> Any:
    """The network whose operations are measured."""
    from fedloom.cost.steps import model_of
    from fedloom.methods import searched
    from fedloom.runs.latency import task_of

    if options.like is None:
        return model_by_flags(options)
    for name in SIZE:
        if getattr(options, name) is not None:
            found = f"got --{name.replace('_', '-')} too"
            rule = "--run must be alone in saying what to measure"
            raise FedloomError(rule, found, "leave one of them out")
    task = task_of(options.like)
    return model_of(task, searched(task))


def model_by_flags(options: argparse.Namespace) -> Any:
    from fedloom.spaces import LARGEST, is_foreign, open_space
    from fedloom.spaces.checking import check_space
    from fedloom.spaces.constants import check_constants
    from fedloom.spaces.mixed import model_of_space
    from fedloom.spaces.space import Size
    from fedloom.types import Task

    space = open_space(options.space or LARGEST)
    check_constants(space)
    if space.has_own_size and (options.cells or options.channels):
        rule = f"the space {space.title} must be as large as it is defined"
        raise FedloomError(rule, "got --cells or --channels", "leave them out")
    size = Size(
        cells=number("cells", options.cells or str(space.usual.cells), int, 1),
        channels=number("channels", options.channels or str(space.usual.channels), int, 1),
    )
    if space.takes_head:
        size = size._replace(head=options.head or "auto")
    elif options.head is not None:
        found = f"the networks of {space.family} do not say that they do"
        raise FedloomError("--head needs networks that end in a map", found, "leave --head out")
    kind, shape, labels = samples(options, space)
    if is_foreign(space.family):
        check_space(space, kind, shape, len(labels), size)
    channels = 0  # symbols are not normalised
    if len(shape) > 1:
        channels = shape[0]
    task = Task(
        method="profile",
        options={},
        kind=kind,
        shape=shape,
        labels=labels,
        seed=0,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
    )
    return model_of_space(task, space, size, affine=True)


class SamplesFor(NamedTuple):
    """What the measured network is built for."""

    kind: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]


def samples(options: argparse.Namespace, space: Space) -> SamplesFor:
    """Those of a data set, or as flags say."""
    if options.data is not None:
        return of_data(options, space)
    if options.data_dir is not None:
        raise FedloomError("--data-dir must come with --data", "there is none", "name the data set")
    example = space.example
    shape = example.shape
    if options.shape is not None:
        shape = parse_shape(options.shape, len(example.shape))
    classes = number("classes", options.classes or str(example.classes), int, 2)
    return SamplesFor(space.kinds[0], shape, tuple(str(label) for label in range(classes)))


def parse_shape(text: str, dimensions: int) -> tuple[int, ...]:
    """So many whole numbers above 0: three, or the length of a text."""
    words = text.lower().split("x")
    if len(words) == dimensions and all(word.isdecimal() and int(word) for word in words):
        return tuple(int(word) for word in words)
    rule = "--shape must look like CxHxW"
    advice = "try --shape 3x32x32"
    if dimensions == 1:
        rule = "--shape must be the length of a text"
        advice = "try --shape 80"
    raise FedloomError(rule, f"got {text!r}", advice)


def of_data(options: argparse.Namespace, space: Space) -> SamplesFor:
    from fedloom.config.models import DataConfig
    from fedloom.data.configured import configured_source
    from fedloom.nets.model import check_kind
    from fedloom.spaces.asking import shown

    for name in ("shape", "classes"):
        if getattr(options, name):
            raise FedloomError(
                "shape and classes must come from one place",
                f"got --data and --{name}",
                "leave one of them out",
            )
    source = configured_source(DataConfig(name=options.data, dir=options.data_dir))
    what = f"the space {shown(space.family)}"
    check_kind(what, source.kind, space.kinds, "choose another space, or other data")
    shape = tuple(int(size) for size in source.x.shape[1:])
    return SamplesFor(source.kind, shape, source.labels)


def only_its_own(options: argparse.Namespace, *allowed: str) -> None:
    """`fedloom profile --cells 3 list`: flags of the measurement before another action."""
    for name in MEASURING:
        if name in allowed or getattr(options, name, None) is None:
            continue
        flag = name.replace("_", "-")
        if name == "like":
            flag = "run"
        command = f"fedloom profile {options.action}"
        raise FedloomError(
            f"`{command}` must be given what it knows",
            f"got --{flag}",
            f"see `{command} --help`",
        )


def list_command(options: argparse.Namespace) -> int:
    from fedloom.cost.profile import read_profile
    from fedloom.runs.profiles import folder, stored

    only_its_own(options)
    rows = []
    for path in stored():
        try:
            profile = read_profile(path)
            operations = f"{len(profile.entries)} operations"
            about = f"{profile.machine}; {operations}, {profile.made[:10]}"
        except FedloomError as error:
            about = f"damaged: {error}"
        rows.append((path.stem, about))
    if options.json:
        objects = [{"name": name, "about": about} for name, about in rows]
        print(json.dumps(objects), file=options.stream)
        return 0
    from rich.console import Console

    from fedloom.report.tables import names_table

    console = Console(markup=False)
    if rows:
        console.print(names_table(rows))
    else:
        console.print(f"none yet in {folder()}: `fedloom profile` makes one")
    return 0


def show_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from fedloom.report.latency_tables import profile_table
    from fedloom.runs.profiles import find, place

    only_its_own(options)
    profile = find(options.profile)
    if options.json:
        print(json.dumps(profile.to_json()), file=options.stream)
    else:
        Console(markup=False).print(profile_table(profile, str(place(options.profile))))
    return 0


def check_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.cost.limits import Limit
        from fedloom.report.progress import screen
        from fedloom.runs.latency import check

        only_its_own(options, "repeats")
        limit = None
        if options.limit is not None:
            limit = Limit.parse(options.limit)
        with screen(quiet=options.quiet or options.json) as shown:
            return check(
                options.path,
                options.profile,
                limit,
                repeats_of(options),
                shown.working,
                tier=optional_number("tier", options.tier, int, 1),
                search=options.search,
            )

    return finish(options, work)

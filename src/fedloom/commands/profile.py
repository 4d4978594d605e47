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
    optional_number,
    optional_path,
    other_model_flags,
    output_flags,
)
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.spaces.space import Space

# The flags that describe the network to measure, and all flags of the measurement.
SIZE = ("space", "cells", "channels", "head", "shape", "data", "data_dir", "classes")
MEASURING = (*SIZE, "like", "device", "name", "out", "repeats")  # `like` is --run
REPEATS = 50


def add(commands: Commands) -> None:
    purpose = "for latency estimates and limits"
    summary = f"measure how long each operation takes on this machine, {purpose}"
    profile = add_command(commands, "profile", measure_command, summary)
    network_flags(profile)
    profile.add_argument("--device", help="torch device (default cpu)")
    repeats_flag(profile)
    help_name = "store the profile under this name in your data folder (default this-machine)"
    profile.add_argument("--name", help=help_name)
    profile.add_argument("--out", metavar="FILE", help="write the profile to this file instead")
    output_flags(profile)
    actions = profile.add_subparsers(
        dest="action",
        metavar="[list|show|check]",
        parser_class=Parser,
    )
    listing = add_command(actions, "list", list_command, "list the profiles in your data folder")
    show = add_command(actions, "show", show_command, "show a profile's machine and operations")
    show.add_argument("profile", metavar="NAME|FILE")
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="print JSON and nothing else")
    add_check(actions)


def network_flags(profile: Parser) -> None:
    """Flags that describe the network to measure."""
    help_space = "a search space with its parameters, NAME:PARAMETERS; see `fedloom list spaces`"
    profile.add_argument("--space", help=help_space)
    default = "(default: the space's usual number)"
    help_cells = f"cells of the network, or of each of its stages {default}"
    profile.add_argument("--cells", metavar="N", help=help_cells)
    profile.add_argument("--channels", metavar="N", help=f"channels of the first cell {default}")
    profile.add_argument(
        "--head",
        choices=("mean", "grid"),
        help="how the last feature map reaches the classifier (default grid)",
    )
    profile.add_argument(
        "--shape",
        metavar="CxHxW",
        help="shape of a sample, or the length of a text (default: the space's usual one)",
    )
    profile.add_argument(
        "--data",
        metavar="NAME|PATH",
        help="take shape and classes from a data set",
    )
    help_dir = "folder in which relative data paths are looked for"
    profile.add_argument("--data-dir", metavar="DIR", help=help_dir)
    help_classes = "classes, or symbols of a text (default: the space's usual number)"
    profile.add_argument("--classes", metavar="N", help=help_classes)
    # Not as `run`, which is the command's function.
    help_run = "measure the operations that the networks of this run use"
    profile.add_argument("--run", metavar="RUN", dest="like", help=help_run)


def add_check(actions: Commands) -> None:
    summary = "compare a profile's estimate with the measured time of each client's network"
    check = add_command(actions, "check", check_command, summary)
    check.add_argument("path", metavar="RUN")
    check.add_argument(
        "--profile",
        default="this-machine",
        metavar="NAME|FILE",
        help="the profile to check (default this-machine)",
    )
    help_limit = "mark networks above params=100k,macs=5M,latency_ms=2"
    check.add_argument("--limit", metavar="WHAT=N,…", help=help_limit)
    other_model_flags(check)
    repeats_flag(check)
    output_flags(check)


def repeats_flag(parser: Parser) -> None:
    help_repeats = f"repetitions, of which the mean is taken (default {REPEATS})"
    parser.add_argument("--repeats", metavar="N", help=help_repeats)


def repeats_of(options: argparse.Namespace) -> int:
    if options.repeats is None:
        return REPEATS
    repeats: int = number("repeats", options.repeats, int, 3)
    return repeats


def measure_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.report.progress import open_screen
        from fedloom.runs.preparing import check_device
        from fedloom.runs.profiles import NAME, measure, place

        if options.name and options.out:
            rule = "a profile must have one place"
            raise FedloomError(rule, "got --name and --out", "give one of them")
        repeats = repeats_of(options)
        device = options.device or "cpu"
        check_device(device)
        path = optional_path(options.out)
        if path is None:
            path = place(options.name or NAME)
        with open_screen(quiet=options.quiet or options.json) as screen:
            return measure(measured_model(options), path, device, repeats, screen.working)

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
            rule = "--run must be the only flag that says what to measure"
            flag = f"--{name.replace('_', '-')}"
            raise FedloomError(rule, f"got {flag} too", "leave one of them out")
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
        rule = "--head needs networks that end in a map"
        problem = f"the networks of {space.family} do not say that they do"
        raise FedloomError(rule, problem, "leave --head out")
    kind, shape, labels = samples_for(options, space)
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
    """The kind of samples that the measured network is built for."""

    kind: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]


def samples_for(options: argparse.Namespace, space: Space) -> SamplesFor:
    """Samples as a data set has them, or as the flags describe them."""
    if options.data is not None:
        return samples_of_data(options, space)
    if options.data_dir is not None:
        raise FedloomError("--data-dir must come with --data", "there is none", "name the data set")
    example = space.example
    shape = example.shape
    if options.shape is not None:
        shape = parse_shape(options.shape, len(example.shape))
    classes = number("classes", options.classes or str(example.classes), int, 2)
    return SamplesFor(space.kinds[0], shape, tuple(str(label) for label in range(classes)))


def parse_shape(text: str, dimensions: int) -> tuple[int, ...]:
    """Parse `dimensions` whole numbers above 0: three, or one, the length of a text."""
    lengths = text.lower().split("x")
    if len(lengths) == dimensions and all(length.isdecimal() and int(length) for length in lengths):
        return tuple(int(length) for length in lengths)
    rule = "--shape must look like CxHxW"
    advice = "try --shape 3x32x32"
    if dimensions == 1:
        rule = "--shape must be the length of a text"
        advice = "try --shape 80"
    raise FedloomError(rule, f"got {text!r}", advice)


def samples_of_data(options: argparse.Namespace, space: Space) -> SamplesFor:
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
    advice = "choose another space, or other data"
    check_kind(f"the space {shown(space.family)}", source.kind, space.kinds, advice)
    shape = tuple(int(size) for size in source.x.shape[1:])
    return SamplesFor(source.kind, shape, source.labels)


def refuse_measuring_flags(options: argparse.Namespace, *allowed: str) -> None:
    """Refuse flags of the measurement before another action: `fedloom profile --cells 3 list`."""
    for name in MEASURING:
        if name in allowed or getattr(options, name, None) is None:
            continue
        flag = name.replace("_", "-")
        if name == "like":
            flag = "run"
        command = f"fedloom profile {options.action}"
        raise FedloomError(
            f"`{command}` must be given flags that it knows",
            f"got --{flag}",
            f"see `{command} --help`",
        )


def list_command(options: argparse.Namespace) -> int:
    from fedloom.cost.profile import read_profile
    from fedloom.runs.profiles import folder, stored

    refuse_measuring_flags(options)
    rows = []
    for path in stored():
        try:
            profile = read_profile(path)
            operations = f"{len(profile.entries)} operations"
            summary = f"{profile.machine}; {operations}, {profile.made[:10]}"
        except FedloomError as error:
            summary = f"damaged: {error}"
        rows.append((path.stem, summary))
    if options.json:
        objects = [{"name": name, "about": summary} for name, summary in rows]
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

    refuse_measuring_flags(options)
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
        from fedloom.report.progress import open_screen
        from fedloom.runs.latency import check

        refuse_measuring_flags(options, "repeats")
        limit = None
        if options.limit is not None:
            limit = Limit.parse(options.limit)
        with open_screen(quiet=options.quiet or options.json) as screen:
            return check(
                options.path,
                options.profile,
                limit,
                repeats_of(options),
                screen.working,
                tier=optional_number("tier", options.tier, int, 1),
                search=options.search,
            )

    return finish(options, work)

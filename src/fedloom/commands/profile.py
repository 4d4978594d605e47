"""`fedloom profile` and its `list`, `show` and `check`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import Commands, Parser, add_command, number, output_flags
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.spaces.space import Space

SIZE = ("space", "cells", "channels", "shape", "data", "data_dir", "classes")  # flags of what to measure for
REPEATS = 50


def add(commands: Commands) -> None:
    about = "measure how long each operation takes on this machine, for latency estimates and limits"
    profile = add_command(commands, "profile", measure_command, about)
    profile.add_argument(
        "--space", help="a search space with its parameters, NAME:PARAMETERS; see `fedloom list spaces`"
    )
    profile.add_argument(
        "--cells", metavar="N", help="of the network, or of each of its stages (default: what is usual in the space)"
    )
    profile.add_argument("--channels", metavar="N", help="of the first cell (default: what is usual in the space)")
    profile.add_argument("--shape", metavar="CxHxW", help="of a sample (default 3x32x32)")
    profile.add_argument("--data", metavar="NAME|PATH", help="take shape and classes from a data set")
    profile.add_argument("--data-dir", metavar="DIR", help="folder in which relative data paths are looked for")
    profile.add_argument("--classes", metavar="N", help="(default 10)")
    profile.add_argument("--run", metavar="RUN", dest="like", help="measure what the networks of this run need")
    profile.add_argument("--device", help="torch device (default cpu)")
    repeats_flag(profile)
    profile.add_argument("--name", help="keep it under this name in your data folder (default this-machine)")
    profile.add_argument("--out", metavar="FILE", help="write it there instead")
    output_flags(profile)
    actions = profile.add_subparsers(dest="action", metavar="[list|show|check]", parser_class=Parser)
    listing = add_command(actions, "list", list_command, "the profiles in your data folder")
    show = add_command(actions, "show", show_command, "a profile's machine and operations")
    show.add_argument("profile", metavar="NAME|FILE")
    for added in (listing, show):
        added.add_argument("--json", action="store_true", help="print JSON and nothing else")
    about = "a profile's estimate for each client's network beside the time it really takes"
    check = add_command(actions, "check", check_command, about)
    check.add_argument("path", metavar="RUN")
    check.add_argument("--profile", default="this-machine", metavar="NAME|FILE", help="(default this-machine)")
    check.add_argument("--limit", metavar="WHAT=N,…", help="mark networks above params=100k,macs=5M,latency_ms=2")
    repeats_flag(check)
    output_flags(check)


def repeats_flag(parser: Parser) -> None:
    parser.add_argument("--repeats", metavar="N", help=f"turns, of which the median counts (default {REPEATS})")


def repeats_of(options: argparse.Namespace) -> int:
    found: int = REPEATS if options.repeats is None else number("repeats", options.repeats, int, 3)
    return found


def measure_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.report.progress import screen
        from fedloom.runs.experiment import check_device
        from fedloom.runs.profiles import NAME, measure, place

        if options.name and options.out:
            raise FedloomError("a profile must have one place", "got --name and --out", "give one of them")
        repeats, device = repeats_of(options), options.device or "cpu"
        check_device(device)
        path = Path(options.out) if options.out else place(options.name or NAME)
        with screen(quiet=options.quiet or options.json) as shown:
            return measure(wanted(options), path, device, repeats, shown.working)

    return finish(options, work)


def wanted(options: argparse.Namespace) -> Any:
    """The network whose operations are measured."""
    from fedloom.cost.steps import model_of
    from fedloom.runs.latency import task_of

    given = [name for name in SIZE if getattr(options, name) is not None]
    if options.like is None:
        return model_by_flags(options)
    if given:
        found = f"got --{given[0].replace('_', '-')} too"
        raise FedloomError("--run must be alone in saying what to measure", found, "leave one of them out")
    return model_of(task_of(options.like))


def model_by_flags(options: argparse.Namespace) -> Any:
    from fedloom.spaces import LARGEST, SPACES, open_space
    from fedloom.spaces.checking import check_constants, check_space
    from fedloom.spaces.mixed import model_of_space
    from fedloom.spaces.space import Size
    from fedloom.types import Task

    space = open_space(options.space or LARGEST)
    check_constants(space)
    size = Size(
        cells=number("cells", options.cells or str(space.usual.cells), int, 1),
        channels=number("channels", options.channels or str(space.usual.channels), int, 1),
    )
    kind, shape, labels = samples(options, space)
    if space.family not in SPACES.builtin:
        check_space(space, kind, shape, len(labels), size)
    zeros, ones = (0.0,) * shape[0], (1.0,) * shape[0]
    task = Task("profile", {}, kind, shape, labels, 0, zeros, ones)
    return model_of_space(task, space, size, affine=True)


class SamplesFor(NamedTuple):
    """What the measured network is built for."""

    kind: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]


def samples(options: argparse.Namespace, space: Space) -> SamplesFor:
    """Those of a data set, or as flags say."""
    from fedloom.nets import MAPS
    from fedloom.spaces.asking import shown

    kinds = [kind for kind in space.kinds if kind in MAPS]
    if not kinds:
        found = f"{shown(space.family)} is for {' and '.join(space.kinds)}"
        raise FedloomError("a profile must be of a space for images or speech", found, "choose another space")
    if options.data is not None:
        return of_data(options)
    if options.data_dir is not None:
        raise FedloomError("--data-dir must come with --data", "there is none", "name the data set")
    words = (options.shape or "3x32x32").lower().split("x")
    if len(words) != 3 or not all(word.isdecimal() and int(word) for word in words):
        raise FedloomError("--shape must look like CxHxW", f"got {options.shape!r}", "try --shape 3x32x32")
    classes = number("classes", options.classes or "10", int, 2)
    return SamplesFor(kinds[0], tuple(map(int, words)), tuple(map(str, range(classes))))


def of_data(options: argparse.Namespace) -> SamplesFor:
    from fedloom.config.models import DataConfig
    from fedloom.data.configured import configured_source
    from fedloom.nets import MAPS
    from fedloom.nets.model import check_kind

    if options.shape or options.classes:
        found = f"got --data and --{'shape' if options.shape else 'classes'}"
        raise FedloomError("shape and classes must come from one place", found, "leave one of them out")
    source = configured_source(DataConfig(name=options.data, dir=options.data_dir))
    check_kind("a device profile", source.kind, MAPS, "choose images or speech")
    return SamplesFor(source.kind, tuple(int(size) for size in source.x.shape[1:]), source.labels)


def only_its_own(options: argparse.Namespace, *allowed: str) -> None:
    """`fedloom profile --cells 3 list`: flags of the measurement before another action."""
    flags = [name for name in (*SIZE, "like", "device", "name", "out", "repeats") if name not in allowed]
    given = [name for name in flags if getattr(options, name, None) is not None]
    if given:
        name = {"like": "run"}.get(given[0], given[0].replace("_", "-"))
        what = f"`fedloom profile {options.action}`"
        raise FedloomError(f"{what} must be given what it knows", f"got --{name}", f"see {what[:-1]} --help`")


def list_command(options: argparse.Namespace) -> int:
    from fedloom.cost.profile import read_profile
    from fedloom.runs.profiles import folder, stored

    only_its_own(options)
    rows = []
    for path in stored():
        try:
            profile = read_profile(path)
            rows.append((path.stem, f"{profile.machine}; {len(profile.entries)} operations, {profile.made[:10]}"))
        except FedloomError as error:
            rows.append((path.stem, f"damaged: {error}"))
    if options.json:
        print(json.dumps([{"name": name, "about": about} for name, about in rows]), file=options.stream)
        return 0
    from rich.console import Console

    from fedloom.report.tables import names_table

    Console(markup=False).print(names_table(rows) if rows else f"none yet in {folder()}: `fedloom profile` makes one")
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
        limit = None if options.limit is None else Limit.parse(options.limit)
        with screen(quiet=options.quiet or options.json) as shown:
            return check(options.path, options.profile, limit, repeats_of(options), shown.working)

    return finish(options, work)

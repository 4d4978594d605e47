"""`fedloom run`, `compare` and `resume`."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.commands.finishing import finish, interruptible, tell, tell_time
from fedloom.commands.parsing import (
    Commands,
    add_command,
    common_flags,
    common_names,
    configuration,
    dry_run_flag,
    optional_path,
    output_flags,
    refuse_unknown_flags,
    small_flag,
)
from fedloom.commands.report import check_watch, watch_flags, watched
from fedloom.errors import OTHER_NAMES, FedloomError, unknown
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from fedloom.config.variants import Labelled
    from fedloom.records.folder import RunFolder
    from fedloom.records.plan import Plan


COMPARE_FLAGS = ["seeds", "grid", "match-params", "match-macs", "target", "small", "watch", "port"]


def add(commands: Commands) -> None:
    run = add_command(commands, "run", run_command, "run one method; without one, the demo")
    run.add_argument("method", nargs="?", help="a name, NAME:key=value,…, or path/file.py:Name")
    dry_run_flag(run)
    summary = "run several methods on the same splits and pair them by seed"
    compare = add_command(commands, "compare", compare_command, summary)
    help_methods = (
        "names or variants; the others are compared with the first; NAME:lr=.1@LABEL gives a "
        "variant its name in tables"
    )
    compare.add_argument("method", nargs="+", help=help_methods)
    help_seeds = "one run per method and seed (default: --seed)"
    compare.add_argument("--seeds", default=None, metavar="A,B,…", help=help_seeds)
    compare.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="OPTION=A,B,…",
        help="first tune this option on validation data",
    )
    help_target = (
        "report what each method spent until its validation figure reached this (0.6: 60 %%)"
    )
    compare.add_argument("--target", default=None, metavar="FIGURE", help=help_target)
    help_match = "scale fixed networks to the parameters of the network that the first method found"
    compare.add_argument("--match-params", action="store_true", help=help_match)
    help_macs = "the same by MACs per sample, averaged over the first method's clients"
    compare.add_argument("--match-macs", action="store_true", help=help_macs)
    for added in (run, compare):
        small_flag(added)
        common_flags(added)
        watch_flags(added)
    summary = "continue a run or comparison that was stopped or killed"
    resume = add_command(commands, "resume", resume_command, summary)
    resume.add_argument("path", metavar="RUN")
    help_from = "go back to the checkpoint of this round, if it was kept, and discard later rounds"
    resume.add_argument(
        "--from",
        dest="from_round",
        type=int,
        default=None,
        metavar="ROUND",
        help=help_from,
    )
    output_flags(resume)
    watch_flags(resume)


def check_order(arguments: list[str]) -> None:
    """Refuse `run --lr 0.1 fedavg`: a method's flags are only known after its name."""
    if not arguments or not arguments[0].startswith("--"):
        return
    name = arguments[0].removeprefix("--").split("=")[0]
    names = [*common_names(), "dry-run", "small", "watch", "port", "debug", "help"]
    if not name or name in names:
        return
    if difflib.get_close_matches(name, names, cutoff=0.8):
        raise unknown("a flag", name, names)
    flag = OTHER_NAMES.get(name, name)
    if flag in names:
        raise unknown("a flag", name, names)
    raise FedloomError(
        "a method must be named before its own flags",
        f"got --{name} first",
        f"try `fedloom run METHOD --{flag} …`",
    )


def method_help(variant: str) -> int:
    load_torch()
    from rich.console import Console

    from fedloom.methods import recipe
    from fedloom.report.tables import options_table
    from fedloom.runs.configure import parse_variant

    name, fixed_options = parse_variant(variant)
    method = recipe(name)
    console = Console(markup=False)
    console.print(f"{method.summary}\n", highlight=False)
    console.print(f"fedloom run {name} [--OPTION VALUE …] [common flags, see `fedloom run --help`]")
    console.print(options_table(method.options.fields_beside(fixed_options)))
    return 0


def own_flags(options: argparse.Namespace, method: str, tree: dict[str, Any]) -> None:
    """Read `--lr 0.1` and the like into `tree`: flags that set the method's own options.

    Those of the chosen search space are among them.
    """
    load_torch()
    from fedloom.config.assigning import assign, parse_value
    from fedloom.methods import recipe
    from fedloom.runs.configure import parse_variant

    name, fixed_options = parse_variant(method)
    schema = recipe(name).options
    switches = set()
    for field, declared in schema.model_fields.items():
        if is_switch(declared):
            switches.add(flag_of(field))
    values = values_of_flags(options.rest, switches)
    given = options_in(tree)
    for flag, value in values.items():
        given[flag.removeprefix("--").replace("-", "_")] = value
    given.update(fixed_options)
    fields = schema.fields_beside(given)
    field_by_flag = {flag_of(field): field for field in fields}
    for flag, value in values.items():
        if flag not in field_by_flag:
            name = flag.removeprefix("--")
            schema.check_place(name.replace("-", "_"), given)
            method_flags = [known.removeprefix("--") for known in field_by_flag]
            raise unknown("a flag", name, [*method_flags, *common_names()])
        field = field_by_flag[flag]
        if value is None and is_switch(fields[field]):
            value = "true"
        if value is None:
            advice = f"see `fedloom run {method} --help`"
            raise FedloomError(f"{flag} must have a value", "there is none", advice)
        assign(tree, f"options.{field}", parse_value(value))


def flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def options_in(tree: dict[str, Any]) -> dict[str, Any]:
    """The method's options that the configuration file and --set gave."""
    options = tree.get("options")
    if not isinstance(options, dict):
        return {}
    return dict(options)


def is_switch(field: FieldInfo) -> bool:
    """Whether an option is true or false, so that its flag may stand without a value."""
    return field.annotation is bool


def values_of_flags(arguments: list[str], switches: Collection[str]) -> dict[str, str | None]:
    """The value after each flag; None if there is none, or another flag follows a switch."""
    arguments = without_equals(arguments)
    values: dict[str, str | None] = {}
    place = 0
    while place < len(arguments):
        flag = arguments[place]
        following = None
        if place + 1 < len(arguments):
            following = arguments[place + 1]
        if flag in switches and following is not None and following.startswith("--"):
            values[flag] = None
            place += 1
        else:
            values[flag] = following
            place += 2
    return values


def without_equals(arguments: list[str]) -> list[str]:
    """Split `--lr=0.1` into two arguments."""
    parts = []
    for argument in arguments:
        if argument.startswith("--"):
            parts += argument.split("=", 1)
        else:
            parts.append(argument)
    return parts


def run_command(options: argparse.Namespace) -> int:
    check_watch(options)
    tree = configuration(options)
    method = options.method or None
    if method is None and "method" in tree:
        method = named_method(tree)
    if method is None:
        return finish(options, lambda: start_demo(options, tree))
    own_flags(options, method, tree)
    if options.small:
        make_small(options, method, tree)
    return finish(options, lambda: start_run(options, method, tree))


def make_small(options: argparse.Namespace, method: str, tree: dict[str, Any]) -> None:
    """Add the options of a small search to those that are given."""
    from fedloom.runs.small import about_small, small_options

    user_options = options_in(tree)
    tell(options, about_small(method, user_options))
    tree["options"] = {**small_options(method, user_options), **user_options}


def small_variants(
    options: argparse.Namespace,
    variants: Labelled,
    user_options: dict[str, Any],
) -> Labelled:
    """With --small, every variant of a comparison with the options of a small search."""
    if not options.small:
        return variants
    from fedloom.runs.small import about_small, small_variant

    for method in variants.methods:
        tell(options, about_small(method, user_options))
    return variants.changed(lambda method: small_variant(method, user_options))


def named_method(tree: dict[str, Any]) -> str:
    """The method that the configuration file or --set names."""
    from fedloom.config.models import Experiment, validated

    config: Experiment = validated(Experiment, tree)
    return config.method


def start_run(options: argparse.Namespace, method: str, tree: dict[str, Any]) -> Any:
    from fedloom.launch import begin
    from fedloom.report.progress import open_screen
    from fedloom.runs.configure import configure
    from fedloom.runs.experiment import check
    from fedloom.runs.preparing import prepare

    config = configure(method, tree)
    if options.dry_run:
        from fedloom.runs.estimate import estimate

        prepared = prepare(config)
        check(prepared)
        return estimate(prepared)
    with ExitStack() as stack:

        def on_created(folder: RunFolder) -> None:
            tell(options, f"run folder: {folder.path}")
            if not config.is_federated:
                tell_time_of_run(options, folder)
            stack.enter_context(interruptible(folder.path))
            stack.enter_context(watched(options, folder.path))

        screen = stack.enter_context(open_screen(quiet=options.quiet or options.json))
        return begin(config, optional_path(options.out), screen, on_created)


def tell_time_of_run(options: argparse.Namespace, folder: RunFolder) -> None:
    """Say how long a run will take, by the dry run's first round, unless output is quiet."""
    if options.quiet or options.json:
        return
    from fedloom.runs.estimate import training_seconds
    from fedloom.runs.preparing import reopen

    with suppress(FedloomError):  # the run itself will say what is wrong
        tell_time(options, training_seconds(reopen(folder)))


def tell_time_of_plan(options: argparse.Namespace, plan: Plan) -> None:
    """Say how long a comparison will take, in the same way."""
    if options.quiet or options.json:
        return
    from fedloom.runs.estimate import training_seconds_of_plan

    with suppress(FedloomError):
        tell_time(options, training_seconds_of_plan(plan))


def start_demo(options: argparse.Namespace, tree: dict[str, Any]) -> Any:
    load_torch()
    from fedloom.commands.contest import carry_out_auto
    from fedloom.runs.auto_plan import plan_of
    from fedloom.runs.demo import Demo, demo_request

    refuse_unknown_flags(options, "the demo", [])
    if options.dry_run:
        from fedloom.runs.estimate import estimate_plan

        return estimate_plan(plan_of(demo_request(tree)))
    return Demo(carry_out_auto(options, demo_request(tree)))


def compare_command(options: argparse.Namespace) -> int:
    check_watch(options)
    tree = configuration(options)
    refuse_unknown_flags(options, "compare", COMPARE_FLAGS)
    return finish(options, lambda: start_compare(options, tree))


def start_compare(options: argparse.Namespace, tree: dict[str, Any]) -> Any:
    load_torch()
    from fedloom.config.models import Experiment, validated
    from fedloom.config.variants import labelled
    from fedloom.records.plan import Plan, parse_grid, parse_seeds, parse_target

    if options.seeds is None:
        seeds: tuple[int, ...] = (validated(Experiment, tree).seed,)
    else:
        seeds = parse_seeds(options.seeds)
    grid = parse_grid(options.grid)
    target = parse_target(options.target)
    variants = small_variants(options, labelled(options.method), options_in(tree))
    plan = Plan(
        variants.methods,
        seeds,
        grid,
        tree,
        options.match_params,
        names=variants.names,
        target=target,
        match_macs=options.match_macs,
    )
    return carry_out_plan(options, plan, tell_time_of_plan)


def carry_out_plan(
    options: argparse.Namespace,
    plan: Plan,
    tell_more: Callable[[argparse.Namespace, Plan], None] | None = None,
) -> Any:
    """Carry out a comparison; `tell_more` says what users should know before the first run."""
    from fedloom.report.progress import open_screen
    from fedloom.runs.comparison import continue_comparison, create_comparison

    folder = create_comparison(plan, options.out)
    tell(options, f"comparison folder: {folder.path}")
    if tell_more is not None:
        tell_more(options, plan)
    quiet = options.quiet or options.json
    with (
        interruptible(folder.path),
        watched(options, folder.path),
        open_screen(quiet=quiet) as screen,
    ):
        return continue_comparison(folder, screen)


def resume_command(options: argparse.Namespace) -> int:
    check_watch(options)

    def go_on() -> Any:
        load_torch()
        from fedloom.api import resume
        from fedloom.records.folder import RunFolder

        folder = RunFolder.open(Path(options.path))
        quiet = options.quiet or options.json
        with interruptible(folder.path), watched(options, folder.path):
            return resume(options.path, from_round=options.from_round, quiet=quiet)

    return finish(options, go_on)

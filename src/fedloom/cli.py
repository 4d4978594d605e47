"""The command line. Thin: it parses, calls, prints; torch is imported by the commands that need it."""

from __future__ import annotations

import argparse
import difflib
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from fedloom.errors import FedloomError, unknown
from fedloom.flags import FLAGS, PATHS
from fedloom.version import __version__

ABOUT = """Federated neural architecture search: find the network where the data is.

  fedloom run                                   the demo: a minute on real digits
  fedloom run fedavg --data digits --clients 8 --partition dirichlet:0.2
  fedloom compare fedavg local local-adaptation --seeds 0,1,2
  fedloom resume runs/1-fedavg-digits           go on where a run was stopped or killed
  fedloom run METHOD --help                     a method's own options
"""


COMMON = ("config", "set", "out", "json", "quiet")  # flags that are no options of the configuration


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FedloomError("the command line must be valid", message, f"see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Every error a user can meet is one sentence and an exit code; --debug shows where it came from."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return dispatch(words)
    except FedloomError as error:
        if "--debug" in words:
            raise
        print(f"fedloom: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("fedloom: stopped; nothing saved is lost.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        return 0


def dispatch(words: list[str]) -> int:
    parser = make_parser(words)
    if words[:1] == ["run"] and {"-h", "--help"} & set(words) and words[1:2] and not words[1].startswith("-"):
        return method_help(words[1])
    if words[:1] == ["run"]:
        check_order(words[1:])
    options, rest = parser.parse_known_args(words)
    if rest and options.command not in ("run", "compare"):
        command = " ".join(["fedloom", *([options.command] if options.command else [])])
        raise FedloomError(f"`{command}` must be given what it knows", f"got {rest[0]!r}", f"see `{command} --help`")
    if options.command is None:
        parser.print_help()
        return 0
    options.rest, options.stream = rest, sys.stdout
    # with --json standard output is for the one object: whatever a method or data source prints goes elsewhere
    quiet = redirect_stdout(sys.stderr) if getattr(options, "json", False) else nullcontext()
    with quiet:
        code: int = options.run(options)
    return code


def check_order(words: list[str]) -> None:
    """`run --lr 0.1 fedavg`: which flags a method has is only known after its name."""
    name = words[0].removeprefix("--").split("=")[0] if words and words[0].startswith("--") else ""
    known = [*(flag.name for flag in FLAGS), *COMMON, "dry-run", "debug", "help"]
    if name and name not in known:
        if difflib.get_close_matches(name, known, cutoff=0.8):
            raise unknown("a flag", name, known)
        todo = f"try `fedloom run METHOD --{name} …`"
        raise FedloomError("a method must be named before its own flags", f"got --{name} first", todo)


def make_parser(words: Sequence[str] = ()) -> Parser:
    parser = Parser(prog="fedloom", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fedloom {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def command(name: str, does: Any, about: str) -> Parser:
        added: Parser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=does)
        added.add_argument("--debug", action="store_true", help="show where an error came from")
        return added

    run = command("run", run_command, "run one method; without one, the demo")
    run.add_argument("method", nargs="?", help="a name, NAME:key=value,…, or path/file.py:Name")
    run.add_argument("--dry-run", action="store_true", help="estimate minutes, bytes and memory; train nothing")
    compare = command("compare", compare_command, "run several methods on the same splits and pair them by seed")
    compare.add_argument("method", nargs="+", help="names or variants; the first is what the others are compared with")
    compare.add_argument("--seeds", default=None, metavar="A,B,…", help="one run a method and seed (default: --seed)")
    compare.add_argument("--grid", action="append", default=[], metavar="OPTION=A,B,…", help="tune on validation first")
    help_match = "give fixed networks the width nearest the parameters that the first method found"
    compare.add_argument("--match-params", action="store_true", help=help_match)
    for added in (run, compare):
        common_flags(added)
    resume = command("resume", resume_command, "finish a run or comparison that was stopped or killed")
    resume.add_argument("path", metavar="RUN")
    output_flags(resume)
    gain = command("gain", gain_command, "what each client's own architecture is worth to it: SPIDER's matrix p_ij")
    gain.add_argument("path", metavar="RUN")
    gain.add_argument("--epochs", default="30", metavar="N", help="of fine-tuning, a cell (default 30)")
    gain.add_argument("--clients", metavar="A,B,…", help="these alone (default: all with an architecture)")
    help_start = "from the other client's weights (inherit, default), or from fresh ones: architectures alone"
    gain.add_argument("--start", choices=["inherit", "fresh"], default="inherit", help=help_start)
    gain.add_argument("--lr", metavar="RATE", help="first learning rate, falling as a cosine (default: the run's)")
    gain.add_argument("--workers", metavar="N", help="worker processes (default: as the run)")
    output_flags(gain)
    listing = command("list", list_command, "what can be chosen by name")
    listing.add_argument("what", choices=["methods", "networks", "data", "partitions", "augmentations"])
    command("doctor", doctor_command, "check that this machine is ready")
    runs = command("runs", runs_command, "list runs, or remove them")
    runs.add_argument("action", nargs="?", choices=["list", "remove"], default="list")
    runs.add_argument("path", nargs="*", metavar="RUN")
    federation_commands(commands)
    data_commands(commands, words)
    return parser


def federation_commands(commands: Any) -> None:
    """`fedloom federation init|server|site|status`."""
    about = "a real federation: its keys, its server, its sites"
    parser = commands.add_parser("federation", help=about, description=about)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    def action(name: str, about: str, place: str) -> Parser:
        added: Parser = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=federation_command)
        added.add_argument("path", metavar=place)
        added.add_argument("--debug", action="store_true", help="show where an error came from")
        return added

    init = action("init", "make certificates, and a start kit for every site", "DIR")
    init.add_argument("--site", action="append", default=[], metavar="NAME", help="a site's name; once for each")
    init.add_argument("--host", default="127.0.0.1", help="the server's name or address, as the sites see it")
    init.add_argument("--port", default="9092", help="the server's port (default 9092)")
    server = action("server", "start the server", "DIR")
    site = action("site", "start a site, with its own data", "KIT")
    site.add_argument("--data", required=True, metavar="NAME|PATH", help="this site's samples; they never leave")
    site.add_argument("--data-dir", metavar="DIR", help="folder in which relative data paths are looked for")
    site.add_argument("--device", default="cpu", help="torch device (default cpu)")
    site.add_argument("--port", default="9094", help="a free port on this machine for Flower's own use (default 9094)")
    for added in (server, site):
        added.add_argument(
            "--insecure", action="store_true", help="no TLS, no authentication: for a try on one machine"
        )
    status = action("status", "the sites, and when they were last seen", "DIR")
    status.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def data_commands(commands: Any, words: Sequence[str]) -> None:
    """`fedloom data get|check|show`."""
    about = "data sets: fetch one by name, verify its files, draw its split"
    parser = commands.add_parser("data", help=about, description=about)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)

    def action(name: str, about: str) -> Parser:
        added: Parser = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(run=data_command)
        added.add_argument("--debug", action="store_true", help="show where an error came from")
        return added

    get = action("get", "fetch a data set from its home; go on where an earlier call stopped")
    get.add_argument("name", metavar="NAME", help="see `fedloom list data`")
    get.add_argument("--dry-run", "--print", action="store_true", help="say what to fetch by hand and where to put it")
    check = action("check", "verify the files of a data set: there, whole, unchanged")
    check.add_argument("place", metavar="DIR|NAME")
    for added in (get, check):
        help_dir = "where data sets lie (default $FEDLOOM_DATA, or fedloom in your system's data folder)"
        added.add_argument("--data-dir", metavar="DIR", help=help_dir)
        output_flags(added)
    show = action("show", "draw how a data set is split among clients")
    if list(words[:2]) == ["data", "show"]:  # its flags are those of partitions, which take time to import
        from fedloom.data.show import add_arguments

        add_arguments(show)


def data_command(options: argparse.Namespace) -> int:
    import importlib

    module = importlib.import_module(f"fedloom.data.{options.action}")
    code: int = getattr(module, options.action)(options)
    return code


def federation_command(options: argparse.Namespace) -> int:
    from fedloom import flower

    flower.require()
    from fedloom.flower import commands

    code: int = getattr(commands, options.action)(options)
    return code


def common_flags(parser: Parser) -> None:
    for flag in FLAGS:
        parser.add_argument(f"--{flag.name}", metavar=flag.metavar, help=flag.help)
    parser.add_argument("--config", metavar="FILE", help="a TOML file of options; flags win over it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="set any option, e.g. options.lr=0.1"
    )
    parser.add_argument("--out", metavar="DIR", help="the run's folder (default runs/<number>-<method>-<data>)")
    output_flags(parser)


def output_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """File, then flags, then --set: later ones win."""
    from fedloom.config import assign, parse_assignment, read_toml

    tree = read_toml(Path(options.config)) if options.config else {}
    for name, path in PATHS.items():
        if getattr(options, name) is not None:
            assign(tree, path, getattr(options, name))
    for text in options.set:
        assign(tree, *parse_assignment(text))
    return tree


def own_flags(options: argparse.Namespace, method: str, tree: dict[str, Any]) -> None:
    """`--lr 0.1` and the like: a method's options as flags of their own."""
    from fedloom.config import assign, parse_value
    from fedloom.methods import recipe
    from fedloom.variants import parse_variant

    known = {name.replace("_", "-"): name for name in recipe(parse_variant(method)[0]).options.model_fields}
    words = [part for word in options.rest for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while words:
        word = words.pop(0)
        name = word.removeprefix("--")
        if not word.startswith("--") or name not in known:
            raise unknown("a flag", name, [*known, *(flag.name for flag in FLAGS), *COMMON])
        if not words:
            raise FedloomError(f"--{name} must have a value", "there is none", f"see `fedloom run {method} --help`")
        assign(tree, f"options.{known[name]}", parse_value(words.pop(0)))


def run_command(options: argparse.Namespace) -> int:
    tree = configuration(options)
    method = options.method or (named_method(tree) if "method" in tree else None)
    if method is None:
        return finish(options, lambda: start_demo(options, tree))
    own_flags(options, method, tree)
    return finish(options, lambda: start_run(options, method, tree))


def named_method(tree: dict[str, Any]) -> str:
    """By the configuration file, or by --set."""
    from fedloom.config import Experiment, validated

    config: Experiment = validated(Experiment, tree)
    return config.method


def start_run(options: argparse.Namespace, method: str, tree: dict[str, Any]) -> Any:
    from fedloom.experiment import check, prepare
    from fedloom.report.progress import screen
    from fedloom.result import begin
    from fedloom.variants import configure

    config = configure(method, tree)
    if options.dry_run:
        from fedloom.estimate import estimate

        prepared = prepare(config)
        check(prepared)
        return estimate(prepared)
    with ExitStack() as stack:

        def told(folder: Any) -> None:
            tell(options, f"run folder: {folder.path}")
            stack.enter_context(interruptible(folder.path))

        shown = stack.enter_context(screen(quiet=options.quiet or options.json))
        return begin(config, Path(options.out) if options.out else None, shown, told)


def start_demo(options: argparse.Namespace, tree: dict[str, Any]) -> Any:
    from fedloom.demo import Demo, plan

    no_more(options, "the demo", [])
    if options.dry_run:
        raise FedloomError("--dry-run must be given a method", "there is none", "try `fedloom run fedavg --dry-run`")
    return Demo(carry_out_plan(options, plan(tree)))


def compare_command(options: argparse.Namespace) -> int:
    tree = configuration(options)
    no_more(options, "compare", ["seeds", "grid", "match-params"])
    return finish(options, lambda: start_compare(options, tree))


def no_more(options: argparse.Namespace, what: str, own: list[str]) -> None:
    """Only a run of one method has flags beyond the common ones."""
    if options.rest:
        known = [*(flag.name for flag in FLAGS), *COMMON, *own]
        raise unknown(f"a flag of {what}", options.rest[0].removeprefix("--"), known)


def start_compare(options: argparse.Namespace, tree: dict[str, Any]) -> Any:
    from fedloom.comparison import Plan, parse_grid, parse_seeds
    from fedloom.config import Experiment, validated

    seeds = (validated(Experiment, tree).seed,) if options.seeds is None else parse_seeds(options.seeds)
    return carry_out_plan(
        options, Plan(tuple(options.method), seeds, parse_grid(options.grid), tree, options.match_params)
    )


def carry_out_plan(options: argparse.Namespace, plan: Any) -> Any:
    from fedloom.comparison import continue_comparison, create_comparison
    from fedloom.report.progress import screen

    folder = create_comparison(plan, options.out)
    tell(options, f"comparison folder: {folder.path}")
    with interruptible(folder.path), screen(quiet=options.quiet or options.json) as shown:
        return continue_comparison(folder, shown)


def resume_command(options: argparse.Namespace) -> int:
    def go_on() -> Any:
        from fedloom.api import resume
        from fedloom.folder import RunFolder

        with interruptible(RunFolder.open(Path(options.path)).path):
            return resume(options.path, quiet=options.quiet or options.json)

    return finish(options, go_on)


def gain_command(options: argparse.Namespace) -> int:
    def measure() -> Any:
        from fedloom.gains import find_gain
        from fedloom.report.progress import screen

        clients = None
        if options.clients is not None:
            clients = [number("clients", word, int, 0) for word in options.clients.split(",")]
        workers = None if options.workers is None else number("workers", options.workers, int, 0)
        rate = None if options.lr is None else number("lr", options.lr, float, 0)
        with screen(quiet=options.quiet or options.json) as shown:
            return find_gain(
                options.path, epochs=number("epochs", options.epochs, int, 1), clients=clients, start=options.start,
                lr=rate, workers=workers, tell=shown.working,
            )  # fmt: skip

    return finish(options, measure)


def number(flag: str, text: str, kind: Any, least: int) -> Any:
    """A flag's value as a number."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf"):
        what = "a whole number" if kind is int else "a number"
        raise FedloomError(f"--{flag} must be {what} of at least {least}", f"got {text!r}", "see `fedloom gain --help`")
    return value


def finish(options: argparse.Namespace, work: Any) -> int:
    """Do it, and print what was found: a table, or one JSON object."""
    found = work()
    if options.json:
        print(json.dumps(found.to_json(), allow_nan=False), file=options.stream)
    else:
        found.table()
    return 0


def tell(options: argparse.Namespace, text: str) -> None:
    if not (options.quiet or options.json):
        print(text, file=sys.stderr, flush=True)


class interruptible:
    """Ctrl-C and SIGTERM leave a run that can be resumed, and say so."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        signal.signal(signal.SIGTERM, self.before)
        if kind is KeyboardInterrupt or (isinstance(error, FedloomError) and error.code == 3):
            print(f"fedloom: go on with `fedloom resume {self.path}`", file=sys.stderr)


def method_help(variant: str) -> int:
    from rich.console import Console

    from fedloom.methods import recipe
    from fedloom.report.tables import options_table
    from fedloom.variants import parse_variant

    name, _ = parse_variant(variant)
    found = recipe(name)
    console = Console(markup=False)
    console.print(f"{found.summary}\n", highlight=False)
    console.print(f"fedloom run {name} [--OPTION VALUE …] [common flags, see `fedloom run --help`]")
    console.print(options_table(found.options))
    return 0


def list_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from fedloom.report.tables import names_table

    Console(markup=False).print(names_table(list(catalogue(options.what))))
    return 0


def catalogue(what: str) -> list[tuple[str, str]]:
    if what == "methods":
        from fedloom.methods import METHODS, recipe

        return [(name, recipe(name).summary) for name in METHODS.names()]
    if what == "partitions":
        from fedloom.data.partition import catalogue as partitions

        return partitions()
    if what == "augmentations":
        from fedloom.data.augment import OPERATIONS

        return [(operation.example, operation.about) for _, operation in sorted(OPERATIONS.items())]
    from fedloom.data.sources import SOURCES
    from fedloom.nets import NETWORKS

    registry = SOURCES if what == "data" else NETWORKS
    lines = [(name, (registry.get(name).__doc__ or "").strip().splitlines()[0]) for name in registry.names()]
    if what != "data":
        return lines
    from fedloom.data.places import availability

    return [(name, f"{text} {availability(name)}".strip()) for name, text in lines]


def doctor_command(options: argparse.Namespace) -> int:
    from fedloom.doctor import examine

    ready = True
    for finding in examine():
        print(f"{'ok  ' if finding.good else 'BAD '} {finding.name}: {finding.text}", flush=True)
        ready = ready and finding.good
    return 0 if ready else 1


def runs_command(options: argparse.Namespace) -> int:
    from fedloom.folder import RunFolder, all_runs

    if options.action == "remove":
        if not options.path:
            raise FedloomError("`fedloom runs remove` must be told which", "got no run", "name the folders")
        for folder in [RunFolder.open(Path(path), newer=True) for path in options.path]:
            folder.remove()
            print(f"removed {folder.path}")
        return 0
    from rich.console import Console

    from fedloom.report.tables import runs_table

    Console(markup=False).print(runs_table([folder.summary() for folder in all_runs()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

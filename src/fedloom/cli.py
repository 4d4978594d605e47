"""The command line: a thin layer that parses, calls and prints.

torch is imported only by the commands that need it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from fedloom.commands import (
    auto,
    data,
    export,
    federation,
    gain,
    listing,
    plot,
    profile,
    report,
    run,
    search,
    space,
)
from fedloom.commands.parsing import Parser
from fedloom.errors import FedloomError
from fedloom.version import __version__

ABOUT = """Federated neural architecture search: find the network where the data is.

  fedloom run                                   the demo: less than a minute on two idle cores
  fedloom auto --data scans.npz --budget minutes=10       which model to use, with evidence
  fedloom run fedavg --data digits --clients 8 --partition dirichlet:0.2
  fedloom compare fedavg local local-adaptation --seeds 0,1,2
  fedloom resume runs/1-fedavg-digits           continue a run that was stopped or killed
  fedloom report runs/1-fedavg-digits           write report.html again; one page for several runs
  fedloom search runs/2-fedoras-digits --limit macs=100k     a network for another device
  fedloom run METHOD --help                     a method's own options
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Every error that a user can meet becomes one sentence and an exit code.

    With --debug the error is raised instead, with its traceback.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    words = list(arguments)
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
    except BrokenPipeError:  # the reader of our output has gone
        return 0


def dispatch(words: list[str]) -> int:
    parser = make_parser(words)
    if words[:1] == ["run"]:
        if asks_for_method(words):
            return run.method_help(words[1])
        run.check_order(words[1:])
    options, unparsed = parser.parse_known_args(words)
    # These three have further flags of their own, which they parse themselves.
    if unparsed and options.command not in ("run", "compare", "auto"):
        command = "fedloom"
        if options.command:
            command = f"fedloom {options.command}"
        raise FedloomError(
            f"`{command}` must be given flags and arguments that it has",
            f"got {unparsed[0]!r}",
            f"see `{command} --help`",
        )
    if options.command is None:
        parser.print_help()
        return 0
    options.rest = unparsed
    options.stream = sys.stdout
    code: int
    if getattr(options, "json", False):
        # Standard output holds the JSON object alone: what methods or data sources print goes to
        # standard error.
        with redirect_stdout(sys.stderr):
            code = options.run(options)
    else:
        code = options.run(options)
    return code


def asks_for_method(words: list[str]) -> bool:
    """Whether this is `fedloom run METHOD --help`, which asks for the options of that method."""
    if "-h" not in words and "--help" not in words:
        return False
    return len(words) > 1 and not words[1].startswith("-")


def make_parser(words: Sequence[str] = ()) -> Parser:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="fedloom", description=ABOUT, formatter_class=as_written)
    parser.add_argument("--version", action="version", version=f"fedloom {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for group in (
        run,
        auto,
        report,
        plot,
        search,
        export,
        gain,
        profile,
        listing,
        space,
        federation,
    ):
        group.add(commands)
    data.add(commands, words)
    return parser


if __name__ == "__main__":
    sys.exit(main())

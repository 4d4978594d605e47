"""The command line. Thin: it parses, calls, prints; torch is imported by the commands that need it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout

from fedloom.commands import data, export, federation, gain, listing, plot, profile, report, run
from fedloom.commands.parsing import Parser
from fedloom.errors import FedloomError
from fedloom.version import __version__

ABOUT = """Federated neural architecture search: find the network where the data is.

  fedloom run                                   the demo: a minute on real digits
  fedloom run fedavg --data digits --clients 8 --partition dirichlet:0.2
  fedloom compare fedavg local local-adaptation --seeds 0,1,2
  fedloom resume runs/1-fedavg-digits           go on where a run was stopped or killed
  fedloom report runs/1-fedavg-digits           its report.html again; several runs: a page that compares them
  fedloom run METHOD --help                     a method's own options
"""


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
        return run.method_help(words[1])
    if words[:1] == ["run"]:
        run.check_order(words[1:])
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


def make_parser(words: Sequence[str] = ()) -> Parser:
    parser = Parser(prog="fedloom", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"fedloom {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for group in (run, report, plot, export, gain, profile, listing, federation):
        group.add(commands)
    data.add(commands, words)
    return parser


if __name__ == "__main__":
    sys.exit(main())

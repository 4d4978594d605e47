"""How commands are declared: a parser whose errors are sentences, and the flags that many share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fedloom.config.flags import FLAGS, PATHS
from fedloom.errors import FedloomError, unknown

Commands = Any  # argparse's own type of what add_subparsers returns has no public name
Does = Callable[[argparse.Namespace], int]
COMMON = ("config", "set", "out", "json", "quiet")  # flags that are no options of the configuration


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FedloomError("the command line must be valid", message, f"see `{self.prog} --help`")


def add_command(commands: Commands, name: str, does: Does, about: str) -> Parser:
    added: Parser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
    added.set_defaults(run=does)
    added.add_argument("--debug", action="store_true", help="show where an error came from")
    return added


def add_group(commands: Commands, name: str, about: str) -> Commands:
    """`fedloom NAME ACTION`: what its actions are added to."""
    parser = commands.add_parser(name, help=about, description=about)
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)


def common_flags(parser: Parser) -> None:
    for flag in FLAGS:
        action = "append" if flag.several else "store"
        parser.add_argument(f"--{flag.name}", metavar=flag.metavar, help=flag.help, action=action)
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
    from fedloom.config.models import assign, parse_assignment, read_toml

    tree = read_toml(Path(options.config)) if options.config else {}
    for name, path in PATHS.items():
        if getattr(options, name) is not None:
            assign(tree, path, getattr(options, name))
    for text in options.set:
        assign(tree, *parse_assignment(text))
    return tree


def no_more(options: argparse.Namespace, what: str, own: list[str]) -> None:
    """Only a run of one method has flags beyond the common ones."""
    if options.rest:
        known = [*(flag.name for flag in FLAGS), *COMMON, *own]
        raise unknown(f"a flag of {what}", options.rest[0].removeprefix("--"), known)


def number(flag: str, text: str, kind: Any, least: int) -> Any:
    """A flag's value as a number."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf"):
        what = "a whole number" if kind is int else "a number"
        raise FedloomError(f"--{flag} must be {what} of at least {least}", f"got {text!r}", "see the command's --help")
    return value

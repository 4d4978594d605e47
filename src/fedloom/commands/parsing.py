"""How commands are declared: a parser whose errors are sentences, and flags that many share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fedloom.config.flags import FLAGS, PATHS, Flag
from fedloom.errors import OTHER_NAMES, FedloomError, unknown

Commands = Any  # argparse's own type of what add_subparsers returns has no public name
Handler = Callable[[argparse.Namespace], int]
COMMON = ("config", "set", "out", "json", "quiet")  # flags that set no configuration option


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FedloomError("the command line must be valid", message, f"see `{self.prog} --help`")


def add_command(commands: Commands, name: str, handler: Handler, summary: str) -> Parser:
    added: Parser = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    added.set_defaults(run=handler)
    added.add_argument("--debug", action="store_true", help="show where an error came from")
    return added


def add_group(commands: Commands, name: str, summary: str) -> Commands:
    """Declare `fedloom NAME ACTION`; the actions are added to what this returns."""
    parser = commands.add_parser(name, help=summary, description=summary)
    return parser.add_subparsers(
        dest="action",
        metavar="ACTION",
        required=True,
        parser_class=Parser,
    )


def common_flags(parser: Parser, other_help: Mapping[str, str] | None = None) -> None:
    """`other_help` replaces the help of flags that mean something else for this command."""
    other_help = other_help or {}
    for flag in FLAGS:
        add_flag(parser, flag._replace(help=other_help.get(flag.name, flag.help)))
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a TOML file of options; flags override it",
    )
    help_set = "set any option, e.g. options.lr=0.1"
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help=help_set)
    help_out = "the run's folder (default runs/<number>-<method>-<data>)"
    parser.add_argument("--out", metavar="DIR", help=help_out)
    output_flags(parser)


def add_flag(parser: argparse.ArgumentParser, flag: Flag) -> None:
    name = f"--{flag.name}"
    if flag.switch:
        parser.add_argument(name, help=flag.help, action="store_const", const=True)
        return
    action = "store"
    if flag.several:
        action = "append"
    parser.add_argument(name, metavar=flag.metavar, help=flag.help, action=action)


def output_flags(parser: Parser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object and nothing else",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def dry_run_flag(parser: Parser) -> None:
    help_dry = "estimate minutes, MACs, bytes and memory, and train nothing"
    parser.add_argument("--dry-run", action="store_true", help=help_dry)


def small_flag(parser: Parser) -> None:
    help_small = "give every search a size that two cores finish in minutes"
    parser.add_argument("--small", action="store_true", help=help_small)


def other_model_flags(parser: Parser) -> None:
    """Flags for models that a run has besides the shared one and those of its clients."""
    help_tier = "the network of this tier of devices"
    parser.add_argument("--tier", metavar="N", help=help_tier)
    help_search = "the network that `fedloom search` found, by its name"
    parser.add_argument("--search", metavar="NAME", help=help_search)


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """Options from the file, the flags and --set, each overriding the ones before."""
    from fedloom.config.assigning import assign, parse_assignment, read_toml

    tree: dict[str, Any] = {}
    if options.config:
        tree = read_toml(Path(options.config))
    for name, path in PATHS.items():
        if getattr(options, name) is not None:
            assign(tree, path, getattr(options, name))
    for text in options.set:
        path, value = parse_assignment(text)
        if "." not in path and is_method_option(path):
            rule = "--set must name an option with its section"
            raise FedloomError(rule, f"got {text}", f"try --set options.{text}")
        assign(tree, path, value)
    return tree


def refuse_unknown_flags(
    options: argparse.Namespace, command: str, command_flags: list[str]
) -> None:
    """Refuse unknown flags: only a run of one method has flags beyond the common ones."""
    if not options.rest:
        return
    names = [*common_names(), *command_flags]
    flag = options.rest[0].removeprefix("--").split("=")[0]
    option = OTHER_NAMES.get(flag, flag)  # our name of what other projects call differently
    if is_method_option(option) and option not in names:
        rule = f"a flag of {command} must be for all methods"
        option = option.replace("-", "_")
        advice = f"try --set options.{option}=VALUE, or NAME:{option}=VALUE for one method"
        raise FedloomError(rule, f"got --{flag}", advice)
    raise unknown(f"a flag of {command}", flag, names)


def is_method_option(flag: str) -> bool:
    """Whether most methods have an option of this name."""
    from fedloom.learning.training import TrainingOptions

    return flag.replace("-", "_") in TrainingOptions.model_fields


def common_names() -> list[str]:
    """Names of the flags that every run has, whatever its method."""
    return [*(flag.name for flag in FLAGS), *COMMON]


def number(flag: str, text: str, kind: Any, least: int) -> Any:
    """Parse a flag's value as a number of at least `least`."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf"):
        expected = "a number"
        if kind is int:
            expected = "a whole number"
        rule = f"--{flag} must be {expected} of at least {least}"
        raise FedloomError(rule, f"got {text!r}", "see the command's --help")
    return value


def optional_number(flag: str, text: str | None, kind: Any, least: int) -> Any:
    """Parse a flag's value as a number; None if the flag was not given."""
    if text is None:
        return None
    return number(flag, text, kind, least)


def optional_path(text: str | None) -> Path | None:
    """A flag's value as a path; None if the flag was not given."""
    if not text:
        return None
    return Path(text)

"""Options as users give them: TOML files, `--set a.b=c`, flags and keywords of the Python API.

They become nested dictionaries, which `validated` checks against the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedloom import reading
from fedloom.errors import FedloomError, shortened


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a configuration file, without validating it."""
    try:
        return reading.read_toml(path)
    except reading.Unreadable as error:
        rule = f"{path} must be a readable TOML file"
        raise FedloomError(rule, f"{error}", "correct it, or check --config") from None


def assign(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b = value` in nested dictionaries."""
    *sections, last = path.split(".")
    for section in sections:
        subtree = tree.setdefault(section, {})
        if not isinstance(subtree, dict):
            rule = f"`{path}` must name an option"
            raise FedloomError(rule, f"{section} is not a section", "see the list in --help")
        tree = subtree
    tree[last] = value


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `a.b=c`, as in --set."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        rule = "--set must look like a.b=value"
        raise FedloomError(rule, f"got {text!r}", "try --set options.lr=0.1")
    return path.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """Read lists, tables and null as JSON.

    Anything else stays text, which the schema converts to the option's type.
    """
    if text == "null":
        return None
    if not text.startswith(("[", "{")):
        return text
    try:
        return reading.bounded(reading.parse_json(text))
    except reading.Unreadable as error:
        problem = f"got {shortened(text, 80)!r}, and {error}"
        raise FedloomError("a list or table must be JSON", problem, "try [0.5, 0.5]") from None


def plain(value: Any) -> Any:
    """A keyword of the Python API as a file or flag would give it."""
    if isinstance(value, Path):
        return str(value)
    return value

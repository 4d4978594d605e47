"""`fedloom space show`: what a space's operations cost, and how the space is structured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import Commands, add_command, add_group, number
from fedloom.errors import FedloomError

if TYPE_CHECKING:
    from fedloom.report.space_tables import ShownSpace


def add(commands: Commands) -> None:
    actions = add_group(commands, "space", "look at a search space")
    summary = "show what every operation of a space costs, and how the space is structured"
    show = add_command(actions, "show", show_command, summary)
    show.add_argument("space", metavar="NAME|FILE.toml", help="a space, or a file that defines one")
    help_shape = "shape of a sample, or the length of a text (default: the space's usual one)"
    show.add_argument("--shape", metavar="CxHxW", help=help_shape)
    help_classes = "classes, or symbols of a text (default: the space's usual number)"
    show.add_argument("--classes", metavar="N", help=help_classes)
    help_head = "how the last feature map reaches the classifier (default mean)"
    show.add_argument("--head", choices=["mean", "grid"], help=help_head)
    help_json = "print one JSON object and nothing else"
    show.add_argument("--json", action="store_true", help=help_json)


def show_command(options: argparse.Namespace) -> int:
    return finish(options, lambda: shown_space(options))


def shown_space(options: argparse.Namespace) -> ShownSpace:
    from fedloom.report.space_tables import ShownSpace
    from fedloom.spaces import open_space

    space = open_space(options.space)
    example = space.example
    shape = example.shape
    if options.shape is not None:
        shape = parse_shape(options.shape)
    classes = example.classes
    if options.classes is not None:
        classes = number("classes", options.classes, int, 2)
    size = space.usual
    if options.head is not None:
        if not space.takes_head:
            rule = "--head needs networks that end in a map"
            raise FedloomError(rule, f"the networks of {space.title} do not", "leave it out")
        size = size._replace(head=options.head)
    table = space.cost_table(shape, classes, size)
    if table is None:
        rule = "a space must be a chain of layers to be shown by what each operation costs"
        advice = "choose another, such as those of `fedloom list spaces` that name their layers"
        raise FedloomError(rule, f"{space.title} is none", advice)
    return ShownSpace(space, shape, classes, table)


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse one or three whole numbers above 0."""
    lengths = text.lower().split("x")
    if len(lengths) in (1, 3) and all(is_length(length) for length in lengths):
        return tuple(int(length) for length in lengths)
    rule = "--shape must look like CxHxW, or be the length of a text"
    raise FedloomError(rule, f"got {text!r}", "try --shape 3x32x32")


def is_length(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) > 0

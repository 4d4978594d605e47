"""`fedloom data show NAME --partition …`.

It shows a split as a table in the terminal, draws it, and saves it as a file to use again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from fedloom.commands.parsing import add_flag
from fedloom.config.assigning import assign
from fedloom.config.flags import FLAGS
from fedloom.config.models import Experiment, validated
from fedloom.data.configured import configured_source, configured_split
from fedloom.data.showing.drawing import as_svg
from fedloom.data.showing.picture import Picture
from fedloom.data.showing.table import table
from fedloom.errors import FedloomError

FLAGS_OF_RUNS = (  # those that this command shares with `fedloom run`
    "data-dir",
    "resize",
    "fit",
    "skip-bad",
    "label",
    "task",
    "ignore",
    "categorical",
    "clients",
    "partition",
    "parts",
    "min-samples",
    "split",
    "seed",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME|PATH",
        help="a data set, as --data of `fedloom run` takes it",
    )
    for flag in FLAGS:
        if flag.name in FLAGS_OF_RUNS:
            add_flag(parser, flag)
    parser.add_argument("--out", metavar="FILE.svg", help="also draw it into this file")
    parser.add_argument("--save", metavar="FILE.json", help="keep it as a split file for --split")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object and nothing else",
    )


def show(options: argparse.Namespace) -> int:
    picture = picture_of(options)
    for text in picture.source.notices:
        print(f"note: {text}", file=sys.stderr)
    for file in picture.source.skipped:
        print(f"note: skipped {file.file}: {file.reason}", file=sys.stderr)
    if options.out is not None:
        write(Path(options.out), as_svg(picture))
    if options.save is not None:
        try:
            picture.split.save(Path(options.save))
        except OSError as error:
            raise unwritable(Path(options.save), error) from error
    if options.json:
        print(json.dumps(picture.to_json(), allow_nan=False), file=getattr(options, "stream", None))
    else:
        Console(markup=False, highlight=False).print(table(picture))
    return 0


def picture_of(options: argparse.Namespace) -> Picture:
    tree: dict[str, Any] = {"data": {"name": options.name}}
    for flag in FLAGS:
        if flag.name not in FLAGS_OF_RUNS:
            continue
        value = getattr(options, flag.name.replace("-", "_"), None)
        if value is not None:
            assign(tree, flag.path, value)
    config: Experiment = validated(Experiment, tree)
    source = configured_source(config.data)
    return Picture(source, configured_split(config.data, config.seed, source))


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> FedloomError:
    rule = f"{path} must be a file that can be written"
    return FedloomError(rule, f"{error.strerror}", "name another place")

"""A CSV that lists files, with the header `file,label[,client]`. Paths are relative to the CSV.

A CSV without a column `file` is a table of numbers and categories: see `table_files.py`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.image_rules import AS_THEY_ARE, ImageRules
from fedloom.data.labels import class_order
from fedloom.data.readers import speech
from fedloom.data.readers.image_files import SUFFIXES, is_picture
from fedloom.data.readers.pictures import picture_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

NEEDED = {"file", "label"}
OPTIONAL = {"client"}


class Row(NamedTuple):
    file: Path
    label: str
    client: str | None


def read_csv(path: Path, rules: ImageRules = AS_THEY_ARE) -> Source:
    """Reads the images or recordings that a CSV lists. The files' suffixes tell which they are."""
    rows = read_rows(path)
    suffixes = {row.file.suffix.lower() for row in rows}
    if suffixes == {".wav"}:
        recordings = speech.from_table(rows, skip_bad=rules.skip_bad)
        return replace(recordings, name=path.stem)
    for row in rows:
        if not is_picture(row.file.name):
            images = f"images ({', '.join(sorted(SUFFIXES))})"
            rule = f"the files of {path} must all be {images} or all be .wav"
            raise FedloomError(rule, f"there is {row.file}", "list one kind of file")
    files = [str(row.file) for row in rows]
    labels = [row.label for row in rows]
    clients = [row.client for row in rows if row.client is not None]
    if not clients:
        return picture_source(path.stem, files, labels, rules)
    names = class_order(set(clients))
    numbers = {name: number for number, name in enumerate(names)}
    groups = np.array([numbers[client] for client in clients], np.int64)
    return picture_source(
        path.stem,
        files,
        labels,
        rules,
        groups=groups,
        group_names=names,
        grouping="client",
    )


def read_rows(path: Path) -> list[Row]:
    """Reads all rows. Every file must exist, and be listed once."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream)
            header = [name.strip().lower() for name in next(lines, [])]
            check_header(path, header)
            rows = list(parsed(path, header, lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        rule = f"{path} must be a CSV in UTF-8"
        raise FedloomError(rule, f"it cannot be read ({error})", "save it again") from error
    if not rows:
        rule = f"{path} must list files"
        raise FedloomError(rule, "it has a header only", "add a row for each file")
    return rows


def check_header(path: Path, header: list[str]) -> None:
    form = "file,label or file,label,client"
    columns = set(header)
    if not NEEDED <= columns <= NEEDED | OPTIONAL or len(columns) != len(header):
        rule = f"{path} must have the columns {form}"
        problem = f"its header is {','.join(header)}"
        raise FedloomError(rule, problem, "rename or remove the others")


def parsed(path: Path, header: list[str], lines: Iterator[list[str]]) -> Iterator[Row]:
    home = path.resolve().parent
    seen: dict[str, int] = {}  # the row of each file
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        values = [cell.strip() for cell in cells]
        if len(values) != len(header) or not all(values):
            rule = f"row {number} of {path} must have a value for each of {','.join(header)}"
            raise FedloomError(rule, f"it is {','.join(cells)!r}", "fill it in or remove it")
        by_column = dict(zip(header, values, strict=True))
        file = os.path.normpath(home / by_column["file"])
        if file in seen:
            rule = f"{path} must list every file once"
            problem = f"{by_column['file']} is in rows {seen[file]} and {number}"
            raise FedloomError(rule, problem, "remove one")
        seen[file] = number
        if not os.path.isfile(file):
            rule = f"row {number} of {path} must name a file"
            advice = "correct the path, which is relative to the CSV"
            raise FedloomError(rule, f"there is no {file}", advice)
        yield Row(Path(file), by_column["label"], by_column.get("client"))

"""A CSV that lists files: `file,label[,client]`, with that header, paths relative to the CSV."""

from __future__ import annotations

import csv
import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.readers.pictures import SUFFIXES, class_order, is_picture, picture_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

NEEDED, OPTIONAL = ("file", "label"), ("client",)


class Row(NamedTuple):
    file: Path
    label: str
    client: str | None


def read_csv(path: Path) -> Source:
    """Images or recordings, by the files' suffixes."""
    rows = read_rows(path)
    suffixes = {row.file.suffix.lower() for row in rows}
    if suffixes == {".wav"}:
        source: Source = importlib.import_module("fedloom.data.readers.speech").from_table(rows)
        return replace(source, name=path.stem)
    odd = next((row.file for row in rows if not is_picture(row.file.name)), None)
    if odd is not None:
        must = f"the files of {path} must all be images ({', '.join(sorted(SUFFIXES))}) or all be .wav"
        raise FedloomError(must, f"there is {odd}", "list one kind of file")
    files, labels = [str(row.file) for row in rows], [row.label for row in rows]
    clients = [row.client for row in rows if row.client is not None]
    if not clients:
        return picture_source(path.stem, files, labels)
    names = class_order(set(clients))
    number = {name: index for index, name in enumerate(names)}
    groups = np.fromiter((number[client] for client in clients), np.int64, len(clients))
    return picture_source(path.stem, files, labels, groups=groups, group_names=names, grouping="client")


def read_rows(path: Path) -> list[Row]:
    """All rows, checked: every file is there, and once."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream)
            header = [name.strip().lower() for name in next(lines, [])]
            check_header(path, header)
            rows = list(parsed(path, header, lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FedloomError(f"{path} must be a CSV in UTF-8", f"it cannot be read ({error})", "save it again") from error
    if not rows:
        raise FedloomError(f"{path} must list files", "it has a header only", "add a row for each file")
    return rows


def check_header(path: Path, header: list[str]) -> None:
    if "file" not in header:
        must = f"{path} must list image or .wav files under the header file,label or file,label,client"
        found = f"its header is {','.join(header) or 'empty'}"
        raise FedloomError(must, found, "name the columns; tabular data is outside FedLoom's limits")
    known = {*NEEDED, *OPTIONAL}
    if not set(NEEDED) <= set(header) <= known or len(set(header)) != len(header):
        must = f"{path} must have the columns file,label or file,label,client"
        raise FedloomError(must, f"its header is {','.join(header)}", "rename or remove the others")


def parsed(path: Path, header: list[str], lines: Iterator[list[str]]) -> Iterator[Row]:
    home, seen = path.resolve().parent, dict[str, int]()
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        if len(cells) != len(header) or not all(values.values()):
            must = f"row {number} of {path} must have a value for each of {','.join(header)}"
            raise FedloomError(must, f"it is {','.join(cells)!r}", "fill it in or remove it")
        file = os.path.normpath(home / values["file"])
        if file in seen:
            must = f"{path} must list every file once"
            raise FedloomError(must, f"{values['file']} is in rows {seen[file]} and {number}", "remove one")
        seen[file] = number
        if not os.path.isfile(file):
            must = f"row {number} of {path} must name a file"
            raise FedloomError(must, f"there is no {file}", "correct the path, which is relative to the CSV")
        yield Row(Path(file), values["label"], values.get("client"))

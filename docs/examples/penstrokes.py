"""A data set in a format of its own: a text file in which every line is one drawn digit.

    writer,part,digit,pixel,pixel,…      ada,train,7,0,0,5,13,…

There are 8×8 pixels of 0 to 16. `part` is train or test: the data set's own test part.
"""

from pathlib import Path

import numpy as np

from fedloom.data.sources import Source
from fedloom.errors import FedloomError

FILE = "penstrokes.csv"
SIDE = 8
PARTS = {"train": 0, "validation": 1, "test": 2}
MEAN = 4.88  # of all pixels of the training part, in raw units
STD = 6.02


def penstrokes(directory: Path | None = None) -> Source:
    """Digits of 8×8 pixels, with who wrote each of them."""
    file = (directory or Path()) / FILE
    if not file.is_file():
        raise FedloomError(f"{file} must be a file", "there is none", "check --data-dir")
    writers: dict[str, int] = {}  # numbered in the order they first appear in
    pixels = []
    digits = []
    writer_numbers = []
    parts = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split(",")
        check_line(f"{file}, line {number},", cells)
        writer, part, digit, *values = cells
        writer_numbers.append(writers.setdefault(writer, len(writers)))
        parts.append(PARTS[part])
        digits.append(int(digit))
        pixels.append([int(value) for value in values])
    return Source(
        "penstrokes",
        np.array(pixels, np.uint8).reshape(-1, 1, SIDE, SIDE),
        np.array(digits, np.int64),
        labels=tuple("0123456789"),
        mean=(MEAN,),
        std=(STD,),
        groups=np.array(writer_numbers, np.int64),
        group_names=tuple(writers),
        grouping="writer",
        official=np.array(parts, np.uint8),
    )


def check_line(where: str, cells: list[str]) -> None:
    expected = 3 + SIDE * SIDE
    if len(cells) != expected:
        rule = f"{where} must have {expected} values"
        raise FedloomError(rule, f"it has {len(cells)}", "correct or remove the line")
    if cells[1] not in PARTS:
        rule = f"{where} must name its part: {', '.join(PARTS)}"
        raise FedloomError(rule, f"it says {cells[1]!r}", "correct or remove the line")
    for cell in cells[2:]:
        if not (cell.isascii() and cell.isdigit() and int(cell) <= 255):
            rule = f"{where} must have whole numbers from 0 to 255 after its part"
            raise FedloomError(rule, f"it has {cell!r}", "correct or remove the line")

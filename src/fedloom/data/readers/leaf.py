"""LEAF's JSON: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018; here of its text, Shakespeare.

A file is `{"users": […], "num_samples": […], "user_data": {user: {"x": [80 characters, …], "y": [1 character, …]}}}`.
A folder holds such files, or LEAF's own `train` and `test` folders of them, which become the official parts. Users are
the groups; one who is in several files has the samples of all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedloom.data.readers.text import alphabet_of, decoded, numbered, spelled
from fedloom.data.source import Source
from fedloom.errors import FedloomError

PARTS = {"train": 0, "test": 2}  # folders, and what their samples officially are
FORM = '{"users": […], "num_samples": […], "user_data": {user: {"x": […], "y": […]}}}'


class Owned(NamedTuple):
    """One user's samples in one file."""

    file: Path
    user: str
    x: list[str]
    y: list[str]
    part: int


def is_leaf(path: Path) -> bool:
    """Whether this is a JSON file, or a folder with nothing but them where LEAF has them."""
    return path.suffix.lower() == ".json" or any(map(only_json, (path, *parts_of(path))))


def only_json(folder: Path) -> bool:
    """A folder of images may hold a JSON file beside them."""
    seen = [entry for entry in folder.iterdir() if not entry.name.startswith(".")] if folder.is_dir() else []
    return bool(seen) and all(entry.suffix == ".json" for entry in seen)


def parts_of(folder: Path) -> dict[Path, int]:
    return {folder / name: number for name, number in PARTS.items()}


def read_path(path: Path) -> Source:
    """One file; the files of a folder's parts, or the folder's own."""
    if path.is_file():
        return joined(path, path.stem, owned(path, 0))
    files = [(file, number) for part, number in parts_of(path).items() for file in sorted(part.glob("*.json"))]
    files = files or [(file, 0) for file in sorted(path.glob("*.json"))]
    return joined(path, path.resolve().name, [one for file, number in files for one in owned(file, number)])


def joined(where: Path, name: str, everything: Sequence[Owned]) -> Source:
    some = [one for one in everything if one.y]
    if not some:
        raise FedloomError(f"{where} must have at least one sample", "it has none", "add users with text")
    window = len(some[0].x[0])
    for one in some:
        odd = next((text for text in one.x if len(text) != window), None)
        if odd is not None:
            raise malformed(one.file, f"{one.user!r} has an x of {len(odd)} characters where the first has {window}")
    inputs, labels = "".join(text for one in some for text in one.x), "".join(text for one in some for text in one.y)
    alphabet, sizes = alphabet_of(where, [inputs, labels]), [len(one.y) for one in some]
    users = {user: number for number, user in enumerate(dict.fromkeys(one.user for one in some))}
    official = np.repeat([one.part for one in some], sizes).astype(np.uint8)
    return Source(
        name, numbered(inputs, alphabet).reshape(-1, window), numbered(labels, alphabet).astype(np.int64),
        spelled(alphabet), kind="text", groups=np.repeat([users[one.user] for one in some], sizes),
        group_names=tuple(users), grouping="user", official=official if official.any() else None,
    )  # fmt: skip


def owned(file: Path, part: int) -> list[Owned]:
    """What each user of a file has, checked."""
    raw = parsed(file)
    users, sizes, data = (raw.get(key) for key in ("users", "num_samples", "user_data"))
    if not isinstance(users, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise malformed(file, f"its keys are {', '.join(map(str, raw)) or 'none'}")
    if not all(isinstance(user, str) for user in users):
        raise malformed(file, "it lists a user that is no text")
    if len(sizes) != len(users) or sorted(users) != sorted(data):
        raise malformed(file, f"it lists {len(users)} users and {len(sizes)} sizes, and has data of {len(data)}")
    return [
        Owned(file, user, *samples(file, user, data[user], size), part) for user, size in zip(users, sizes, strict=True)
    ]


def parsed(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(decoded(file))
    except (ValueError, RecursionError) as error:
        raise malformed(file, f"it is not JSON ({' '.join(str(error).split()) or 'nested too deep'})") from error
    if not isinstance(raw, dict):
        raise malformed(file, f"it holds a {type(raw).__name__}")
    return raw


def samples(file: Path, user: str, data: Any, size: Any) -> tuple[list[str], list[str]]:
    x, y = (data.get(key) if isinstance(data, dict) else None for key in ("x", "y"))
    for key, values in (("x", x), ("y", y)):
        if not isinstance(values, list):
            raise malformed(file, f"{user!r} has no list {key}")
        if not all(isinstance(value, str) and value for value in values):
            raise malformed(file, f"{user!r} has something else than text in {key}")
    assert isinstance(x, list) and isinstance(y, list)
    if not len(x) == len(y) == size:
        raise malformed(file, f"{user!r} has {len(x)} x and {len(y)} y where {size} are promised")
    if any(len(symbol) != 1 for symbol in y):
        raise malformed(file, f"{user!r} has a y of more than one character")
    return x, y


def malformed(file: Path, found: str) -> FedloomError:
    return FedloomError(f"{file} must be LEAF's JSON of a text, {FORM}", found, "write it as LEAF does")

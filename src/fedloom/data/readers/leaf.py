"""LEAF's JSON: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.

Only LEAF's text, Shakespeare, is read. A file is

    {"users": […], "num_samples": […],
     "user_data": {user: {"x": [80 characters, …], "y": [1 character, …]}}}

A folder holds such files, or LEAF's own `train` and `test` folders of them, which become the
official parts. Users are the groups. A user in several files has the samples of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedloom.data.readers.text import alphabet_of, decoded, numbered, spelled
from fedloom.data.source import Source
from fedloom.errors import FedloomError

PARTS = {"train": 0, "test": 2}  # folders, and what their samples officially are
FORM = '{"users": […], "num_samples": […], "user_data": {user: {"x": […], "y": […]}}}'


class UserSamples(NamedTuple):
    """One user's samples in one file."""

    file: Path
    user: str
    x: list[str]
    y: list[str]
    part: int


def is_leaf(path: Path) -> bool:
    """Whether this is a JSON file, or a folder with only JSON files where LEAF puts them."""
    if path.suffix.lower() == ".json" or only_json(path):
        return True
    return any(only_json(path / name) for name in PARTS)


def only_json(folder: Path) -> bool:
    """Whether a folder has JSON files and nothing else. Images may have a JSON file beside them."""
    if not folder.is_dir():
        return False
    shown = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    return bool(shown) and all(entry.suffix == ".json" for entry in shown)


def read_path(path: Path) -> Source:
    """Reads one file, or the files in a folder's parts, or else those in the folder itself."""
    if path.is_file():
        return joined(path, path.stem, read_users(path, 0))
    entries: list[UserSamples] = []
    has_parts = False
    for folder, part in PARTS.items():
        for file in sorted((path / folder).glob("*.json")):
            has_parts = True
            entries += read_users(file, part)
    if not has_parts:
        for file in sorted(path.glob("*.json")):
            entries += read_users(file, 0)
    return joined(path, path.resolve().name, entries)


def joined(where: Path, name: str, entries: Sequence[UserSamples]) -> Source:
    """Joins the samples of all users. Entries without samples are left out."""
    nonempty = [entry for entry in entries if entry.y]
    if not nonempty:
        rule = f"{where} must have at least one sample"
        raise FedloomError(rule, "it has none", "add users with text")
    window = len(nonempty[0].x[0])
    for entry in nonempty:
        check_windows(entry, window)
    inputs = "".join("".join(entry.x) for entry in nonempty)
    labels = "".join("".join(entry.y) for entry in nonempty)
    alphabet = alphabet_of(where, [inputs, labels])
    sizes = [len(entry.y) for entry in nonempty]
    users: dict[str, int] = {}  # numbered in the order of their first entry
    for entry in nonempty:
        users.setdefault(entry.user, len(users))
    source = Source(
        name,
        numbered(inputs, alphabet).reshape(-1, window),
        numbered(labels, alphabet).astype(np.int64),
        spelled(alphabet),
        kind="text",
        groups=np.repeat([users[entry.user] for entry in nonempty], sizes),
        group_names=tuple(users),
        grouping="user",
    )
    official = np.repeat([entry.part for entry in nonempty], sizes).astype(np.uint8)
    if not official.any():
        return source
    return replace(source, official=official)


def check_windows(entry: UserSamples, window: int) -> None:
    for text in entry.x:
        if len(text) != window:
            length = f"an x of {len(text)} characters where the first has {window}"
            raise malformed(entry.file, f"{entry.user!r} has {length}")


# One file


def read_users(file: Path, part: int) -> list[UserSamples]:
    """Reads the samples of each user of a file, and checks them."""
    raw = parsed(file)
    users = raw.get("users")
    sizes = raw.get("num_samples")
    data = raw.get("user_data")
    if not isinstance(users, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise malformed(file, f"its keys are {', '.join(map(str, raw)) or 'none'}")
    if not all(isinstance(user, str) for user in users):
        raise malformed(file, "it lists a user that is not text")
    if len(sizes) != len(users) or sorted(users) != sorted(data):
        listed = f"{len(users)} users and {len(sizes)} sizes"
        raise malformed(file, f"it lists {listed}, and has data of {len(data)} users")
    entries = []
    for user, size in zip(users, sizes, strict=True):
        entries.append(read_user(file, user, data[user], size, part))
    return entries


def parsed(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(decoded(file))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or "nested too deep"
        raise malformed(file, f"it is not JSON ({reason})") from error
    if not isinstance(raw, dict):
        raise malformed(file, f"it holds a {type(raw).__name__}")
    return raw


def read_user(file: Path, user: str, data: Any, size: Any, part: int) -> UserSamples:
    x = texts(file, user, data, "x")
    y = texts(file, user, data, "y")
    if not len(x) == len(y) == size:
        counts = f"{len(x)} x and {len(y)} y where {size} are promised"
        raise malformed(file, f"{user!r} has {counts}")
    if any(len(symbol) != 1 for symbol in y):
        raise malformed(file, f"{user!r} has a y of more than one character")
    return UserSamples(file, user, x, y, part)


def texts(file: Path, user: str, data: Any, key: str) -> list[str]:
    values = None
    if isinstance(data, dict):
        values = data.get(key)
    if not isinstance(values, list):
        raise malformed(file, f"{user!r} has no list {key}")
    if not all(isinstance(value, str) and value for value in values):
        raise malformed(file, f"{user!r} has something other than text in {key}")
    return values


def malformed(file: Path, problem: str) -> FedloomError:
    rule = f"{file} must be LEAF's JSON of a text, {FORM}"
    return FedloomError(rule, problem, "write it as LEAF does")

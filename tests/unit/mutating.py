"""Files as a careless editor, a wrong tool or a bad disk leaves them.

This is a bounded, repeatable stream of mutations.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w

DEEP = 3000  # more than Python's own recursion limit
PIECES = [
    b"\x00",
    b"\xff",
    b"\xc3\x28",
    b"\n",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"=",
    b"-",
    b"1e999",
    b"9" * 5000,
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Values that no option expects, each of another kind.
ODD_NUMBERS = [
    0, -1, 1, 2, 1.5, -0.0, 1e308, -1e308, 5e-324, 10**9, 10**18, 2**63, 2**64, 10**30, 10**320,
    float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
ODD_TEXTS = [
    "", " ", "x", "0", "-1", "1e9", "1" * 5000, "inf", "nan", "null", "\0", "a\0b", "ü" * 300,
    "\ud800", "a" * 70_000,
    "/", ".", "..", "../..", "file.py:Name", "/nowhere/file.py:Name", "nowhere.json", "/dev/null",
    "~", "a,b", "a:b",
    "a:b=c", "darts:s2:9999999", "supernet:s2:999999:1", "dirichlet:1e400", "clustered:9x9", "meta",
    "cuda:99",
]  # fmt: skip
ODD_SHAPES: list[Any] = [
    None, True, False, [], [[]], {}, {"": 1}, {"a": {"b": []}}, [1, "2", None], [float("nan")],
    ["a", ["b"]],
    nested(40), [0] * 2000,
]  # fmt: skip
ODD_VALUES: list[Any] = [*ODD_NUMBERS, *ODD_TEXTS, *ODD_SHAPES]


def mutated_bytes(draw: random.Random, content: bytes) -> bytes:
    """One change that knows nothing of the format."""
    if not content:
        return draw.choice(PIECES)
    place = draw.randrange(len(content))
    length = draw.choice([1, 2, 5, 50, 400])
    kind = draw.randrange(7)
    if kind == 0:  # one flipped bit
        flipped = content[place] ^ (1 << draw.randrange(8))
        return content[:place] + bytes([flipped]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + draw.choice(PIECES) + content[place:]
    if kind == 3:
        return content[:place] + content[place + length :]
    if kind == 4:  # a piece twice
        return content[: place + length] + content[place:]
    if kind == 5:  # a page of zeros, as after a power cut
        return (
            content[:place] + bytes(min(length, len(content) - place)) + content[place + length :]
        )
    return content[:place] + draw.choice([b"[", b'{"a":', b"[["]) * DEEP + content[place:]


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of nested dictionaries and lists; of a long list only some."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        here = waiting.pop()
        keys: list[Any] = list(here) if isinstance(here, dict) else list(range(min(len(here), 6)))
        for key in keys:
            places.append((here, key))
            if isinstance(here[key], dict | list):
                waiting.append(here[key])
    return places


def mutated_tree(draw: random.Random, tree: Any) -> Any:
    """One change to what the file says."""
    tree = copy.deepcopy(tree)
    container, key = draw.choice(places_in(tree))
    kind = draw.randrange(8)
    if kind <= 3:
        container[key] = draw.choice(ODD_VALUES)
    elif kind == 4:
        del container[key]
    elif kind == 5:
        container[key] = draw.choice(
            [[container[key]], {"a": container[key]}, [container[key]] * 3]
        )
    elif kind == 6 and isinstance(container, dict):
        container[draw.choice(["", "x", f"{key}_", str(key).upper(), "__class__"])] = container.pop(
            key
        )
    else:  # another's value
        other, name = draw.choice(places_in(tree))
        container[key] = copy.deepcopy(other[name])
    return tree


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def as_toml(tree: Any) -> bytes:
    return tomli_w.dumps(storable(tree)).encode("utf-8", "surrogatepass")


def storable(value: Any) -> Any:
    """TOML has no null."""
    if isinstance(value, dict):
        return {str(key): storable(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [storable(part) for part in value if part is not None]
    return value


def with_a_key_twice(draw: random.Random, content: bytes) -> bytes:
    """A line of the file, or a member of its first object, again."""
    lines = content.split(b"\n")
    number = draw.randrange(len(lines))
    if len(lines) > 3:
        return b"\n".join([*lines[: number + 1], *lines[number:]])
    first = content.find(b"{") + 1
    end = content.find(b",", first) + 1
    return content[:end] + content[first:end] + content[end:]


def mutations(
    content: bytes, tree: Any, write: Callable[[Any], bytes], count: int, seed: int = 0
) -> Iterator[bytes]:
    """`count` broken versions of a file: half of them changed as text, half as what it says."""
    draw = random.Random(seed)
    for number in range(count):
        if number % 2 == 0:
            yield mutated_bytes(draw, content)
        elif number % 20 == 1:
            yield with_a_key_twice(draw, content)
        else:
            yield write(mutated_tree(draw, tree))

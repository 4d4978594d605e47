"""The split file: each client's test part and the fixed order of its other samples.

Every method that is given the same split file works on the same parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedloom.data.partition import parse
from fedloom.data.partition import partition as dealt
from fedloom.data.parts import TEST, check_shares, official_first, own_order, size_of_test
from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_large_json
from fedloom.rng import rng

FORMAT = "fedloom split 1"
ARRAYS = ("indices", "offsets", "tests", "server")
FACTS = {
    "data": str,
    "digest": str,
    "samples": int,
    "partition": str,
    "seed": int,
    "test_share": float,
}
KEYS = {"format", "hash", *FACTS, *ARRAYS}


@dataclass(frozen=True, eq=False)  # arrays have no truth value; compare hashes
class Split:
    """Who holds which samples, as flat arrays: 10^5 clients then need no Python objects."""

    data: str
    digest: str  # of the source
    samples: int  # in the source
    partition: str
    seed: int
    test_share: float
    # Indices into the source, client by client: its test part, then the rest in random order.
    indices: np.ndarray
    offsets: np.ndarray  # [clients+1]: where each client's slice of `indices` begins
    tests: np.ndarray  # [clients]: the size of each client's test part
    server: np.ndarray  # the central validation set, set aside before partitioning; may be empty

    def __len__(self) -> int:
        return len(self.tests)

    def client(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns client k's samples to train and validate on, and its test samples.

        Both are indices into the source.
        """
        return client_slices(self.indices, self.offsets, self.tests, k)

    def check(self, source: Source) -> None:
        """Refuses data other than that of which the split was made."""
        if self.digest != source.digest:
            rule = f"the split must be of the data {source.name} as it is now"
            digests = f"digest {self.digest[:12]}, not {source.digest[:12]}"
            problem = f"it was made of {self.data} with {digests}"
            advice = "give the data it was made of, with the same --resize, or make a new split"
            raise FedloomError(rule, problem, advice)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the file's JSON without its `hash`, keys sorted, no spaces."""
        return hash_of(self.content())

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = {"format": FORMAT}
        for name in FACTS:
            content[name] = getattr(self, name)
        for name in ARRAYS:
            content[name] = getattr(self, name).tolist()
        return content

    def save(self, path: Path) -> None:
        """Replaces the file at once: readers see either the old content or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = canonical({**self.content(), "hash": self.hash}) + "\n"
        write_whole(path, [text.encode()], durable=True)

    @classmethod
    def load(cls, path: Path) -> Split:
        fields = read(path)
        for name in ARRAYS:
            fields[name] = array(path, name, fields[name])
        split = cls(**fields)
        problem = inconsistency(split)
        if problem:
            raise refused(path, problem)
        return split


def make_split(
    source: Source,
    clients: int | None,
    partition: str,
    seed: int,
    *,
    test: float = 0.2,
    min_samples: int = 10,
    server_share: float = 0.0,
    parts: str | None = None,
) -> Split:
    """Deals the samples out to clients, and chooses each client's test part.

    If `parts` is "official", a client's test part are those of its samples that belong to the data
    set's own test part. Otherwise it is a random share.
    """
    check_shares(test, server_share, min_samples)
    shuffled = rng(seed, "server").permutation(len(source.y))
    if parts == "official" and source.official is not None:
        # Validation samples must not come from the test part, if there are others.
        shuffled = shuffled[np.argsort(source.official[shuffled] == TEST, kind="stable")]
    carved = 0  # samples of the central validation set
    if server_share:
        carved = max(1, round(server_share * len(shuffled)))
    samples_by_client = dealt(source, shuffled[carved:], clients, partition, seed, min_samples)
    sizes = np.array([len(samples) for samples in samples_by_client])
    orders = []
    for k, samples in enumerate(samples_by_client):
        orders.append(samples[own_order(seed, k, len(samples))])
    tests = np.array([size_of_test(int(size), test) for size in sizes])
    if parts == "official":
        orders, tests = official_first(source, orders)
        test = float(tests.sum() / sizes.sum())
    return Split(
        data=source.name,
        digest=source.digest,
        samples=len(source.y),
        partition=str(parse(partition)),
        seed=seed,
        test_share=float(test),
        indices=np.concatenate(orders),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tests=tests,
        server=np.sort(shuffled[:carved]),
    )


class ClientPart(NamedTuple):
    """Some samples of one client, as indices into the source."""

    test: np.ndarray
    rest: np.ndarray  # in their order


def split_of(split: Split, parts: Sequence[ClientPart], partition: str) -> Split:
    """Returns a split of the same data with these clients and samples only."""
    indices = []
    for part in parts:
        indices += [part.test, part.rest]
    tests = np.array([len(part.test) for part in parts])
    sizes = np.array([len(part.test) + len(part.rest) for part in parts])
    return replace(
        split,
        partition=partition,
        test_share=float(tests.sum() / sizes.sum()),
        indices=np.concatenate(indices),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tests=tests,
        server=np.zeros(0, np.int64),
    )


def client_slices(
    indices: np.ndarray,
    offsets: np.ndarray,
    tests: np.ndarray,
    k: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns client k's indices: those of the rest, and those of its test part."""
    if not 0 <= k < len(tests):
        raise IndexError(f"client {k} of {len(tests)}")
    own = indices[offsets[k] : offsets[k + 1]]
    return own[tests[k] :], own[: tests[k]]


def canonical(content: dict[str, Any]) -> str:
    """Returns the one JSON text of this content: keys sorted, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def hash_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def refused(path: Path, problem: str) -> FedloomError:
    rule = f"{path} must be a split file as fedloom wrote it"
    return FedloomError(rule, problem, "restore it or make a new one")


def read(path: Path) -> dict[str, Any]:
    """Returns the file's content. Refuses missing or additional keys, and a wrong hash."""
    try:
        raw = read_large_json(path)
    except Unreadable as error:
        raise refused(path, f"{error}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise refused(path, f"it does not say {FORMAT!r}")
    if set(raw) != KEYS:
        missing = ", ".join(sorted(KEYS - set(raw)))
        surplus = ", ".join(sorted(set(raw) - KEYS))
        raise refused(path, f"it lacks keys ({missing}) or has unknown ones ({surplus})")
    if raw.pop("hash") != hash_of(raw):
        raise refused(path, "its hash does not match its content: it was damaged or edited")
    for name, kind in FACTS.items():
        if type(raw[name]) is not kind:
            raise refused(path, f"{name} is {raw[name]!r}")
    return {name: raw[name] for name in (*FACTS, *ARRAYS)}


def array(path: Path, name: str, values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise refused(path, f"{name} is not a list of integers")
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise refused(path, f"{name} has an integer beyond 64 bits") from error


def inconsistency(split: Split) -> str | None:
    """Returns what is wrong with a split. None: every index is in range and occurs once."""
    try:
        parse(split.partition)
    except FedloomError:
        return f"its partition is {split.partition!r}"
    if not 0 < split.test_share < 1:
        return f"its test_share is {split.test_share}"
    offsets = split.offsets
    if len(offsets) != len(split.tests) + 1:
        return "its offsets do not match its indices"
    if offsets[0] != 0 or offsets[-1] != len(split.indices):
        return "its offsets do not match its indices"
    sizes = np.diff(offsets)
    if len(split) == 0 or sizes.min() < 2:
        return "a client has no test part or nothing beside it"
    if (split.tests < 1).any() or (split.tests >= sizes).any():
        return "a client has no test part or nothing beside it"
    used = np.sort(np.concatenate([split.indices, split.server]))
    if used[0] < 0 or used[-1] >= split.samples:
        return f"an index lies outside 0..{split.samples - 1}"
    repeated = used[1:][np.diff(used) == 0]
    if len(repeated):
        return f"sample {repeated[0]} is in two places"
    return None

"""The label counts that a client reports: exact, or with noise that only its site can repeat.

Counts are whole numbers, so the noise follows the discrete Laplace distribution, P(k) ∝ e^(−E|k|):
one sample more or less in one count (sensitivity 1) makes any report at most e^E times as likely.

Every label has a draw of its own, derived from a secret of the site with the key (E, the site's own
name of the label, its count). So a client reports the same in every stage, run and resume, and a
server that asks again, in another order, with more labels or under another number learns nothing
more. Another E or another count give another draw, because one draw scaled for two values of E
would reveal the counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from math import floor, log

import numpy as np

from fedloom.config.histograms import NONE, HistogramRule

SENSITIVITY = 1  # one sample added or removed changes one count by one
MOST_COUNT = 1 << 40  # of one label; a larger count cannot be true
WORD = 8  # bytes of one uniform number
BITS = 53  # how many of its bits a float can hold


def histogram_of(
    labels: np.ndarray,
    names: Sequence[str],
    rule: HistogramRule,
    secret: bytes,
) -> list[int]:
    """The label counts that a client reports, one per class.

    `names` are the names of the classes at the client. Without noise they do not matter.
    """
    counts: list[int] = np.bincount(labels, minlength=len(names)).tolist()
    if not rule.is_noisy:
        return counts
    assert rule.epsilon is not None  # `laplace` always has one
    reported = []
    for name, count in zip(names, counts, strict=True):
        noise = discrete_laplace(rule.epsilon, stream_of(secret, rule.epsilon, name, count))
        reported.append(max(0, count + next(noise)))
    return reported


def discrete_laplace(epsilon: float, uniform: Iterator[float]) -> Iterator[int]:
    """Draws from P(k) ∝ e^(−E|k|), as differences of two geometric draws.

    P(⌊−ln U / E⌋ = g) = (1 − e^(−E)) e^(−E g) for U uniform in (0, 1].
    """
    while True:
        first = floor(-log(next(uniform)) / epsilon)
        second = floor(-log(next(uniform)) / epsilon)
        yield first - second


def stream_of(secret: bytes, epsilon: float, label: str, count: int) -> Iterator[float]:
    """Uniform numbers in (0, 1] that cannot be predicted without the secret.

    They come from a keyed hash, block by block, and not from the seeds, which the server knows.
    """
    name = json.dumps(["histogram", repr(epsilon), label, count])
    block = 0
    while True:
        keyed = hashlib.blake2b(f"{name}/{block}".encode(), key=secret)
        digest_bytes = keyed.digest()
        for begin in range(0, len(digest_bytes), WORD):
            word = int.from_bytes(digest_bytes[begin : begin + WORD], "little")
            number = word >> (8 * WORD - BITS)
            yield (number + 1) * 2.0**-BITS
        block += 1


def simulated_secret(seed: int, client: int) -> bytes:
    """A client's secret in a simulation, which has no sites: equal seeds give equal runs."""
    return hashlib.sha256(f"secret of a simulation/{seed}/{client}".encode()).digest()


def refuse_histogram(row: object, requested: HistogramRule | None, classes: int) -> str | None:
    """Why the label counts in a description cannot be used, or None."""
    if requested is None or requested.mechanism == NONE:
        if row is None:
            return None
        return "its histogram: the run did not ask for it"
    if not isinstance(row, list | tuple) or len(row) != classes:
        return f"its histogram: it must have one count for each of the {classes} labels"
    for count in row:
        if type(count) is not int or not 0 <= count <= MOST_COUNT:
            return "its histogram: every count must be a whole number, not below 0"
    return None

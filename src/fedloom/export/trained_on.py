"""How many of some samples a finished run has trained on: of those, its figures are no test.

Samples are the same if all their values are, as a client of the run sees them. They are compared
by a hash, so that a large training set costs 16 bytes a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from fedloom.export.finished import Finished

DIGEST_BYTES = 16


@dataclass(frozen=True)
class TrainedOn:
    """`among`: whose training samples were looked at; those of a federation are at its sites."""

    samples: int | None  # None: it cannot be told
    among: Literal["run", "site"] | None

    def sentence(self, given: int) -> str:
        """In words; `given`: how many samples there are."""
        if self.samples is None:
            reason = "a federation's training samples stay at its sites"
            return f"Whether the run trained on these samples cannot be told: {reason}."
        who = "the run"
        limits = ""
        if self.among == "site":
            who = "this site"
            limits = " What other sites trained on cannot be told."
        if self.samples == 0:
            return f"{who.capitalize()} trained on none of these {given:,} samples.{limits}"
        trained = f"{who} trained on {self.samples:,} of these {given:,} samples"
        return f"NOT A FAIR TEST: {trained}.{limits}"


def trained_on(finished: Finished, x: torch.Tensor) -> TrainedOn:
    """Of the samples `x`, as many as are in the training part of some client."""
    if finished.site is None:
        return TrainedOn(None, None)
    among: Literal["run", "site"] = "run"
    clients = range(finished.clients)
    if finished.here is not None:
        among = "site"
        clients = range(finished.here, finished.here + 1)
    training: set[bytes] = set()
    for client in clients:
        training.update(digests(finished.site.data(client).train.x))
    known = [digest in training for digest in digests(x)]
    return TrainedOn(sum(known), among)


def digests(x: torch.Tensor) -> Iterator[bytes]:
    """One for each sample; equal values have equal ones, be they bytes or fractions."""
    for sample in x:
        values = sample.to(torch.float64).contiguous().numpy()  # which holds either of them exactly
        yield hashlib.blake2b(values.tobytes(), digest_size=DIGEST_BYTES).digest()

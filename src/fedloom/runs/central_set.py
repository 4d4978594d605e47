"""`fedloom search --data`: the user's own samples, to score paths on.

A federation's server has no samples. Scores on the user's samples cannot be compared with those of
the run, so they are stored separately, under a digest of the samples.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.export.newdata import Expected, labelled_samples, unlabelled
from fedloom.records.searches import ScoringData

LEAST_SAMPLES = 2  # a batch's statistics need at least two


@dataclass(frozen=True)
class CentralSet:
    samples: Samples
    about: ScoringData


def open_central_set(expected: Expected, data: str, directory: Path | None) -> CentralSet:
    """Read all samples of a source; samples of another form than the run's are refused."""
    if expected.task.kind != "text" and unlabelled(data, directory) is not None:
        raise FedloomError(
            f"--data {data} must have labels to score paths by",
            "it has none",
            "save them as y beside x",
        )
    new = labelled_samples(expected, data, directory)
    assert new.y is not None
    samples = Samples(new.x, new.y)
    if len(samples) < LEAST_SAMPLES:
        rule = f"--data {data} must have at least {LEAST_SAMPLES} samples to score paths on"
        raise FedloomError(rule, f"it has {len(samples)}", "give more")
    about = ScoringData(name=data, samples=len(samples), digest=digest_of(samples))
    return CentralSet(samples, about)


def digest_of(samples: Samples) -> str:
    """A digest that depends only on samples and labels in their order, not on their file."""
    sha = hashlib.sha256()
    for tensor in (samples.x, samples.y):
        sha.update(f"{tensor.dtype}{tuple(tensor.shape)};".encode())
        sha.update(tensor.contiguous().numpy().data)
    return sha.hexdigest()

"""`fedloom search --data`: samples that whoever searches has at hand, to score paths on.

A federation's server has none of its own. Scores on these samples cannot be compared with those of
the run, so they are known by a digest of the samples, and kept apart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.export.newdata import Expected, labelled_samples, unlabelled
from fedloom.records.searches import ScoringData

LEAST_SAMPLES = 2  # statistics of a batch are over at least two


@dataclass(frozen=True)
class CentralSet:
    samples: Samples
    about: ScoringData


def open_central_set(expected: Expected, data: str, directory: Path | None) -> CentralSet:
    """All samples of a source; those that are not like the run's are refused."""
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
    """The same for the same samples and labels in the same order, whatever file they are from."""
    sha = hashlib.sha256()
    for tensor in (samples.x, samples.y):
        sha.update(f"{tensor.dtype}{tuple(tensor.shape)};".encode())
        sha.update(tensor.contiguous().numpy().data)
    return sha.hexdigest()

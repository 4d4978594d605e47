"""How many of some samples a finished run has trained on: of those, its figures are no test.

Samples are the same if all their values are, as a client of the run sees them. They are compared
by a hash, so that a large training set costs 16 bytes a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from fedloom.export.finished import Finished
from fedloom.types import Json

DIGEST_BYTES = 16


@dataclass(frozen=True)
class OfInit:
    """The same of the runs that the run began with: that of --init, and those before it."""

    samples: int | None  # None: of none of them it can be told
    untold: Path | None  # the first of them whose training samples cannot be told

    def sentence(self) -> str:
        text = ""
        if self.samples:
            trained = f"the run of --init was trained on {self.samples:,} of these samples"
            text = f" NOT A FAIR TEST: {trained}."
        if self.untold is not None:
            return f"{text} What the run of --init ({self.untold}) was trained on cannot be told."
        if not self.samples:
            return " The run of --init was trained on none of them."
        return text


@dataclass(frozen=True)
class TrainedOn:
    """`among`: whose training samples were looked at; those of a federation are at its sites."""

    own: int | None  # by the run itself; None: it cannot be told
    among: Literal["run", "site"] | None
    known: int  # by the run or one that it began with
    init: OfInit | None = None  # None: it began with no other run

    @property
    def samples(self) -> int | None:
        """As many as are known; None instead of 0 where there may be others."""
        can_be_told = self.own is not None and (self.init is None or self.init.untold is None)
        if can_be_told or self.known:
            return self.known
        return None

    def to_json(self) -> dict[str, Json]:
        by_init = None
        untold = None
        if self.init is not None:
            by_init = self.init.samples
            if self.init.untold is not None:
                untold = str(self.init.untold)
        return {
            "trained_on": self.samples,
            "trained_on_among": self.among,
            "trained_on_by_init": by_init,
            "trained_on_untold": untold,
        }

    def sentence(self, given: int) -> str:
        """In words; `given`: how many samples there are."""
        if self.init is None:
            return self._own_sentence(given)
        return f"{self._own_sentence(given)}{self.init.sentence()}"

    def _own_sentence(self, given: int) -> str:
        who = "the run"
        if self.init is not None:
            who = "the run itself"
        if self.own is None:
            reason = "a federation's training samples stay at its sites"
            return f"Whether {who} trained on these samples cannot be told: {reason}."
        limits = ""
        if self.among == "site":
            who = "this site"
            limits = " What other sites trained on cannot be told."
        if self.own == 0:
            return f"{who.capitalize()} trained on none of these {given:,} samples.{limits}"
        trained = f"{who} trained on {self.own:,} of these {given:,} samples"
        return f"NOT A FAIR TEST: {trained}.{limits}"


def trained_on(finished: Finished, x: torch.Tensor) -> TrainedOn:
    """Of the samples `x`, as many as some client trained on, here or in a run of --init."""
    given = list(digests(x))
    own = own_training(finished)
    earlier: set[bytes] = set()
    runs = list(finished.earlier())
    untold = [run.path for run in runs if run.training is None]
    for run in runs:
        for part in run.training or ():
            earlier.update(digests(part))
    init = None
    if runs:
        samples = None
        if len(untold) < len(runs):
            samples = count(given, earlier)
        init = OfInit(samples, next(iter(untold), None))
    if own is None:
        return TrainedOn(None, None, count(given, earlier), init)
    among: Literal["run", "site"] = "run"
    if finished.here is not None:
        among = "site"
    return TrainedOn(count(given, own), among, count(given, own | earlier), init)


def own_training(finished: Finished) -> set[bytes] | None:
    """Digests of the training part of every client at hand; None: there are none here."""
    if finished.site is None:
        return None
    training: set[bytes] = set()
    for client in finished.clients_here:
        training.update(digests(finished.site.data(client).train.x))
    return training


def count(given: Sequence[bytes], training: Container[bytes]) -> int:
    return sum(digest in training for digest in given)


def digests(x: torch.Tensor) -> Iterator[bytes]:
    """One for each sample; equal values have equal ones, be they bytes or fractions."""
    for sample in x:
        values = sample.to(torch.float64).contiguous().numpy()  # which holds either of them exactly
        yield hashlib.blake2b(values.tobytes(), digest_size=DIGEST_BYTES).digest()

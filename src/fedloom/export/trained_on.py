"""How many of some samples a finished run was trained on: on those, its figures are not a test.

Two samples are the same if all their values are, as a client of the run sees them. They are
compared by a hash, so that a large training set costs 16 bytes per sample.
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
    """How many samples the earlier runs were trained on: the --init run, and those before it."""

    samples: int | None  # None: unknown for all of these runs
    untold: Path | None  # the first of these runs whose training samples are unknown

    def sentence(self) -> str:
        text = ""
        if self.samples:
            trained = f"the --init run was trained on {self.samples:,} of these samples"
            text = f" NOT A FAIR TEST: {trained}."
        if self.untold is not None:
            return f"{text} It is unknown what the --init run ({self.untold}) was trained on."
        if not self.samples:
            return " The --init run was trained on none of them."
        return text


@dataclass(frozen=True)
class TrainedOn:
    """How many of some samples were used to train a run, or the runs that it started from."""

    own: int | None  # by the run itself; None: unknown
    # Whose training samples were compared: all of the run's, or one site's. None: nobody's, because
    # a federation's samples stay at its sites.
    among: Literal["run", "site"] | None
    known: int  # by the run or one that it started from, as far as that is known
    init: OfInit | None = None  # None: it started from no other run

    @property
    def samples(self) -> int | None:
        """The known number; None instead of 0 where there may be further samples."""
        known_of_init = self.init is None or self.init.untold is None
        if self.known or (self.own is not None and known_of_init):
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
        """A sentence for users; `given` is the number of samples."""
        if self.init is None:
            return self._own_sentence(given)
        return f"{self._own_sentence(given)}{self.init.sentence()}"

    def _own_sentence(self, given: int) -> str:
        who = "the run"
        if self.init is not None:
            who = "the run itself"
        if self.own is None:
            reason = "a federation's training samples stay at its sites"
            return f"It is unknown whether {who} was trained on these samples: {reason}."
        limits = ""
        if self.among == "site":
            who = "this site"
            limits = " It is unknown what other sites trained on."
        if self.own == 0:
            return f"{who.capitalize()} trained on none of these {given:,} samples.{limits}"
        trained = f"{who} trained on {self.own:,} of these {given:,} samples"
        return f"NOT A FAIR TEST: {trained}.{limits}"


def trained_on(finished: Finished, x: torch.Tensor) -> TrainedOn:
    """How many of the samples `x` some client trained on, in this run or in one before it."""
    given = list(digests(x))
    own = own_training(finished)
    earlier: set[bytes] = set()
    runs = list(finished.earlier())
    unknown = [run.path for run in runs if run.training is None]
    for run in runs:
        for part in run.training or ():
            earlier.update(digests(part))
    init = None
    if runs:
        samples = None
        if len(unknown) < len(runs):
            samples = count(given, earlier)
        init = OfInit(samples, next(iter(unknown), None))
    if own is None:
        return TrainedOn(None, None, count(given, earlier), init)
    among: Literal["run", "site"] = "run"
    if finished.here is not None:
        among = "site"
    return TrainedOn(count(given, own), among, count(given, own | earlier), init)


def own_training(finished: Finished) -> set[bytes] | None:
    """Digests of the training samples of all clients that are here; None: there are none."""
    if finished.site is None:
        return None
    training: set[bytes] = set()
    for client in finished.clients_here:
        training.update(digests(finished.site.data(client).train.x))
    return training


def count(given: Sequence[bytes], training: Container[bytes]) -> int:
    return sum(digest in training for digest in given)


def digests(x: torch.Tensor) -> Iterator[bytes]:
    """A digest for each sample. Equal values have equal digests, whether bytes or floats."""
    for sample in x:
        values = sample.to(torch.float64).contiguous().numpy()  # float64 holds both exactly
        yield hashlib.blake2b(values.tobytes(), digest_size=DIGEST_BYTES).digest()

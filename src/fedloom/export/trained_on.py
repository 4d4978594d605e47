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
    unknown_run: Path | None  # the first of these runs whose training samples are unknown

    def sentence(self) -> str:
        text = ""
        if self.samples:
            trained = f"the --init run was trained on {self.samples:,} of these samples"
            text = f" NOT A FAIR TEST: {trained}."
        if self.unknown_run is not None:
            return f"{text} It is unknown what the --init run ({self.unknown_run}) was trained on."
        if not self.samples:
            return " The --init run was trained on none of them."
        return text


@dataclass(frozen=True)
class TrainedOn:
    """How many of some samples were used to train a run, or the runs that it started from."""

    by_run: int | None  # by the run itself; None: unknown
    # Whose training samples were compared: all of the run's, or one site's. None: nobody's, because
    # a federation's samples stay at its sites.
    among: Literal["run", "site"] | None
    by_any: int  # by the run or one that it started from, as far as that is known
    init: OfInit | None = None  # None: it started from no other run

    @property
    def samples(self) -> int | None:
        """The known number; None instead of 0 where there may be further samples."""
        init_is_known = self.init is None or self.init.unknown_run is None
        if self.by_any or (self.by_run is not None and init_is_known):
            return self.by_any
        return None

    def to_json(self) -> dict[str, Json]:
        by_init = None
        unknown_run = None
        if self.init is not None:
            by_init = self.init.samples
            if self.init.unknown_run is not None:
                unknown_run = str(self.init.unknown_run)
        return {
            "trained_on": self.samples,
            "trained_on_among": self.among,
            "trained_on_by_init": by_init,
            "trained_on_untold": unknown_run,
        }

    def sentence(self, samples: int) -> str:
        """A sentence for users about so many samples."""
        if self.init is None:
            return self._sentence_about_run(samples)
        return f"{self._sentence_about_run(samples)}{self.init.sentence()}"

    def _sentence_about_run(self, samples: int) -> str:
        who = "the run"
        if self.init is not None:
            who = "the run itself"
        if self.by_run is None:
            reason = "a federation's training samples stay at its sites"
            return f"It is unknown whether {who} was trained on these samples: {reason}."
        limits = ""
        if self.among == "site":
            who = "this site"
            limits = " It is unknown what other sites trained on."
        if self.by_run == 0:
            return f"{who.capitalize()} trained on none of these {samples:,} samples.{limits}"
        trained = f"{who} trained on {self.by_run:,} of these {samples:,} samples"
        return f"NOT A FAIR TEST: {trained}.{limits}"


def trained_on(finished: Finished, x: torch.Tensor) -> TrainedOn:
    """How many of the samples `x` some client trained on, in this run or in one before it."""
    tested = list(digests(x))
    training = own_training(finished)
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
            samples = count(tested, earlier)
        init = OfInit(samples, next(iter(unknown), None))
    if training is None:
        return TrainedOn(by_run=None, among=None, by_any=count(tested, earlier), init=init)
    among: Literal["run", "site"] = "run"
    if finished.here is not None:
        among = "site"
    return TrainedOn(
        by_run=count(tested, training),
        among=among,
        by_any=count(tested, training | earlier),
        init=init,
    )


def own_training(finished: Finished) -> set[bytes] | None:
    """Digests of the training samples of all clients that are here; None: there are none."""
    if finished.site is None:
        return None
    training: set[bytes] = set()
    for client in finished.clients_here:
        training.update(digests(finished.site.data(client).train.x))
    return training


def count(tested: Sequence[bytes], training: Container[bytes]) -> int:
    return sum(digest in training for digest in tested)


def digests(x: torch.Tensor) -> Iterator[bytes]:
    """A digest for each sample. Equal values have equal digests, whether bytes or floats."""
    for sample in x:
        values = sample.to(torch.float64).contiguous().numpy()  # float64 holds both exactly
        yield hashlib.blake2b(values.tobytes(), digest_size=DIGEST_BYTES).digest()

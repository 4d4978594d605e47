"""What a site remembers about each experiment, in KIT/state/experiments and KIT/state/draws.json.

Everything that bounds an experiment is counted here, by the site. A server can number its rounds as
it likes: an order counts unless it is, byte for byte, one that was counted before. The answer to
such an order is the same again, and a run that goes on after an interruption asks so.

How the samples are divided is settled by the first order of an experiment and cannot change. Two
experiments may divide them differently, but not almost alike: figures of two parts that differ by
one sample tell about this sample.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fedloom.config.models import Fit
from fedloom.data.parts import own_order, size_of_held, size_of_test
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy
from fedloom.errors import FedloomError
from fedloom.federation.protocol.wire import read_json
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_text

FOLDER = "experiments"
DRAWS = "draws.json"
GIGABYTE = 1 << 30
MOST_BYTES = 256 << 20  # of a file of this module
DIGEST = 32  # characters of an order's SHA-256 that are kept
MOST_WAITING = 100  # experiments that may wait for approval at a time

Content = TypeVar("Content")
Absent = TypeVar("Absent")
Kind = Literal["training", "evaluation", "description"]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Digest = Annotated[str, Field(max_length=64)]


class Closed(BaseModel):
    """A schema that allows no other fields than those it names."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Division(Closed):
    """How a site's samples are divided into parts."""

    seed: int
    client: int
    test: Share
    hold: Share
    samples: Count

    def parts(self) -> list[np.ndarray]:
        """The places of the test, the validation and the training samples, each sorted."""
        order = own_order(self.seed, self.client, self.samples)
        tests = size_of_test(self.samples, self.test)
        rest = order[tests:]
        cut = len(rest) - size_of_held(len(rest), self.hold)
        return [np.sort(order[:tests]), np.sort(rest[cut:]), np.sort(rest[:cut])]


class Waiting(Closed):
    """An experiment that waits for the approval of the site's operator."""

    id: Digest  # of all that follows; what the operator approves
    experiment: str
    task: dict[str, Any]  # a Task, as orders hold it
    terms: dict[str, Any]  # how samples are read and divided, as orders hold it


class Record(Closed):
    """What the site remembers about one experiment."""

    format: Literal[1] = 1
    client: int
    seed: int
    test: Share  # that counts: the policy's, or the run's where the policy names none
    asked_test: Share  # the run's
    hold: Share
    resize: int | None = None
    fit: Fit | None = None
    trainings: tuple[Digest, ...] = ()  # the orders that were counted, by their SHA-256
    evaluations: tuple[Digest, ...] = ()
    descriptions: tuple[Digest, ...] = ()
    bytes: Count = 0  # in both directions
    priced: Digest = ""  # of the task and the limits by which its network was last checked

    def with_order(self, kind: Kind, digest: str) -> Record:
        """This record after an order. One that was counted before is not counted again."""
        name = f"{kind}s"
        counted: tuple[str, ...] = getattr(self, name)
        if digest[:DIGEST] in counted:
            return self
        return self.model_copy(update={name: (*counted, digest[:DIGEST])})


class Approvals(Closed):
    """state/experiments/approvals.json: what the operator has approved, and what waits."""

    format: Literal[1] = 1
    approved: tuple[Digest, ...] = ()
    waiting: tuple[Waiting, ...] = ()


DIVISIONS = TypeAdapter(tuple[Division, ...])


class Experiments:
    """A site's memory of its experiments. Use it inside `locked_experiments`."""

    def __init__(self, states: Path) -> None:
        self.states = states
        self.folder = states / FOLDER

    # One experiment

    def path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.json"

    def get(self, experiment: str) -> Record | None:
        return _read(self.path(experiment), Record.model_validate_json, None)

    def put(self, experiment: str, record: Record) -> None:
        _write(self.path(experiment), record.model_dump_json(exclude_defaults=True))

    def names(self) -> list[str]:
        """The experiments that this site has taken part in."""
        return sorted(path.stem for path in self.folder.glob("[0-9a-f]*.json") if is_id(path.stem))

    def begin(self, experiment: str, record: Record, samples: int, policy: Policy) -> None:
        """Let a new experiment in, if the policy allows another one and how it divides samples."""
        taken_part = len(self.names())
        if taken_part >= policy.experiments:
            rule = f"this site must take part in at most {policy.experiments} experiments"
            raise Refusal(rule, "this is another one", "ask the site")
        division = Division(
            seed=record.seed,
            client=record.client,
            test=record.test,
            hold=record.hold,
            samples=samples,
        )
        divisions = self.divisions()
        if division not in divisions:
            check_division(division, divisions, policy)
            divisions = (*divisions, division)
            _write(self.states / DRAWS, DIVISIONS.dump_json(divisions).decode())
        self.put(experiment, record)

    def divisions(self) -> tuple[Division, ...]:
        """All ways in which this site's samples were ever divided."""
        return _read(self.states / DRAWS, DIVISIONS.validate_json, ())

    # Approval

    @property
    def approvals_path(self) -> Path:
        return self.folder / "approvals.json"

    def approvals(self) -> Approvals:
        return _read(self.approvals_path, Approvals.model_validate_json, Approvals())

    def put_approvals(self, approvals: Approvals) -> None:
        _write(self.approvals_path, approvals.model_dump_json())


def is_id(name: str) -> bool:
    return len(name) == 16 and set(name) <= set("0123456789abcdef")


def check_division(new: Division, before: tuple[Division, ...], policy: Policy) -> None:
    """Raise an error if this division tells too much beside the earlier ones."""
    if len(before) >= policy.divisions:
        seeds = ", ".join(sorted({str(division.seed) for division in before})[:10])
        rule = f"this site's samples must be divided in at most {policy.divisions} ways"
        raise Refusal(rule, "this is another one", f"use a seed that was used here: {seeds}")
    parts = new.parts()
    for earlier in before:
        if earlier.samples != new.samples:
            continue  # other data, and another order of it
        for name, part, other in zip(
            ("test", "validation", "training"), parts, earlier.parts(), strict=True
        ):
            if min(len(part), len(other)) < policy.min_part:
                continue  # no answer speaks of the smaller one
            differing = len(np.setxor1d(part, other, assume_unique=True))
            if 0 < differing < policy.min_part:
                rule = f"a {name} part must differ by at least {policy.min_part} samples, or not"
                found = f"this one and an earlier experiment's differ by {differing}"
                advice = f"use seed {earlier.seed} with the same shares, or another seed"
                raise Refusal(f"{rule} at all", found, advice)


def check_limits(record: Record, policy: Policy) -> None:
    """Raise an error if an experiment would go beyond the policy's limits with this record."""
    counts = {
        "rounds": ("trainings", len(record.trainings), policy.rounds),
        "evaluations": ("evaluations", len(record.evaluations), policy.evaluations),
        "descriptions": ("descriptions", len(record.descriptions), policy.evaluations),
    }
    for what, count, most in counts.values():
        if count > most:
            rule = f"an experiment must have at most {most} {what} here"
            raise Refusal(rule, f"this would be number {count}", "ask the site")
    most_bytes = policy.gigabytes * GIGABYTE
    if record.bytes > most_bytes:
        rule = f"an experiment must exchange at most {policy.gigabytes:g} GB here"
        raise Refusal(rule, f"it would be {record.bytes / GIGABYTE:.3g}", "ask the site")


@contextmanager
def locked_experiments(states: Path) -> Iterator[Experiments]:
    """The memory of a site, for one process at a time."""
    (states / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(states / FOLDER / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Experiments(states)
    finally:
        os.close(handle)


def _read(path: Path, parse: Callable[[str], Content], absent: Absent) -> Content | Absent:
    """A file's content. One that is damaged is an error: to forget it would lift every limit."""
    if not path.exists():
        return absent
    try:
        text = read_text(path, MOST_BYTES)
        read_json(text)  # refuses an object with the same key twice
        return parse(text)
    except (Unreadable, ValidationError, ValueError) as error:
        problem = "it is damaged"
        if isinstance(error, Unreadable):
            problem = str(error)
        advice = "restore it from a backup"
        raise FedloomError(f"{path} must be as the site wrote it", problem, advice) from None


def _write(path: Path, text: str) -> None:
    write_whole(path, [text.encode()], durable=True)

"""What a site remembers about its experiments, in KIT/state.

Each has a file in experiments/. All divisions of the samples are in draws.json, and all cuts that
methods made of the training samples in cuts.json.

Everything that bounds an experiment is counted here, by the site. A server can number its rounds as
it likes: an order counts unless it is, byte for byte, one that was counted before. The answer to
such an order is the same again, and a run that goes on after an interruption asks so. It is work
all the same, so repetitions have a limit too.

How the samples are divided is settled by the first order of an experiment and cannot change, and
neither can the task. Every division, and every cut that a method makes of the training samples, is
remembered: one that would single out a few samples beside the earlier ones is refused
(divisions.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from fedloom.config.models import Fit
from fedloom.data.tables.encoding import Encoding
from fedloom.deploy.closed import Closed
from fedloom.deploy.divisions import Count, Cut, Division, Share, check_cut, check_division
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy
from fedloom.errors import FedloomError
from fedloom.federation.protocol.strict_json import read_json
from fedloom.federation.protocol.wire import task_fields
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_text
from fedloom.types import Task

FOLDER = "experiments"
DRAWS = "draws.json"
CUTS = "cuts.json"
GIGABYTE = 1 << 30
MOST_BYTES = 256 << 20  # of a file of this module
DIGEST = 32  # characters of an order's SHA-256 that are kept
MOST_WAITING = 100  # experiments that may wait for approval at a time

Content = TypeVar("Content")
Absent = TypeVar("Absent")
Item = TypeVar("Item")
Kind = Literal["training", "evaluation", "description"]
Digest = Annotated[str, Field(max_length=64)]


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
    repeats: Count = 0  # of orders that were counted already
    bytes: Count = 0  # in both directions
    # Digests of the fields of the task, by name. Empty: an earlier version, which kept none.
    task: dict[str, Digest] = {}
    encoding: Digest = ""  # of how a table's columns are encoded; "": an earlier version, no table
    priced: Digest = ""  # of the task and the limits by which its network was last checked

    def with_order(self, kind: Kind, digest: str, size: int) -> Record:
        """This record after an order. One that was counted before counts as a repetition."""
        name = f"{kind}s"
        exchanged = self.bytes + size
        counted: tuple[str, ...] = getattr(self, name)
        if digest[:DIGEST] in counted:
            return self.model_copy(update={"repeats": self.repeats + 1, "bytes": exchanged})
        orders = (*counted, digest[:DIGEST])
        return self.model_copy(update={name: orders, "bytes": exchanged})

    def division(self, samples: int) -> Division:
        """How the experiment divides so many samples."""
        return Division(
            seed=self.seed,
            client=self.client,
            test=self.test,
            hold=self.hold,
            samples=samples,
        )

    def with_task(self, task: Task) -> Record:
        """This record after an order with this task. Raises an error if it is another task.

        A later version of fedloom may send further options, with the meaning that their absence
        had. They are kept from then on.
        """
        digests = digests_of(task)
        for name, digest in self.task.items():
            if digests.get(name) != digest:
                rule = "an experiment must keep the method and options of its first order"
                raise Refusal(rule, "this order names others", "start a new run")
        return self.model_copy(update={"task": digests})

    def with_encoding(self, encoding: Encoding | None) -> Record:
        """This record after an order with this encoding of a table.

        Raises an error if it is another one. The same order with another encoding would be other
        work, but would not count as such.
        """
        if encoding is None:
            return self
        digest = hashlib.sha256(encoding.model_dump_json().encode()).hexdigest()[:DIGEST]
        if self.encoding not in ("", digest):
            rule = "an experiment must encode a table's columns as its first order did"
            raise Refusal(rule, "this order does it in another way", "start a new run")
        return self.model_copy(update={"encoding": digest})


class Approvals(Closed):
    """state/experiments/approvals.json: what the operator approved or rejected, and what waits."""

    format: Literal[1] = 1
    approved: tuple[Digest, ...] = ()
    rejected: tuple[Digest, ...] = ()
    waiting: tuple[Waiting, ...] = ()


DIVISIONS = TypeAdapter(tuple[Division, ...])
ALL_CUTS = TypeAdapter(tuple[Cut, ...])


class Experiments:
    """A site's memory of its experiments. Use it inside `locked_experiments`."""

    def __init__(self, states: Path) -> None:
        self.states = states
        self.folder = states / FOLDER

    # One experiment

    def path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.json"

    def get(self, experiment: str) -> Record | None:
        return read_memory(self.path(experiment), Record.model_validate_json, None)

    def put(self, experiment: str, record: Record) -> None:
        write_memory(self.path(experiment), record.model_dump_json(exclude_defaults=True))

    def names(self) -> list[str]:
        """The experiments that this site has taken part in."""
        return sorted(path.stem for path in self.folder.glob("[0-9a-f]*.json") if is_id(path.stem))

    def check_new(self, policy: Policy) -> None:
        """Raise an error if the policy allows no further experiment."""
        taken_part = len(self.names())
        if taken_part >= policy.experiments:
            rule = f"this site must take part in at most {policy.experiments} experiments"
            raise Refusal(rule, "this is another one", "ask the site")

    # All experiments

    def divide(self, division: Division, policy: Policy, *, tells_sums: bool = False) -> None:
        """Remember how samples are divided. Raises an error if the policy does not allow it.

        `tells_sums`: whether sums over all samples leave, as they do for a table.
        """
        divisions = self.divisions()
        if division in divisions:
            return
        check_division(division, divisions, policy, self.cuts(), tells_sums=tells_sums)
        self.put_divisions((*divisions, division))

    def cut(self, cut: Cut, policy: Policy) -> None:
        """Remember how a method divides training samples.

        Raises an error if the policy does not allow it. A run that goes on makes the same cut
        again, which counts once.
        """
        cuts = self.cuts()
        if cut in cuts:
            return
        check_cut(cut, cuts, self.divisions(), policy)
        self.put_cuts((*cuts, cut))

    def cuts(self) -> tuple[Cut, ...]:
        """All ways in which methods ever divided this site's training samples."""
        return read_memory(self.states / CUTS, ALL_CUTS.validate_json, ())

    def put_cuts(self, cuts: tuple[Cut, ...]) -> None:
        write_memory(self.states / CUTS, ALL_CUTS.dump_json(cuts).decode())

    def divisions(self) -> tuple[Division, ...]:
        """All ways in which this site's samples were ever divided."""
        return read_memory(self.states / DRAWS, DIVISIONS.validate_json, ())

    def put_divisions(self, divisions: tuple[Division, ...]) -> None:
        write_memory(self.states / DRAWS, DIVISIONS.dump_json(divisions).decode())

    # Approval

    @property
    def approvals_path(self) -> Path:
        return self.folder / "approvals.json"

    def approvals(self) -> Approvals:
        return read_memory(self.approvals_path, Approvals.model_validate_json, Approvals())

    def put_approvals(self, approvals: Approvals) -> None:
        write_memory(self.approvals_path, approvals.model_dump_json(exclude_defaults=True))


def digests_of(task: Task) -> dict[str, str]:
    """A digest of every field of a task, and of every option."""
    fields = task_fields(task)
    options = fields.pop("options")
    for name, value in options.items():
        fields[f"options.{name}"] = value
    digests = {}
    for name, value in fields.items():
        text = json.dumps(value, sort_keys=True)
        digests[name] = hashlib.sha256(text.encode()).hexdigest()[:DIGEST]
    return digests


def is_id(name: str) -> bool:
    return len(name) == 16 and set(name) <= set("0123456789abcdef")


def check_limits(record: Record, policy: Policy) -> None:
    """Raise an error if an experiment would go beyond the policy's limits with this record."""
    limits = [
        ("trainings", len(record.trainings), policy.rounds),
        ("evaluations", len(record.evaluations), policy.evaluations),
        ("descriptions", len(record.descriptions), policy.evaluations),
        ("repeated orders", record.repeats, policy.evaluations),
    ]
    for what, count, most in limits:
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


def read_memory(path: Path, parse: Callable[[str], Content], absent: Absent) -> Content | Absent:
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


def union(first: tuple[Item, ...], second: tuple[Item, ...]) -> tuple[Item, ...]:
    """What is in either, in the order in which it was counted."""
    return tuple(dict.fromkeys((*first, *second)))


def write_memory(path: Path, text: str) -> None:
    write_whole(path, [text.encode()], durable=True)

"""Approval of experiments by a site's operator, where policy.toml has `approve = "ask"`.

An experiment that is not approved waits in the site's memory: its orders are refused, and the
refusal names the id under which the operator finds it. The id is a digest of everything that the
operator is shown, so a server cannot change an experiment between the look and the approval. An
experiment whose method, options or terms change later waits again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from fedloom import reading
from fedloom.deploy.experiments import MOST_WAITING, Approvals, Experiments, Waiting
from fedloom.deploy.failures import Refusal
from fedloom.deploy.hello import printable
from fedloom.deploy.terms import Terms
from fedloom.errors import FedloomError, shortened
from fedloom.federation.protocol.envelope import BASIC
from fedloom.federation.protocol.wire import task_fields
from fedloom.methods import stages
from fedloom.types import Fields, Json, Stamp, Task

log = logging.getLogger("fedloom")

SHORT = 12  # characters of an id that name it in a sentence; the whole of it is approved
MOST_BYTES = 1 << 20  # of an experiment that waits; MOST_WAITING of them fit into their file
MOST_VALUE = 60  # characters of an option's value that are shown
TASK = TypeAdapter(Task)


def waiting_of(stamp: Stamp, terms: Terms) -> Waiting:
    """The experiment of an order, as its operator approves it."""
    content = {
        "experiment": stamp.experiment,
        "task": json.loads(json.dumps(task_fields(stamp.task))),
        "terms": json.loads(terms.to_json()),
    }
    text = json.dumps(content, sort_keys=True)
    identity = hashlib.sha256(text.encode()).hexdigest()
    return Waiting(id=identity, **content)


def check_approved(experiments: Experiments, stamp: Stamp, terms: Terms) -> None:
    """Raise an error unless the operator has approved this experiment. It then waits for that."""
    asked = waiting_of(stamp, terms)
    approvals = experiments.approvals()
    if asked.id in approvals.approved:
        return
    if asked.id in approvals.rejected:
        rule = "this site's operator must approve the experiment before the site takes part"
        found = f"{asked.id[:SHORT]} was rejected"
        advice = f"ask the site, whose `fedloom federation approve KIT {asked.id}` takes it back"
        raise Refusal(rule, found, advice)
    if asked.id not in [waiting.id for waiting in approvals.waiting]:
        check_readable(asked)
        if len(approvals.waiting) >= MOST_WAITING:
            rule = f"at most {MOST_WAITING} experiments may wait for this site's approval"
            advice = "ask the site to approve or reject them"
            raise Refusal(rule, "this is another one", advice)
        waiting = (*approvals.waiting, asked)
        experiments.put_approvals(approvals.model_copy(update={"waiting": waiting}))
    raise Refusal(
        "this site's operator must approve the experiment before the site takes part",
        f"{asked.id[:SHORT]} is not approved yet",
        f"ask the site to run `fedloom federation approve KIT {asked.id[:SHORT]}`, then resume "
        "the run",
    )


def check_readable(asked: Waiting) -> None:
    """Raise an error for an experiment that cannot wait, because nobody could read the list.

    It is written with values that are nested more deeply than it is read.
    """
    try:
        reading.bounded({"task": asked.task, "terms": asked.terms})
    except reading.Unreadable as error:
        rule = "an experiment that waits must have plain options"
        raise Refusal(rule, f"{error}", "use the same version of fedloom") from None
    size = len(asked.model_dump_json().encode())
    if size > MOST_BYTES:
        rule = f"an experiment that waits must have at most {MOST_BYTES:,} bytes"
        found = f"its options, classes and terms have {size:,}"
        raise Refusal(rule, found, "name fewer classes, or ask the site for approve = policy")


def waiting_for(experiments: Experiments, identity: str) -> Waiting:
    """The experiment whose id begins so. Raises an error if none that waits does, or several do.

    A server can make two experiments whose ids begin alike, but not two with the same id.
    """
    approvals = experiments.approvals()
    shown_identity = shortened(repr(identity), 80)
    matching: list[Waiting] = []
    approved: list[str] = []
    if len(identity) >= SHORT:
        matching = [one for one in approvals.waiting if one.id.startswith(identity)]
        approved = [one for one in approvals.approved if one.startswith(identity)]
    if len(matching) == 1:
        return matching[0]
    advice = "see `fedloom federation approve KIT`"
    if matching:
        rule = "ID must be that of one experiment that waits for approval"
        raise FedloomError(rule, f"{len(matching)} begin with {shown_identity}", advice)
    if approved:
        rule = "an experiment must wait for approval"
        raise FedloomError(rule, f"{shown_identity} is approved already", "go on with it")
    rule = "ID must be that of an experiment that waits for approval"
    raise FedloomError(rule, f"{shown_identity} does not wait", advice)


def approve_waiting(experiments: Experiments, identity: str) -> None:
    """Approve an experiment that waits. Raises an error if none of this id does."""
    chosen = waiting_for(experiments, identity)
    approvals = without_waiting(experiments.approvals(), [chosen])
    approved = (*approvals.approved, chosen.id)
    experiments.put_approvals(approvals.model_copy(update={"approved": approved}))


def reject_waiting(experiments: Experiments, chosen: Sequence[Waiting]) -> None:
    """Reject experiments that wait: their orders are refused, and they wait no more."""
    approvals = without_waiting(experiments.approvals(), chosen)
    rejected = (*approvals.rejected, *(entry.id for entry in chosen))
    experiments.put_approvals(approvals.model_copy(update={"rejected": rejected}))


def take_back(experiments: Experiments, identity: str) -> bool:
    """Take a rejection back. It must be named by its whole id. Returns whether there was one."""
    approvals = experiments.approvals()
    if identity not in approvals.rejected:
        return False
    rejected = tuple(name for name in approvals.rejected if name != identity)
    experiments.put_approvals(approvals.model_copy(update={"rejected": rejected}))
    return True


def without_waiting(approvals: Approvals, chosen: Sequence[Waiting]) -> Approvals:
    identities = [entry.id for entry in chosen]
    others = tuple(entry for entry in approvals.waiting if entry.id not in identities)
    return approvals.model_copy(update={"waiting": others})


# What the operator is shown


@dataclass(frozen=True)
class Shown:
    """An experiment in words: what it does with the site's data, and what leaves."""

    waiting: Waiting
    trainings: int | None  # how often it asks the site to train, at most; None: it does not say
    leaves: Mapping[str, Fields]  # by the kind of order

    @property
    def method(self) -> str:
        return str(self.waiting.task.get("method"))

    @property
    def options(self) -> dict[str, Json]:
        options = self.waiting.task.get("options")
        if not isinstance(options, dict):
            return {}  # its orders are refused anyway
        return {str(name): value for name, value in options.items()}

    def to_json(self) -> dict[str, Json]:
        leaves = {}
        for kind, fields in self.leaves.items():
            leaves[kind] = {"fields": list(fields.meta), "tensors": tensors_of(fields)}
        return {
            "id": self.waiting.id,
            "experiment": self.waiting.experiment,
            "method": self.method,
            "options": self.options,
            "trainings": self.trainings,
            "terms": self.waiting.terms,
            "leaves": leaves,
        }

    def to_lines(self) -> list[str]:
        trainings = "as many trainings as the policy allows"
        if self.trainings is not None:
            trainings = f"at most {self.trainings} trainings"
        lines = [f"{self.waiting.id}  {printable(self.method)}, {trainings}"]
        for name, value in sorted(self.options.items()):
            text = shortened(json.dumps(value), MOST_VALUE)
            lines.append(f"    {printable(name)} = {printable(text)}")
        for kind, fields in self.leaves.items():
            what = [*fields.meta, *(f"tensors {pattern}" for pattern in tensors_of(fields))]
            names = ", ".join(what) or "only the number of samples"
            lines.append(f"    leaves in answer to {printable(kind)}: {printable(names)}")
        return lines


def shown(waiting: Waiting) -> Shown:
    """An experiment for the operator. Its options may be impossible: then it can only be read."""
    leaves: dict[str, Fields] = dict(BASIC)
    try:
        task = TASK.validate_python({**waiting.task, **tuples_in(waiting.task)})
        for stage in stages(task):
            leaves |= stage.method.fields
    except Exception as error:  # a method may raise anything for options that it never expected
        log.debug("%s: %s: %s", waiting.id, type(error).__name__, error)
        leaves = {}
    trainings = waiting.terms.get("trainings")
    if type(trainings) is not int:
        trainings = None
    return Shown(waiting, trainings, leaves)


def tuples_in(task: Mapping[str, Json]) -> dict[str, Json]:
    """The lists of a task as the tuples that they were."""
    return {name: tuple(value) for name, value in task.items() if isinstance(value, list)}


def tensors_of(fields: Fields) -> list[str]:
    return [*fields.tensors, *fields.optional, *fields.extra]

"""What a site's operator does with its kit: read the audit log, and approve experiments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from fedloom.deploy.approval import (
    Shown,
    approve_waiting,
    reject_waiting,
    shown,
    take_back,
    waiting_for,
)
from fedloom.deploy.audit import AuditError, AuditLog, Line
from fedloom.deploy.experiments import FOLDER, locked_experiments
from fedloom.deploy.hello import printable
from fedloom.deploy.kit_file import KitFile, check_owner
from fedloom.errors import FedloomError, shortened
from fedloom.types import Json

ALL = "all"  # instead of the id of an experiment: every one that waits
HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


def audit(kit: Path, head: str | None, *, as_json: bool, stream: TextIO) -> int:
    """Check the audit log of a kit, and print its lines and its head."""
    check_kit(kit)
    wanted = None
    if head is not None:
        wanted = head_in(head)
    lines = []
    last = ""
    log = AuditLog(kit)
    for line, digest in log.verified():
        if wanted is not None and line.number == wanted[0] and digest != wanted[1]:
            raise not_contained(log, wanted[0])
        lines.append(line)
        last = f"{line.number}:{digest}"
    if wanted is not None and len(lines) < wanted[0]:
        raise not_contained(log, wanted[0])
    if as_json:
        rows = [line.to_json() for line in lines]
        print(json.dumps({"lines": rows, "head": last or None}), file=stream)
        return 0
    for line in lines:
        print(sentence_of(line), file=stream)
    for notice in clock_notices(lines):
        print(notice, file=stream)
    if log.has_unfinished_line():
        problem = "the site was stopped while it wrote a line, whose answer never left"
        print(f"notice: {problem}; the next line replaces it", file=stream)
    print(f"{len(lines):,} lines, each as the site wrote it; head {last or 'none'}", file=stream)
    return 0


def head_in(text: str) -> tuple[int, str]:
    match = HEAD.fullmatch(text)
    if match is None:
        rule = "--head must be NUMBER:SHA256, as `fedloom federation audit` prints it"
        raise FedloomError(
            rule, f"got {shortened(repr(text), 80)}", "copy it from an earlier print"
        )
    return int(match[1]), match[2]


def not_contained(log: AuditLog, number: int) -> AuditError:
    rule = f"{log.path} must contain the head that was printed before"
    return AuditError(rule, f"its line {number} is another one", "somebody has made a new log")


def clock_notices(lines: Iterable[Line]) -> list[str]:
    """Where the site's clock went back. The order of the lines does not depend on it."""
    notices = []
    before: Line | None = None
    for line in lines:
        if before is not None and line.time < before.time:
            place = f"line {line.number} is of {line.time}, line {before.number} of {before.time}"
            notices.append(printable(f"notice: the clock of this machine went back: {place}"))
        before = line
    return notices


def sentence_of(line: Line) -> str:
    """One line of the log for a person."""
    content = line.content
    begin = f"{line.number:>6}  {line.time}  {line.event:8}"
    if line.event == "order":
        where = f"round {content.get('round')}.{content.get('hop')}"
        what = f"{content.get('method')} {content.get('kind')}, {where}"
        text = f"{what}, experiment {content.get('experiment')}, {content.get('bytes')} bytes"
        if "unreadable" in content:
            text = f"not readable ({content['unreadable']})"
    elif line.event == "reply":
        tensors = content.get("tensors")
        count = len(tensors) if isinstance(tensors, dict) else 0
        values = json.dumps(content.get("fields"))
        text = f"to {content.get('order')}: {values}, {count} tensors, {content.get('bytes')} bytes"
    elif line.event == "refused":
        text = f"to {content.get('order')}: {content.get('code')}: {content.get('reason')}"
        if "told" in content:
            text = f"{text} (the server was told: {content['told']})"
    elif line.event == "facts":
        text = f"to {content.get('order')}: {content.get('bytes')} bytes of facts about the data"
    elif line.event in ("approved", "rejected"):
        text = f"{content.get('id')}: {content.get('method')}"
    else:
        text = json.dumps(content)
    return f"{printable(begin)}  {shortened(printable(text), 1000)}"


def list_waiting(kit: Path, *, as_json: bool, stream: TextIO) -> int:
    """Print the experiments that wait for this site's approval."""
    check_kit(kit)
    waiting: list[Shown] = []
    if (kit / "state" / FOLDER).is_dir():
        with locked_experiments(kit / "state") as experiments:
            waiting = [shown(entry) for entry in experiments.approvals().waiting]
    if as_json:
        print(json.dumps({"waiting": [entry.to_json() for entry in waiting]}), file=stream)
        return 0
    for entry in waiting:
        print("\n".join(entry.to_lines()), file=stream)
    if not waiting:
        print("no experiment waits for approval", file=stream)
        return 0
    print(f"approve one:  fedloom federation approve {kit} ID", file=stream)
    print(f"reject one, or all:  fedloom federation approve {kit} --reject ID|all", file=stream)
    return 0


def approve(kit: Path, identity: str, *, as_json: bool, stream: TextIO) -> int:
    """Approve an experiment that waits."""
    check_kit(kit)
    with locked_experiments(kit / "state") as experiments:
        if take_back(experiments, identity):
            what = {"rejected": False, "id": identity}
            AuditLog(kit).append("rejection withdrawn", {"id": identity})
            sentence = "it is rejected no more, and waits for approval when its run asks again"
            tell(what, f"{identity}: {sentence}", as_json=as_json, stream=stream)
            return 0
        content = shown(waiting_for(experiments, identity)).to_json()
        AuditLog(kit).append("approved", content)
        approve_waiting(experiments, identity)
    method = printable(str(content["method"]))
    sentence = f"{content['id']}: {method} may now use this site's data"
    tell({"approved": content}, sentence, as_json=as_json, stream=stream)
    return 0


def reject(kit: Path, identity: str, *, as_json: bool, stream: TextIO) -> int:
    """Reject an experiment that waits, or all of them."""
    check_kit(kit)
    with locked_experiments(kit / "state") as experiments:
        chosen = experiments.approvals().waiting
        if identity != ALL:
            chosen = (waiting_for(experiments, identity),)
        for entry in chosen:
            AuditLog(kit).append("rejected", shown(entry).to_json())
        reject_waiting(experiments, chosen)
    identities = [entry.id for entry in chosen]
    sentence = "\n".join(f"{name}: rejected" for name in identities)
    tell(
        {"rejected": identities},
        sentence or "no experiment waits for approval",
        as_json=as_json,
        stream=stream,
    )
    return 0


def tell(content: Json, sentence: str, *, as_json: bool, stream: TextIO) -> None:
    if as_json:
        sentence = json.dumps(content)
    print(sentence, file=stream)


def check_kit(kit: Path) -> None:
    """Raise an error unless this is a start kit of the user who runs this process."""
    check_owner(kit)
    KitFile.read(kit)

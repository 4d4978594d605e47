"""A restored site's counters: the higher ones of its backup and of its old kit.

A backup is older than the kit that it replaces. With the backup's counters alone, a server could
train again as often as the site has trained since. So if the old kit can still be read, what it
counted counts on, its divisions, surveys and approvals as well, and its audit log goes on.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from fedloom.deploy.audit import BEGINNING, HEAD, LOG, AuditError, AuditLog, Head
from fedloom.deploy.experiments import Approvals, Experiments, Record, locked_experiments, union
from fedloom.deploy.private_files import write_private
from fedloom.deploy.surveys import FOLDER as SURVEYS
from fedloom.deploy.surveys import Surveys
from fedloom.types import Json


@dataclass(frozen=True)
class Restored:
    """What came back, for its operator and for the audit log."""

    kind: str  # "federation" or "site"
    made: str  # when the backup was made
    with_counters: bool = False  # those of the old kit were looked at
    experiments: int = 0  # whose counters are higher than in the backup
    audit_lines: int = 0  # that the old kit's log has more than the backup's

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def merge_counters(kit: Path, old: Path, made: str) -> Restored:
    """Bring a restored kit's counters and its audit log up to those of the old kit.

    Raises an error if the old kit's cannot be read: they may be higher, and then nobody knows.
    """
    higher = 0
    states = kit / "state"
    states.mkdir(mode=0o700, exist_ok=True)
    if (old / "state").is_dir():
        with locked_experiments(old / "state") as counted, locked_experiments(states) as restored:
            for name in counted.names():
                higher += merge_experiment(restored, name, counted.get(name))
            merge_others(restored, counted)
            if (old / "state" / SURVEYS).is_dir():
                Surveys(states).take(Surveys(old / "state"))
        take_secret(states, old / "state")
    lines = take_audit_log(kit, old)
    return Restored("site", made, with_counters=True, experiments=higher, audit_lines=lines)


def merge_experiment(restored: Experiments, name: str, old: Record | None) -> int:
    """Count in one experiment what either side counted. Returns 1 if the old kit counted more."""
    if old is None:
        return 0
    record = restored.get(name)
    if record is None:
        restored.put(name, old)
        return 1
    merged = old.model_copy(
        update={
            "trainings": union(record.trainings, old.trainings),
            "evaluations": union(record.evaluations, old.evaluations),
            "descriptions": union(record.descriptions, old.descriptions),
            "repeats": max(record.repeats, old.repeats),
            "bytes": max(record.bytes, old.bytes),
        }
    )
    restored.put(name, merged)
    return int(merged != record)


def merge_others(restored: Experiments, old: Experiments) -> None:
    """Divisions and cuts of either side count.

    The operator's last word about approvals is the old kit's.
    """
    restored.put_divisions(union(restored.divisions(), old.divisions()))
    restored.put_cuts(union(restored.cuts(), old.cuts()))
    if old.approvals() != Approvals():
        restored.put_approvals(old.approvals())


def take_secret(states: Path, old: Path) -> None:
    """Another secret would be another draw of noise, which a server could average with the first.

    A backup that was made before the first run has none.
    """
    if (old / "secret").exists() and not (states / "secret").exists():
        write_private(states / "secret", (old / "secret").read_bytes())


def take_audit_log(kit: Path, old: Path) -> int:
    """Let the audit log of the old kit go on, if the backup's is its beginning.

    Returns how many lines it has more.
    """
    head = AuditLog(kit).head()
    last = BEGINNING
    has_head = head == BEGINNING
    for line, digest in AuditLog(old).verified():
        last = Head(line.number, digest)
        if last == head:
            has_head = True
    if not has_head and last.number < head.number:
        return 0  # the backup is the newer one
    if not has_head:
        rule = f"the audit log of {old} must go on where the backup's ends"
        advice = "look into both; without --counters the backup's is used"
        raise AuditError(rule, f"its line {head.number} is another one", advice)
    for name in (LOG, HEAD):
        if (old / name).exists():
            shutil.copyfile(old / name, kit / name)
            (kit / name).chmod(0o600)
    return last.number - head.number


def sentences_of(restored: Restored) -> list[str]:
    """What whoever restored a backup should know."""
    if restored.kind != "site":
        return []
    if not restored.with_counters:
        return [
            f"its counters and audit log are of {restored.made}: what it trained since then could "
            "be asked of it again",
            "if the old kit still exists, restore with --counters OLD-KIT, which keeps the higher "
            "ones",
        ]
    return [
        f"higher counters were taken from the old kit for {restored.experiments} experiments, and "
        f"{restored.audit_lines} lines of its audit log"
    ]

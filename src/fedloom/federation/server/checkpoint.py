"""Where a run stands after a round, on disk: the last two rounds and the best one.

A checkpoint is a wire state, so it opens with any safetensors reader. Rows of metrics.jsonl beyond
the checkpoint that a run resumes from are cut off, as if they had never been written. A checkpoint
that is damaged, or whose rows are gone, is passed over for the one before it.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.protocol.wire import WireError, checked_state_chunks, read_state
from fedloom.federation.server.norms import History
from fedloom.files import cut_to, remove_leftovers, write_whole
from fedloom.reading import Unreadable
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.types import Json, State

log = logging.getLogger("fedloom")


@dataclass(frozen=True)
class Best:
    """The best round of a stage so far, by the mean validation figure."""

    round: int
    value: float

    def to_json(self) -> Json:
        return [self.round, self.value]

    @classmethod
    def from_json(cls, raw: Json) -> Best | None:
        if raw is None:
            return None
        return cls(*raw)


@dataclass(frozen=True)
class TakenBack:
    """`fedloom resume RUN --from …`: a person threw rounds away."""

    since: int  # the round that the run had reached
    to: int  # the round that it went on from


@dataclass(frozen=True)
class Checkpoint:
    stage: int = 0  # index into the method's stages
    round: int = 0  # rounds finished, over all stages
    state: State = field(default_factory=State)
    versions: Mapping[int, str] = field(default_factory=dict)  # of the clients' own states
    described: Mapping[int, Json] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    charged: float = 0.0  # of the whole budget
    began: float = 0.0  # charged when the stage began
    budget: float = 0.0  # of the stage
    last_cost: float = 0.0  # of the latest round
    best: Best | None = None
    rows: int = 0  # bytes of metrics.jsonl that belong to it
    rows_checksum: int | None = None  # of those bytes; a checkpoint of an earlier version has none
    # How large updates usually were in the rounds of the stage.
    norms: History = field(default_factory=dict)
    held: tuple[int, ...] = ()  # rounds to keep until most clients of a round are accepted again
    taken_back: tuple[TakenBack, ...] = ()

    @property
    def spent(self) -> float:
        return self.charged - self.began

    def to_state(self) -> State:
        best = None
        if self.best is not None:
            best = self.best.to_json()
        meta = {
            "stage": self.stage,
            "round": self.round,
            "meta": dict(self.state.meta),
            "totals": self.totals.to_json(),
            "versions": {str(client): version for client, version in self.versions.items()},
            "described": {str(client): facts for client, facts in self.described.items()},
            "charged": self.charged,
            "began": self.began,
            "budget": self.budget,
            "last_cost": self.last_cost,
            "best": best,
            "rows": self.rows,
            "rows_checksum": self.rows_checksum,
            "norms": {group: list(sizes) for group, sizes in self.norms.items()},
            "held": list(self.held),
            "taken_back": [asdict(step) for step in self.taken_back],
        }
        return State(self.state.tensors, meta)

    @classmethod
    def from_state(cls, saved: State) -> Checkpoint:
        raw = dict(saved.meta)
        return cls(
            stage=raw["stage"],
            round=raw["round"],
            state=State(saved.tensors, raw["meta"]),
            versions={int(client): version for client, version in raw["versions"].items()},
            described={int(client): facts for client, facts in raw["described"].items()},
            totals=Totals.from_json(raw["totals"]),
            charged=raw["charged"],
            began=raw["began"],
            budget=raw["budget"],
            last_cost=raw["last_cost"],
            best=Best.from_json(raw["best"]),
            rows=raw["rows"],
            # An earlier version did not write these.
            rows_checksum=raw.get("rows_checksum"),
            norms=raw.get("norms", {}),
            held=tuple(raw.get("held", ())),
            taken_back=tuple(TakenBack(**step) for step in raw.get("taken_back", ())),
        )


def are_whole(rows: bytes) -> bool:
    """Whether these are rows of metrics.jsonl; the next one begins on a line of its own."""
    *lines, rest = rows.split(b"\n")
    if rest:
        return False
    try:
        for line in lines:
            MetricsRow.from_line(line)
    except Unreadable:
        return False
    return True


DAMAGED = ".damaged"  # ending of a checkpoint that was passed over


class Archive:
    """The checkpoints and the metrics of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.metrics = folder / "metrics.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        self._bests: dict[int, Best | None] = {}  # of checkpoints that were saved or read here

    def rounds(self) -> list[int]:
        numbers = []
        for name in os.listdir(self.folder):
            stem, _, ending = name.rpartition(".")
            if ending == "state" and stem.isdecimal():
                numbers.append(int(stem))
        return sorted(numbers)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.state"

    def load(self, number: int) -> Checkpoint:
        """Raises OSError or WireError for one that is gone or damaged."""
        saved = read_state(self.path(number).read_bytes())
        try:
            return Checkpoint.from_state(saved)
        except (AttributeError, KeyError, TypeError, Unreadable, ValueError) as error:
            raise WireError(f"it is no checkpoint ({type(error).__name__}: {error})") from None

    def resumable(self) -> Checkpoint | None:
        """The newest that a run can go on from; what cannot be used is put aside. None: begin anew.

        Only damage counts: a disk that cannot be read at the moment stops the run, and nothing is
        lost.
        """
        for number in reversed(self.rounds()):
            trouble = self._trouble(number)
            if trouble is None:
                return self.load(number)
            log.warning("the checkpoint of round %d cannot be used: %s", number, trouble)
            self.path(number).rename(self.path(number).with_suffix(DAMAGED))
        return None

    def _trouble(self, number: int) -> str | None:
        """Why a run cannot go on from this checkpoint, or None."""
        try:
            at = self.load(number)
        except WireError as error:
            return str(error)
        if not self._has_rows(at):
            return "its rows of metrics.jsonl are gone or damaged"
        if at.best is not None and at.best.round != number:
            try:
                self.load(at.best.round)
            except (FileNotFoundError, WireError) as error:
                return f"the best round so far, {at.best.round}, is missing or damaged ({error})"
        return None

    def _has_rows(self, at: Checkpoint) -> bool:
        rows = self._read_rows(at.rows)
        if len(rows) < at.rows:
            return False
        if at.rows_checksum is not None:
            return zlib.crc32(rows) == at.rows_checksum
        return are_whole(rows)

    def _read_rows(self, size: int) -> bytes:
        if not self.metrics.exists():
            return b""
        with open(self.metrics, "rb") as file:
            return file.read(size)

    def final(self) -> Checkpoint:
        """What a finished run reports: its last round, or the best of its last stage.

        Nothing is written. Where the last round is damaged, the newest one that is whole stands in,
        and a warning says so.
        """
        for number in reversed(self.rounds()):
            try:
                at = self.load(number)
                if at.best is None or at.best.round == number:
                    return at
                return self.load(at.best.round)
            except (FileNotFoundError, WireError) as error:
                log.warning("the checkpoint of round %d cannot be used: %s", number, error)
        raise FedloomError(
            "a run must still have its checkpoints",
            f"{self.folder} has none",
            "run it again",
        )

    def save(self, at: Checkpoint, row: MetricsRow) -> Checkpoint:
        """Append the round's row, then write its checkpoint, then drop those no longer needed."""
        line = row.to_line()
        before = at.rows_checksum
        if before is None:
            before = zlib.crc32(self._read_rows(at.rows))
        self._append(line, at.rows)
        at = replace(at, rows=at.rows + len(line), rows_checksum=zlib.crc32(line, before))
        write_whole(self.path(at.round), checked_state_chunks(at.to_state()), durable=True)
        self._bests[at.round] = at.best
        self.prune(at)
        return at

    def _append(self, line: bytes, size: int) -> None:
        """Write a row after the first `size` bytes of metrics.jsonl.

        A full disk may have left more there from an earlier try.
        """
        cut_to(self.metrics, size)
        with open(self.metrics, "ab") as file:
            present = file.tell()
            if present < size:
                raise RunStopped(
                    f"{self.metrics} must have {size} bytes",
                    f"it has {present}: somebody changed it",
                    "resume the run, which goes back",
                )
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def prune(self, at: Checkpoint) -> None:
        """Delete the checkpoints that nobody can come back to from this one."""
        present = self.rounds()
        needed = self.needed(at)
        for number in present:
            if number not in needed:
                self.path(number).unlink(missing_ok=True)

    def needed(self, at: Checkpoint) -> set[int]:
        """The rounds whose checkpoints a run may come back to.

        These are the last two, those held because most clients were refused since then, and the
        best round of each of them.
        """
        needed = {*self.rounds()[-2:], *at.held}
        for number in sorted(needed):
            best = at.best if number == at.round else self._best_of(number)
            if best is not None:
                needed.add(best.round)
        return needed

    def _best_of(self, number: int) -> Best | None:
        if number not in self._bests:
            try:
                self._bests[number] = self.load(number).best
            except (OSError, WireError):  # nobody will come back to it
                self._bests[number] = None
        return self._bests[number]

    def tidy(self, at: Checkpoint) -> None:
        """At the end of a run: no more than the checkpoints to come back to."""
        self.prune(at)
        remove_leftovers(self.folder)
        for path in self.folder.glob(f"*{DAMAGED}"):
            path.unlink(missing_ok=True)

    def cut_metrics(self, at: Checkpoint) -> None:
        """Cut off rows that the checkpoint does not know of."""
        cut_to(self.metrics, at.rows)

    def returnable(self, number: int) -> Checkpoint:
        """The checkpoint that a run can be taken back to; round 0 is its beginning."""
        if number == 0:
            return Checkpoint()
        kept = self.rounds()
        if number not in kept:
            listed = ", ".join(map(str, kept)) or "none"
            raise FedloomError(
                "--from must be a round whose checkpoint is kept",
                f"got {number}, and the run has {listed}",
                "name one of these, or 0",
            )
        trouble = self._trouble(number)
        if trouble is not None:
            raise FedloomError(
                f"the checkpoint of round {number} must be whole",
                trouble,
                "name another round",
            )
        return self.load(number)

    def take_back(self, number: int) -> Checkpoint:
        """Make an earlier checkpoint the latest one, and note in it that this was done."""
        at = self.returnable(number)
        kept = self.rounds() or [0]
        reached = kept[-1]
        for earlier in self._taken_back_before(reached, number):
            if earlier not in at.taken_back:
                at = replace(at, taken_back=(*at.taken_back, earlier))
        step = TakenBack(reached, number)
        if number < reached and step not in at.taken_back:
            at = replace(at, taken_back=(*at.taken_back, step))
            write_whole(self.path(number), checked_state_chunks(at.to_state()), durable=True)
        self._bests.clear()
        for other in reversed(kept):
            if other > number:
                self.path(other).unlink(missing_ok=True)
        self.cut_metrics(at)
        return at

    def _taken_back_before(self, reached: int, number: int) -> tuple[TakenBack, ...]:
        """What the newest checkpoint knows of earlier times that the run was taken back.

        An older checkpoint may not know of them.
        """
        if reached == number:
            return ()
        try:
            return self.load(reached).taken_back
        except (OSError, WireError):
            return ()

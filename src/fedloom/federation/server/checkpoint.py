"""Checkpoints: the state of a run after a round, on disk. The last two and the best one are kept.

A checkpoint is a wire state, so any safetensors reader can open it. Rows of metrics.jsonl that are
newer than the checkpoint from which a run resumes are cut off, as if they had never been written. A
checkpoint that is damaged, or whose rows are missing, is skipped in favour of the one before it.

Large tensors that have not changed since an earlier checkpoint are not written again: a generation
of a search changes a list of scores, but not its supernet. Such a checkpoint names the earlier one
that contains them. Two checkpoints with tensors of their own are always kept, so that damage to one
file does not cost all rounds.
"""

from __future__ import annotations

import logging
import os
import weakref
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from fedloom.config.models import Unit
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.protocol.wire import WireError, checked_state_chunks, read_state
from fedloom.federation.server.budgets import Allowance
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.described import read_again, without_reserved, written
from fedloom.federation.server.norms import History
from fedloom.files import cut_to, remove_leftovers, write_whole
from fedloom.reading import Unreadable
from fedloom.records.rows import MetricsRow
from fedloom.records.scores import SCORES_FILE, ScoredPath, write_scores
from fedloom.records.totals import Totals
from fedloom.types import ClientDescription, Json, State, Tensors

log = logging.getLogger("fedloom")

# Tensors of at most this many bytes are written again with every checkpoint.
FEW = 1 << 19


@dataclass(frozen=True)
class Best:
    """The best round of a stage so far, by the mean validation metric."""

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
    """A user discarded rounds with `fedloom resume RUN --from …`."""

    since: int  # the round that the run had reached
    to: int  # the round from which it went on


@dataclass(frozen=True)
class Elsewhere:
    """The earlier checkpoint that contains the tensors of a checkpoint without its own."""

    round: int
    names: tuple[str, ...]  # the tensors to take; the earlier checkpoint may contain more

    def to_json(self) -> Json:
        return {"round": self.round, "names": list(self.names)}

    @classmethod
    def from_json(cls, raw: Json) -> Elsewhere | None:
        if raw is None:
            return None
        return cls(raw["round"], tuple(raw["names"]))


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs in order to go on after a round."""

    stage: int = 0  # index into the method's stages
    round: int = 0  # finished rounds, over all stages
    state: State = field(default_factory=State)
    versions: Mapping[int, str] = field(default_factory=dict)  # of the clients' private states
    described: Mapping[int, ClientDescription] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    charged: float = 0.0  # what the run has spent of its whole budget
    began: float = 0.0  # `charged` when the stage began
    budget: float = 0.0  # the budget of the stage
    last_cost: float = 0.0  # the cost of the latest round
    best: Best | None = None
    rows: int = 0  # bytes of metrics.jsonl that belong to this checkpoint
    rows_checksum: int | None = None  # of those bytes; earlier versions did not write it
    # How large updates usually were in the rounds of the stage.
    norms: History = field(default_factory=dict)
    # Rounds to keep until a round accepts most of its clients again.
    held: tuple[int, ...] = ()
    taken_back: tuple[TakenBack, ...] = ()
    clustering: Clustering | None = None  # the latest one, which stays valid for some more rounds
    allowance: Allowance = field(default_factory=Allowance)  # the stage's part of the limits
    stopped: Unit = "rounds"  # the limit that ended a stage; if several stages, the latest
    # Which file contains the tensors, which the archive decides. None: the checkpoint's own file.
    elsewhere: Elsewhere | None = None

    @property
    def spent(self) -> float:
        """What the stage has spent of its budget."""
        return self.charged - self.began

    def to_state(self) -> State:
        described = written(self.described)
        best = None
        if self.best is not None:
            best = self.best.to_json()
        meta = {
            "stage": self.stage,
            "round": self.round,
            "meta": dict(self.state.meta),
            "totals": self.totals.to_json(),
            "versions": {str(client): version for client, version in self.versions.items()},
            "described": described.others,
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
            "allowance": self.allowance.to_json(),
            "stopped": self.stopped,
        }
        if self.clustering is not None:
            meta["clustering"] = self.clustering.to_json()
        if self.elsewhere is None:
            return State({**self.state.tensors, **described.tables}, meta)
        return State(described.tables, {**meta, "elsewhere": self.elsewhere.to_json()})

    @classmethod
    def from_state(cls, saved: State) -> Checkpoint:
        raw = dict(saved.meta)
        return cls(
            stage=raw["stage"],
            round=raw["round"],
            state=State(without_reserved(saved.tensors), raw["meta"]),
            versions={int(client): version for client, version in raw["versions"].items()},
            described=read_again(saved.tensors, raw["described"]),
            totals=Totals.from_json(raw["totals"]),
            charged=raw["charged"],
            began=raw["began"],
            budget=raw["budget"],
            last_cost=raw["last_cost"],
            best=Best.from_json(raw["best"]),
            rows=raw["rows"],
            # Earlier versions did not write these.
            rows_checksum=raw.get("rows_checksum"),
            norms=raw.get("norms", {}),
            held=tuple(raw.get("held", ())),
            taken_back=tuple(TakenBack(**step) for step in raw.get("taken_back", ())),
            clustering=Clustering.from_json(raw.get("clustering")),
            elsewhere=Elsewhere.from_json(raw.get("elsewhere")),
            allowance=Allowance.from_json(raw.get("allowance")),
            stopped=raw.get("stopped", "rounds"),
        )


def are_whole(rows: bytes) -> bool:
    """Whether these bytes are complete rows of metrics.jsonl, each ended by a newline."""
    *lines, unfinished = rows.split(b"\n")
    if unfinished:
        return False
    try:
        for line in lines:
            MetricsRow.from_line(line)
    except Unreadable:
        return False
    return True


@dataclass(frozen=True)
class Origin:
    """The checkpoint that a tensor was read from or written to."""

    tensor: weakref.ref[torch.Tensor]
    version: int  # a counter that torch increments whenever the tensor is changed in place
    round: int
    name: str

    def has(self, tensor: torch.Tensor, name: str) -> bool:
        """Whether the checkpoint has exactly this tensor, unchanged, under this name."""
        is_same = self.tensor() is tensor and version_of(tensor) == self.version
        return is_same and self.name == name


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; -1 if torch does not count its changes."""
    if tensor.is_inference():
        return -1
    return tensor._version


class Origins:
    """Which checkpoint contains the tensors that a run works with.

    It holds weak references only, so it keeps no tensor alive.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Origin] = {}

    def remember(self, number: int, tensors: Tensors) -> None:
        self.by_id = {
            key: origin for key, origin in self.by_id.items() if origin.tensor() is not None
        }
        for name, tensor in tensors.items():
            if version_of(tensor) >= 0:
                origin = Origin(weakref.ref(tensor), version_of(tensor), number, name)
                self.by_id[id(tensor)] = origin

    def of(self, tensors: Tensors) -> int | None:
        """The round whose checkpoint has all these tensors, unchanged and under their names."""
        rounds = set()
        for name, tensor in tensors.items():
            origin = self.by_id.get(id(tensor))
            if origin is None or not origin.has(tensor, name):
                return None
            rounds.add(origin.round)
        if len(rounds) != 1:
            return None
        return rounds.pop()


@dataclass(frozen=True)
class Summary:
    """What the archive remembers about a checkpoint on the disk."""

    best: Best | None = None
    elsewhere: int | None = None  # the round whose checkpoint contains its tensors
    is_damaged: bool = False

    @classmethod
    def of(cls, at: Checkpoint) -> Summary:
        if at.elsewhere is None:
            return cls(at.best)
        return cls(at.best, at.elsewhere.round)


DAMAGED = ".damaged"  # the suffix of a checkpoint that was skipped
SPARE = ".spare.tmp"  # an old file that the next checkpoint overwrites


class Archive:
    """The checkpoints and the metrics of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.run_folder = folder
        self.folder = folder / "checkpoints"
        self.metrics = folder / "metrics.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        self._summaries: dict[int, Summary] = {}  # of checkpoints that were saved or read here
        self._origins = Origins()

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
        """The checkpoint of a round. Raises OSError or WireError if it is missing or damaged."""
        saved = read_state(self.path(number).read_bytes())
        try:
            at = Checkpoint.from_state(saved)
        except (AttributeError, KeyError, TypeError, Unreadable, ValueError) as error:
            raise WireError(f"it is not a checkpoint ({type(error).__name__}: {error})") from None
        if at.round != number:
            raise WireError(f"it is the checkpoint of round {at.round}")
        if at.elsewhere is None:
            self._origins.remember(number, at.state.tensors)
            return at
        tensors = self._tensors_in(at.elsewhere)
        self._origins.remember(at.elsewhere.round, tensors)
        return replace(at, state=State(tensors, at.state.meta))

    def _tensors_in(self, elsewhere: Elsewhere) -> Tensors:
        """The tensors of a checkpoint that are stored in the file of another one."""
        where = f"its tensors are in the checkpoint of round {elsewhere.round}"
        try:
            saved = read_state(self.path(elsewhere.round).read_bytes())
            return {name: saved.tensors[name] for name in elsewhere.names}
        except FileNotFoundError:
            raise WireError(f"{where}, which is missing") from None
        except WireError as error:
            raise WireError(f"{where}, which is damaged ({error})") from None
        except KeyError as error:
            raise WireError(f"{where}, which lacks {error}") from None

    def resumable(self) -> Checkpoint | None:
        """The newest checkpoint from which a run can go on; None if it must start again.

        Checkpoints that cannot be used are renamed and kept. Only damage counts: if the disk cannot
        be read at the moment, the run stops and nothing is lost.
        """
        for number in reversed(self.rounds()):
            trouble = self._trouble(number)
            if trouble is None:
                return self.load(number)
            log.warning("the checkpoint of round %d cannot be used: %s", number, trouble)
            self.path(number).rename(self.path(number).with_suffix(DAMAGED))
        return None

    def _trouble(self, number: int) -> str | None:
        """Why a run cannot go on from this checkpoint, or None if it can."""
        try:
            at = self.load(number)
        except WireError as error:
            return str(error)
        if not self._has_rows(at):
            return "its rows of metrics.jsonl are missing or damaged"
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
        """The checkpoint that a finished run reports: its last round, or its last stage's best.

        Nothing is written. If the checkpoint of the last round is damaged, the newest intact one is
        used instead, and a warning is logged.
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
        """Append the round's row, write its checkpoint, and delete those no longer needed."""
        line = row.to_line()
        before = at.rows_checksum
        if before is None:
            before = zlib.crc32(self._read_rows(at.rows))
        self._append(line, at.rows)
        at = replace(
            at,
            rows=at.rows + len(line),
            rows_checksum=zlib.crc32(line, before),
            elsewhere=self._elsewhere(at),
        )
        chunks = checked_state_chunks(at.to_state())
        write_whole(self.path(at.round), chunks, durable=True, over=self._take_spare())
        if at.elsewhere is None:
            self._origins.remember(at.round, at.state.tensors)
        self._summaries[at.round] = Summary.of(at)
        self.prune(at)
        return at

    def _elsewhere(self, at: Checkpoint) -> Elsewhere | None:
        """The earlier checkpoint that already contains the tensors, if they are large.

        There must be a second checkpoint with tensors of its own, to go back to if that one is
        damaged.
        """
        tensors = at.state.tensors
        if sum(tensor.nbytes for tensor in tensors.values()) <= FEW:
            return None
        number = self._origins.of(tensors)
        if number is None or number >= at.round or not self.path(number).exists():
            return None
        if self._whole_before(number) is None:
            return None
        return Elsewhere(number, tuple(tensors))

    def _whole_before(self, number: int) -> int | None:
        """The newest checkpoint before this one that has tensors of its own."""
        for earlier in reversed(self.rounds()):
            if earlier >= number:
                continue
            summary = self._summary(earlier)
            if summary.elsewhere is None and not summary.is_damaged:
                return earlier
        return None

    def _append(self, line: bytes, size: int) -> None:
        """Write a row after the first `size` bytes of metrics.jsonl.

        An earlier attempt that failed on a full disk may have left more bytes than these.
        """
        with open(self.metrics, "ab") as file:
            present = file.tell()
            if present > size:
                file.truncate(size)
            if present < size:
                raise RunStopped(
                    f"{self.metrics} must have {size} bytes",
                    f"it has {present}: somebody changed it",
                    "resume the run, which goes back to an earlier round",
                )
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def prune(self, at: Checkpoint) -> None:
        """Delete the checkpoints to which the run can no longer return from this one."""
        present = self.rounds()
        needed = self._needed(at, present)
        for number in present:
            if number not in needed:
                self._drop(self.path(number))

    def _drop(self, path: Path) -> None:
        """Delete a checkpoint, or keep a small file for the next checkpoint to overwrite.

        Deleting a file and creating another takes longer than writing a small one.
        """
        with suppress(OSError):  # in that case the file is deleted below
            if path.stat().st_size <= FEW:
                os.replace(path, self.folder / SPARE)
                return
        path.unlink(missing_ok=True)

    def _take_spare(self) -> Path | None:
        spare = self.folder / SPARE
        if spare.exists():
            return spare
        return None

    def needed(self, at: Checkpoint) -> set[int]:
        """The rounds to whose checkpoints a run may still return."""
        return self._needed(at, self.rounds())

    def _needed(self, at: Checkpoint, present: Sequence[int]) -> set[int]:
        """The rounds among `present` to which a run may still return.

        These are the last two, those held because most clients have been refused since, and the
        best round that each of these names. If the tensors of one of them are in another
        checkpoint, that checkpoint is needed too, and a second one with tensors of its own.
        """
        needed = {*present[-2:], *at.held}
        for number in sorted(needed):
            best = at.best if number == at.round else self._summary(number).best
            if best is not None:
                needed.add(best.round)
        for number in sorted(needed):
            elsewhere = self._summary(number).elsewhere
            if elsewhere is None:
                continue
            needed.add(elsewhere)
            second = self._whole_before(elsewhere)
            if second is not None:
                needed.add(second)
        return needed

    def _summary(self, number: int) -> Summary:
        if number not in self._summaries:
            try:
                self._summaries[number] = Summary.of(self.load(number))
            except (OSError, WireError):  # the run will not return to it
                self._summaries[number] = Summary(is_damaged=True)
        return self._summaries[number]

    # States that finished stages leave

    def path_of_left(self, name: str) -> Path:
        return self.run_folder / f"{name}.state"

    def leave(self, name: str, state: State) -> None:
        """Save the state that a finished stage hands on, as checkpoints keep it for two rounds."""
        write_whole(self.path_of_left(name), checked_state_chunks(state), durable=True)

    def left(self, name: str) -> State:
        """The state that a finished stage left under this name."""
        path = self.path_of_left(name)
        try:
            return read_state(path.read_bytes())
        except FileNotFoundError:
            problem = "there is no such file"
        except WireError as error:
            problem = str(error)
        rule = f"{path} must be the state that a finished stage left"
        raise FedloomError(rule, problem, "restore it from a backup, or run it again")

    def forget_left(self, name: str) -> None:
        """Delete what is stored for a stage that has not finished.

        It may come from rounds that were taken back.
        """
        path = self.path_of_left(name)
        path.unlink(missing_ok=True)
        for unfinished in self.run_folder.glob(f".{path.name}.*.tmp"):
            unfinished.unlink(missing_ok=True)

    def tidy(self, at: Checkpoint) -> None:
        """Clean up at the end of a run, so that only the checkpoints that are needed remain.

        The checkpoint that is reported gets its tensors in its own file.
        """
        reported = at.round
        if at.best is not None:
            reported = at.best.round
        self._complete(reported)
        self.prune(at)
        remove_leftovers(self.folder)
        for path in self.folder.glob(f"*{DAMAGED}"):
            path.unlink(missing_ok=True)

    def _complete(self, number: int) -> None:
        """Write a checkpoint whose tensors are in another one again, with its tensors."""
        if self._summary(number).elsewhere is None:
            return
        at = replace(self.load(number), elsewhere=None)
        write_whole(self.path(number), checked_state_chunks(at.to_state()), durable=True)
        self._summaries[number] = Summary.of(at)

    # Scores of paths

    def keep_scores(self, rows: Sequence[ScoredPath]) -> None:
        """Write these rows to scores.jsonl, in place of what it holds."""
        write_scores(self.run_folder / SCORES_FILE, rows)

    def cut_metrics(self, at: Checkpoint) -> None:
        """Cut off the rows of metrics.jsonl that are newer than the checkpoint."""
        cut_to(self.metrics, at.rows)

    def returnable(self, number: int) -> Checkpoint:
        """The checkpoint to which a run is taken back. Round 0 is its beginning."""
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
                f"the checkpoint of round {number} must be intact",
                trouble,
                "name another round",
            )
        return self.load(number)

    def take_back(self, number: int) -> Checkpoint:
        """Make an earlier checkpoint the latest one, and record in it that this was done."""
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
        self._summaries.clear()
        for other in reversed(kept):
            if other > number:
                self.path(other).unlink(missing_ok=True)
        self.cut_metrics(at)
        return at

    def _taken_back_before(self, reached: int, number: int) -> tuple[TakenBack, ...]:
        """When the run was taken back before, by its newest checkpoint.

        An older checkpoint may lack some of these entries.
        """
        if reached == number:
            return ()
        try:
            return self.load(reached).taken_back
        except (OSError, WireError):
            return ()

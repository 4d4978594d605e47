"""The checkpoints of a run on disk. The last two and the best one are kept.

Rows of metrics.jsonl that are newer than the checkpoint from which a run resumes are cut off, as if
they had never been written. A checkpoint that is damaged, or whose rows are missing, is skipped in
favour of the one before it.

Large tensors that have not changed since an earlier checkpoint are not written again: a generation
of a search changes a list of scores, but not its supernet. Such a checkpoint names the earlier one
that contains them. Two checkpoints with tensors of their own are always kept, so that damage to one
file does not cost all rounds.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.wire import checked_state_chunks, read_state
from fedloom.federation.server.checkpoint import Best, Checkpoint, Elsewhere, TakenBack
from fedloom.federation.server.origins import Origins
from fedloom.files import cut_to, remove_leftovers, write_whole
from fedloom.reading import Unreadable
from fedloom.records.rows import MetricsRow
from fedloom.records.scores import SCORES_FILE, ScoredPath, write_scores
from fedloom.types import State, Tensors

log = logging.getLogger("fedloom")
# Tensors of at most this many bytes are written again with every checkpoint.
FEW = 1 << 19
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
            checkpoint = Checkpoint.from_state(saved)
        except (AttributeError, KeyError, TypeError, Unreadable, ValueError) as error:
            raise WireError(f"it is not a checkpoint ({type(error).__name__}: {error})") from None
        if checkpoint.round != number:
            raise WireError(f"it is the checkpoint of round {checkpoint.round}")
        if checkpoint.elsewhere is None:
            self._origins.remember(number, checkpoint.state.tensors)
            return checkpoint
        tensors = self._tensors_in(checkpoint.elsewhere)
        self._origins.remember(checkpoint.elsewhere.round, tensors)
        return replace(checkpoint, state=State(tensors, checkpoint.state.meta))

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
            checkpoint = self.load(number)
        except WireError as error:
            return str(error)
        if not self._has_rows(checkpoint):
            return "its rows of metrics.jsonl are missing or damaged"
        if checkpoint.best is None or checkpoint.best.round == number:
            return None
        best_round = checkpoint.best.round
        try:
            self.load(best_round)
        except (FileNotFoundError, WireError) as error:
            return f"the best round so far, {best_round}, is missing or damaged ({error})"
        return None

    def _has_rows(self, checkpoint: Checkpoint) -> bool:
        rows = self._read_rows(checkpoint.rows)
        if len(rows) < checkpoint.rows:
            return False
        if checkpoint.rows_checksum is not None:
            return zlib.crc32(rows) == checkpoint.rows_checksum
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
                checkpoint = self.load(number)
                if checkpoint.best is None or checkpoint.best.round == number:
                    return checkpoint
                return self.load(checkpoint.best.round)
            except (FileNotFoundError, WireError) as error:
                log.warning("the checkpoint of round %d cannot be used: %s", number, error)
        raise FedloomError(
            "a run must still have its checkpoints",
            f"{self.folder} has none",
            "run it again",
        )

    def save(self, checkpoint: Checkpoint, row: MetricsRow) -> Checkpoint:
        """Append the round's row, write its checkpoint, and delete those no longer needed."""
        line = row.to_line()
        before = checkpoint.rows_checksum
        if before is None:
            before = zlib.crc32(self._read_rows(checkpoint.rows))
        self._append(line, checkpoint.rows)
        checkpoint = replace(
            checkpoint,
            rows=checkpoint.rows + len(line),
            rows_checksum=zlib.crc32(line, before),
            elsewhere=self._elsewhere(checkpoint),
        )
        chunks = checked_state_chunks(checkpoint.to_state())
        write_whole(self.path(checkpoint.round), chunks, durable=True, over=self._take_spare())
        if checkpoint.elsewhere is None:
            self._origins.remember(checkpoint.round, checkpoint.state.tensors)
        self._summaries[checkpoint.round] = Summary.of(checkpoint)
        self.prune(checkpoint)
        return checkpoint

    def _elsewhere(self, checkpoint: Checkpoint) -> Elsewhere | None:
        """The earlier checkpoint that already contains the tensors, if they are large.

        There must be a second checkpoint with tensors of its own, to go back to if that one is
        damaged.
        """
        tensors = checkpoint.state.tensors
        if sum(tensor.nbytes for tensor in tensors.values()) <= FEW:
            return None
        number = self._origins.of(tensors)
        if number is None or number >= checkpoint.round or not self.path(number).exists():
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

    def prune(self, checkpoint: Checkpoint) -> None:
        """Delete the checkpoints to which the run can no longer return from this one."""
        present = self.rounds()
        needed = self._needed(checkpoint, present)
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

    def needed(self, checkpoint: Checkpoint) -> set[int]:
        """The rounds to whose checkpoints a run may still return."""
        return self._needed(checkpoint, self.rounds())

    def _needed(self, checkpoint: Checkpoint, present: Sequence[int]) -> set[int]:
        """The rounds among `present` to which a run may still return.

        These are the last two, those held because most clients have been refused since, and the
        best round that each of these names. If the tensors of one of them are in another
        checkpoint, that checkpoint is needed too, and a second one with tensors of its own.
        """
        needed = {*present[-2:], *checkpoint.held}
        for number in sorted(needed):
            best = checkpoint.best if number == checkpoint.round else self._summary(number).best
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

    def stage_state_path(self, name: str) -> Path:
        return self.run_folder / f"{name}.state"

    def keep_stage_state(self, name: str, state: State) -> None:
        """Save the state that a finished stage hands on, as checkpoints keep it for two rounds."""
        write_whole(self.stage_state_path(name), checked_state_chunks(state), durable=True)

    def stage_state(self, name: str) -> State:
        """The state that a finished stage left under this name."""
        path = self.stage_state_path(name)
        try:
            return read_state(path.read_bytes())
        except FileNotFoundError:
            problem = "there is no such file"
        except WireError as error:
            problem = str(error)
        rule = f"{path} must be the state that a finished stage left"
        raise FedloomError(rule, problem, "restore it from a backup, or run it again")

    def forget_stage_state(self, name: str) -> None:
        """Delete what is stored for a stage that has not finished.

        It may come from rounds that were taken back.
        """
        path = self.stage_state_path(name)
        path.unlink(missing_ok=True)
        for unfinished in self.run_folder.glob(f".{path.name}.*.tmp"):
            unfinished.unlink(missing_ok=True)

    def tidy(self, checkpoint: Checkpoint) -> None:
        """Clean up at the end of a run, so that only the checkpoints that are needed remain.

        The checkpoint that is reported gets its tensors in its own file.
        """
        reported = checkpoint.round
        if checkpoint.best is not None:
            reported = checkpoint.best.round
        self._complete(reported)
        self.prune(checkpoint)
        remove_leftovers(self.folder)
        for path in self.folder.glob(f"*{DAMAGED}"):
            path.unlink(missing_ok=True)

    def _complete(self, number: int) -> None:
        """Write a checkpoint whose tensors are in another one again, with its tensors."""
        if self._summary(number).elsewhere is None:
            return
        checkpoint = replace(self.load(number), elsewhere=None)
        write_whole(self.path(number), checked_state_chunks(checkpoint.to_state()), durable=True)
        self._summaries[number] = Summary.of(checkpoint)

    # Scores of paths

    def keep_scores(self, rows: Sequence[ScoredPath]) -> None:
        """Write these rows to scores.jsonl, in place of what it holds."""
        write_scores(self.run_folder / SCORES_FILE, rows)

    def cut_metrics(self, checkpoint: Checkpoint) -> None:
        """Cut off the rows of metrics.jsonl that are newer than the checkpoint."""
        cut_to(self.metrics, checkpoint.rows)

    def returnable(self, number: int) -> Checkpoint:
        """The checkpoint to which a run is taken back. Round 0 is its beginning."""
        if number == 0:
            return Checkpoint()
        saved_rounds = self.rounds()
        if number not in saved_rounds:
            listed = ", ".join(map(str, saved_rounds)) or "none"
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
        checkpoint = self.returnable(number)
        saved_rounds = self.rounds() or [0]
        reached = saved_rounds[-1]
        for earlier in self._taken_back_before(reached, number):
            if earlier not in checkpoint.taken_back:
                checkpoint = replace(checkpoint, taken_back=(*checkpoint.taken_back, earlier))
        step = TakenBack(reached, number)
        if number < reached and step not in checkpoint.taken_back:
            checkpoint = replace(checkpoint, taken_back=(*checkpoint.taken_back, step))
            write_whole(
                self.path(number), checked_state_chunks(checkpoint.to_state()), durable=True
            )
        self._summaries.clear()
        for other in reversed(saved_rounds):
            if other > number:
                self.path(other).unlink(missing_ok=True)
        self.cut_metrics(checkpoint)
        return checkpoint

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
class Summary:
    """What the archive remembers about a checkpoint on the disk."""

    best: Best | None = None
    elsewhere: int | None = None  # the round whose checkpoint contains its tensors
    is_damaged: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Summary:
        if checkpoint.elsewhere is None:
            return cls(checkpoint.best)
        return cls(checkpoint.best, checkpoint.elsewhere.round)

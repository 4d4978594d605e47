"""Where a run stands after a round, on disk: the last two rounds and the best one.

A checkpoint is a wire state, so it opens with any safetensors reader. Rows of metrics.jsonl beyond the
checkpoint that a run resumes from are cut off, as if they had never been written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.federation.files import remove_leftovers, write_whole
from fedloom.federation.ledger import Totals
from fedloom.federation.wire import WireError, read_state, state_chunks
from fedloom.types import Json, State


@dataclass(frozen=True)
class Best:
    """The best round of a stage so far, by the mean validation figure."""

    round: int
    value: float


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

    @property
    def spent(self) -> float:
        return self.charged - self.began

    def to_state(self) -> State:
        best = None if self.best is None else [self.best.round, self.best.value]
        meta = {
            "stage": self.stage, "round": self.round, "meta": dict(self.state.meta), "totals": self.totals.to_json(),
            "versions": {str(client): version for client, version in self.versions.items()},
            "described": {str(client): facts for client, facts in self.described.items()},
            "charged": self.charged, "began": self.began, "budget": self.budget, "last_cost": self.last_cost,
            "best": best, "rows": self.rows,
        }  # fmt: skip
        return State(self.state.tensors, meta)

    @classmethod
    def from_state(cls, saved: State) -> Checkpoint:
        raw = dict(saved.meta)
        return cls(
            stage=raw["stage"], round=raw["round"], state=State(saved.tensors, raw["meta"]),
            versions={int(client): version for client, version in raw["versions"].items()},
            described={int(client): facts for client, facts in raw["described"].items()},
            totals=Totals.from_json(raw["totals"]), charged=raw["charged"], began=raw["began"], budget=raw["budget"],
            last_cost=raw["last_cost"], best=None if raw["best"] is None else Best(*raw["best"]), rows=raw["rows"],
        )  # fmt: skip


class Archive:
    """The checkpoints and the metrics of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.metrics = folder / "checkpoints", folder / "metrics.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)

    def rounds(self) -> list[int]:
        names = [name.removesuffix(".state") for name in os.listdir(self.folder) if name.endswith(".state")]
        return sorted(int(name) for name in names if name.isdecimal())

    def load(self, number: int) -> Checkpoint:
        return Checkpoint.from_state(read_state((self.folder / f"{number:06d}.state").read_bytes()))

    def latest(self) -> Checkpoint | None:
        """The newest that can be read; a damaged one is passed over for the one before it."""
        for number in reversed(self.rounds()):
            try:
                return self.load(number)
            except (WireError, KeyError, TypeError, ValueError):
                (self.folder / f"{number:06d}.state").rename(self.folder / f"{number:06d}.damaged")
        return None

    def final(self) -> Checkpoint:
        """What a finished run reports: its last round, or the best of its last stage."""
        at = self.latest()
        if at is None:
            raise FedloomError("a run must still have its checkpoints", f"{self.folder} has none", "run it again")
        return at if at.best is None or at.best.round == at.round else self.load(at.best.round)

    def save(self, at: Checkpoint, row: Json) -> Checkpoint:
        """Append the round's row, then write its checkpoint, then drop those no longer needed."""
        with open(self.metrics, "ab") as file:
            file.truncate(at.rows)  # what a full disk left of an earlier try
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            at = replace(at, rows=file.tell())
        write_whole(self.folder / f"{at.round:06d}.state", state_chunks(at.to_state()), durable=True)
        present = self.rounds()
        needed = {*present[-2:], *([] if at.best is None else [at.best.round])}
        for number in present:
            if number not in needed:
                (self.folder / f"{number:06d}.state").unlink(missing_ok=True)
        return at

    def cut_metrics(self, at: Checkpoint) -> None:
        """Cut off rows that the checkpoint does not know of."""
        if self.metrics.exists():
            with open(self.metrics, "r+b") as file:
                file.truncate(at.rows)

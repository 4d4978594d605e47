"""The state of a run after a round, as a file.

A checkpoint is a wire state, so any safetensors reader can open it. `server/archive.py` decides
when one is written and how long it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from fedloom.config.models import Unit
from fedloom.federation.server.budgets import Allowance
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.described import read_again, without_reserved, written
from fedloom.federation.server.norms import History
from fedloom.records.totals import Totals
from fedloom.types import ClientDescription, Json, State


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
            "described": described.as_json,
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

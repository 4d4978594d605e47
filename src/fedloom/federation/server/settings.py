"""What the loop needs to know of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fedloom.config.flags import NORM_BOUND
from fedloom.config.histograms import HistogramRule
from fedloom.config.models import Unit
from fedloom.cost.devices import Device
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.budgets import Amounts, Reserve
from fedloom.federation.server.clock import Phases
from fedloom.types import Task, TierDeal, active_of


class Registered(NamedTuple):
    """How many samples a client had when the run began."""

    train: int
    total: int


# At equal MACs or bytes, a method that spends next to nothing gets at most 4 × --rounds rounds.
CAP = 4


@dataclass(frozen=True)
class Settings:
    experiment: str
    task: Task
    population: int
    rounds: int
    unit: Unit = "rounds"
    amount: float | None = None  # the budget in another unit; in rounds it is `rounds`
    limits: Amounts = field(default_factory=dict)  # what may be spent at most
    participation: float = 1.0
    min_replies: int = 1
    deadline: float | None = None  # seconds that a client may take; None: any time
    lost_state: Literal["refuse", "fresh"] = "refuse"
    # How many times the usual size an update may have; None: any.
    norm_bound: float | None = NORM_BOUND
    # The most of a round's weight that one client has; None: what it claims.
    max_weight_share: float | None = None
    evaluate_every: int = 1
    evaluate_clients: int = 100
    select: Literal["last", "best"] = "last"
    judges_reported: bool = (
        False  # whether the reported round gets a validation figure though none was selected
    )
    # What every client is asked to tell of its labels before the first round; None: nothing.
    histograms: HistogramRule | None = None
    tiers: TierDeal | None = None  # of the devices, for methods that know them
    devices: Sequence[Device] = ()  # by client; empty: the simulated clock stands still
    phases: Phases = "serial"  # whether a device trains and searches one after the other
    attendance: Attendance = field(default_factory=lambda: Attendance(0))  # who is there
    overselect: float = 1.0  # how many times as many are asked as a round waits for
    round_deadline: float | None = None  # simulated seconds; None: any time
    registered: Sequence[Registered] = ()  # by client; empty: only their descriptions tell
    # Only the sites of a federation have names.
    names: Mapping[int, str] = field(default_factory=dict)

    def called(self, client: int) -> str:
        """What messages call a client."""
        if client in self.names:
            return f"client {client} ({self.names[client]})"
        return f"client {client}"

    @property
    def active(self) -> int:
        """Clients that work in a round, if all are there."""
        return active_of(self.population, self.participation)

    @property
    def tells_confusion(self) -> bool:
        """Whether counts per pair of classes are asked for with the final figures.

        The sums of such a matrix's rows are the labels of a client's test part: they would undo
        the noise of its histogram.
        """
        return self.histograms is None or not self.histograms.is_noisy

    @property
    def allowance_a_round(self) -> dict[str, float]:
        """What the limits allow a round on average, by unit."""
        return {unit: limit / self.rounds for unit, limit in self.limits.items()}

    @property
    def budget(self) -> float:
        if self.unit == "rounds" or self.amount is None:
            return float(self.rounds)
        return self.amount

    def charge(self, spent: float, *, asks_nobody: bool = False) -> float:
        """What a round costs of the budget. The floor ends runs that spend nothing of it.

        A round that asks nobody has none: its stage says itself when it is over.
        """
        if self.unit == "rounds" or asks_nobody:
            return spent
        return max(spent, self.budget / (CAP * self.rounds))

    def stage_share(self, shares: Sequence[float | None], stage: int) -> float | None:
        """A stage's share of what is left of the limits when it begins; None: all of it."""
        later = [other for other in shares[stage + 1 :] if other is not None]
        if not later:
            return None
        return shares[stage]

    def reserve(self, shares: Sequence[float | None], stage: int) -> Reserve:
        """What must be left of the limits for later stages that end when they want to."""
        open_ended = [share for share in shares[stage + 1 :] if share is None]
        if shares[stage] is None:
            return Reserve()
        return Reserve(len(open_ended), 1 / self.participation)

    def stage_budget(self, shares: Sequence[float | None], stage: int, remaining: float) -> float:
        """A stage's part of what is left when it begins.

        Rounds stay whole, at least one for each later stage.
        """
        share = shares[stage]
        later = [other for other in shares[stage + 1 :] if other is not None]
        if share is None or not later:
            return max(remaining, 0.0)
        if self.unit != "rounds":
            return max(share * remaining, 0.0)
        most = remaining - len(later)
        return float(max(1, min(round(share * remaining), most)))

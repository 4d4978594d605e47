"""The settings of a run that the loop needs."""

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
from fedloom.federation.server.work_times import Phases
from fedloom.types import Task, TierDeal, active_of


class Registered(NamedTuple):
    """How many samples a client had when the run began."""

    train: int
    total: int


# With a budget in MACs or bytes, a method that spends almost nothing gets at most 4 × --rounds
# rounds.
CAP = 4


@dataclass(frozen=True)
class Settings:
    """The settings of a run that the loop needs."""

    experiment: str
    task: Task
    population: int
    rounds: int
    unit: Unit = "rounds"
    amount: float | None = None  # the budget in another unit; a budget in rounds is `rounds`
    limits: Amounts = field(default_factory=dict)  # the most that may be spent
    participation: float = 1.0
    min_replies: int = 1
    deadline: float | None = None  # seconds that a client may take; None: no deadline
    lost_state: Literal["refuse", "fresh"] = "refuse"
    # How many times the usual size an update may have; None: any size.
    norm_bound: float | None = NORM_BOUND
    # The largest share of a round's weight that one client may have; None: there is no cap.
    max_weight_share: float | None = None
    evaluate_every: int = 1
    evaluate_clients: int = 100
    select: Literal["last", "best"] = "last"
    # Whether the reported round gets a validation metric although no round was selected by it.
    judges_reported: bool = False
    # How clients report their label counts before the first round; None: they are not asked.
    histograms: HistogramRule | None = None
    tiers: TierDeal | None = None  # tiers of devices, for methods that use them
    devices: Sequence[Device] = ()  # by client; empty: the simulated clock stands still
    phases: Phases = "serial"  # whether a device trains and searches one after the other
    attendance: Attendance = field(default_factory=lambda: Attendance(0))  # who is available
    overselect: float = 1.0  # how many times as many clients are asked as a round waits for
    round_deadline: float | None = None  # simulated seconds; None: no deadline
    registered: Sequence[Registered] = ()  # by client; empty: descriptions are not compared
    # Whether MACs come from the method's formula where clients do not report them.
    macs_by_formula: bool = False
    # The names of clients, which only the sites of a federation have.
    names: Mapping[int, str] = field(default_factory=dict)

    def called(self, client: int) -> str:
        """The name of a client in messages."""
        if client in self.names:
            return f"client {client} ({self.names[client]})"
        return f"client {client}"

    @property
    def active(self) -> int:
        """How many clients work in a round if all are available."""
        return active_of(self.population, self.participation)

    @property
    def sends_confusion(self) -> bool:
        """Whether clients are asked for a confusion matrix with the final metrics.

        The row sums of such a matrix are the label counts of a client's test part: they would undo
        the noise of its histogram.
        """
        return self.histograms is None or not self.histograms.is_noisy

    @property
    def allowance_a_round(self) -> dict[str, float]:
        """What the limits allow per round on average, by unit."""
        return {unit: limit / self.rounds for unit, limit in self.limits.items()}

    @property
    def budget(self) -> float:
        if self.unit == "rounds" or self.amount is None:
            return float(self.rounds)
        return self.amount

    def charge(self, spent: float, *, asks_nobody: bool = False) -> float:
        """What a round is charged. A minimum ends runs that spend almost nothing of the budget.

        There is no minimum for a round that asks no client: its stage decides itself when it ends.
        """
        if self.unit == "rounds" or asks_nobody:
            return spent
        return max(spent, self.budget / (CAP * self.rounds))

    def stage_share(self, shares: Sequence[float | None], stage: int) -> float | None:
        """A stage's share of what remains of the limits when it begins; None: all of it."""
        later = [other for other in shares[stage + 1 :] if other is not None]
        if not later:
            return None
        return shares[stage]

    def reserve(self, shares: Sequence[float | None], stage: int) -> Reserve:
        """What must remain of the limits for later stages that decide when they end."""
        open_ended = [share for share in shares[stage + 1 :] if share is None]
        if shares[stage] is None:
            return Reserve()
        return Reserve(len(open_ended), 1 / self.participation)

    def stage_budget(self, shares: Sequence[float | None], stage: int, remaining: float) -> float:
        """A stage's part of the budget that remains when it begins.

        A budget in rounds is a whole number, and leaves at least one round for each later stage.
        """
        share = shares[stage]
        later = [other for other in shares[stage + 1 :] if other is not None]
        if share is None or not later:
            return max(remaining, 0.0)
        if self.unit != "rounds":
            return max(share * remaining, 0.0)
        most = remaining - len(later)
        return float(max(1, min(round(share * remaining), most)))

"""result.json of `fedloom auto`: what a comparison's has, and what follows from it.

It is written and read through these types. Whatever is chosen is chosen on validation data; figures
on test data stand beside it and decide nothing.
"""

from __future__ import annotations

from fedloom.records.comparison import ComparisonResult
from fedloom.records.decision import Decision
from fedloom.records.record import Count, Figure, Interval, Record


class OnTest(Record):
    """The metric on the clients' own test parts."""

    mean: Figure | None  # over clients
    std: Figure | None  # ddof 0: these are all the clients
    worst: Figure | None
    pooled: Figure | None  # over all their samples
    interval: Interval | None  # 95 %, of the mean, Student's t over clients; None: no spread


class Gap(Record):
    """A mean difference over clients, each to itself, with its 95 % interval."""

    mean: Figure
    interval: Interval | None  # None: one client, or equal differences


class LeaderboardRow(Record):
    """A contestant that had the whole budget."""

    name: str
    validation: Figure | None  # mean over clients, of the reported round
    test: OnTest
    to_control: Gap | None  # on test data; None: it is the control, or a figure is missing
    params: Figure | None  # mean over the clients' networks
    macs: Figure | None  # the same, of one sample
    training_macs: Count | None
    bytes: Count  # of training, all links
    chosen: bool  # whether it is the common winner
    fits: bool | None = None  # whether every client's network keeps --limit; None: there is none


class ClientWinner(Record):
    """The contestant whose model a client is to use.

    It is another than the common winner where validation samples right only by its model exceed
    those right only by the common one's by more than the root of both together.
    """

    client: Count
    chosen: str
    samples: Count  # of its validation part
    only_chosen: Count = 0  # right by the chosen model and wrong by the common winner's
    only_common: Count = 0  # the other way round


class Spent(Record):
    """What the whole command spent in training."""

    macs: Count | None
    bytes: Count
    rounds: Count
    # Of one contestant's budget, by step: a stage or a phase of the main contestant, or the whole
    # run of another one.
    share: dict[str, Figure]


class AutoResult(ComparisonResult):
    verdict: str  # one sentence
    leaderboard: list[LeaderboardRow]  # from best to last by validation
    decisions: list[Decision]  # of the main contestant, then between contestants
    spent: Spent
    clients: list[ClientWinner]
    # Where clients use models of different contestants: each with its own; None: all use one.
    mixed: OnTest | None = None
    note: str = ""  # how the budget was settled

    @property
    def winner(self) -> LeaderboardRow:
        return next(row for row in self.leaderboard if row.chosen)

    @property
    def clients_with_another_model(self) -> list[ClientWinner]:
        """Clients that use the model of another contestant than the common winner."""
        return [client for client in self.clients if client.chosen != self.winner.name]

"""How a method plans a round for the clients that are available by the simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedloom.cost.meter import Meter
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.returned import plan_from
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.exchange import Exchange
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.topology import (
    Flat,
    Situation,
    Topology,
    planned_clusters,
    with_grouping,
)
from fedloom.types import Asking, Draw, Order, Reply, Round, State

# Returns a method's view of a round that begins at this time, while these clients are available
# (None: all are).
ViewOf = Callable[[float, Collection[int] | None], Round]


@dataclass(frozen=True)
class Planner:
    """Lets the method of a stage plan a round, with all that it may see of the run."""

    settings: Settings
    topology: Topology
    server_data: Samples | None

    def plan(self, checkpoint: Checkpoint, exchange: Exchange) -> Planned | None:
        """The next round of the exchange's stage, or None if its method plans no more."""
        return planned_round(
            exchange.stage.method,
            checkpoint.state,
            partial(self._view, checkpoint, exchange),
            self.settings.attendance,
            checkpoint.totals.simulated,
            self.settings.population,
        )

    def topology_of(self, stage: Stage) -> Topology:
        if stage.is_flat:
            return Flat()
        return self.topology

    def situation(
        self,
        checkpoint: Checkpoint,
        exchange: Exchange,
        view: Round,
        clock: RoundClock,
    ) -> Situation:
        """What the topology needs to know about the round besides its orders.

        Its clusters are those that the plan asked for, or else the latest ones.
        """
        histograms = {}
        for client, description in exchange.described.items():
            if description.histogram is not None:
                histograms[client] = description.histogram
        stage = exchange.stage
        largest: set[str] = set()
        for fields in stage.method.fields.values():
            largest.update(fields.largest)
        return Situation(
            stage=stage.name,
            round=view,
            clock=clock,
            clustering=planned_clusters(view) or checkpoint.clustering,
            histograms=histograms,
            update_of=stage.method.update_of,
            note=exchange.note_takeover,
            largest=frozenset(largest),
        )

    def _view(
        self,
        checkpoint: Checkpoint,
        exchange: Exchange,
        now: float,
        present: Collection[int] | None,
    ) -> Round:
        """The round as its method sees it while planning."""
        settings = self.settings
        spent_by_limits = checkpoint.allowance.share_spent(checkpoint.totals) * checkpoint.budget
        stage = exchange.stage
        topology = self.topology_of(stage)
        clustering = topology.valid_clustering(checkpoint.clustering, stage.name, exchange.number)
        cohort = None
        if clustering is not None:
            cohort = clustering.clients
        view = Round(
            number=exchange.number,
            spent=max(checkpoint.spent, spent_by_limits),
            budget=checkpoint.budget,
            clients=range(settings.population),
            participation=settings.participation,
            seed=settings.task.seed,
            server_data=self.server_data,
            now=now,
            present=present,
            overselect=settings.overselect,
            kept=cohort,
            hops=topology.hops,
            allowance=settings.allowance_a_round,
            asking=exchange.ask_beforehand,
            unit=settings.unit,
        )
        clock = RoundClock(settings.devices, settings.phases)
        return with_grouping(view, topology, self.situation(checkpoint, exchange, view, clock))


@dataclass(frozen=True)
class Planned:
    """A planned round."""

    view: Round
    state: State
    orders: Sequence[Order]  # for clients that are available
    macs: int  # that planning has computed
    asks_nobody: bool  # whether the plan has no orders, so that the server works alone
    spare: int  # how many more orders there are than replies that the round waits for


def planned_round(
    method: Method,
    state: State,
    view_of: ViewOf,
    attendance: Attendance,
    now: float,
    population: int,
) -> Planned | None:
    """The next round that a method plans, or None if it plans no more.

    While none of the clients that the method would ask is available, the simulated clock moves on
    to the time at which the first of them is.
    """
    while True:
        present = attendance.present(now)
        if present is not None and not present:
            now = attendance.first_return(range(population), now)
            continue
        view = view_of(now, present)
        questions = Questions(view.asking)
        view = replace(view, asking=questions)
        with Meter() as planning:
            planned = plan_from(method, method.plan(state, view))
        if planned is None:
            return None
        planned_state, orders = planned
        check_orders(orders, population, method.fields)
        deliverable = [order for order in orders if present is None or order.client in present]
        absent = awaited(view.draws, orders)
        if not deliverable and absent:
            now = attendance.first_return(absent, now)
            continue
        spare = spare_in(view.draws)
        macs = planning.macs - questions.macs
        return Planned(view, planned_state, deliverable, macs, not orders, spare)


@dataclass
class Questions:
    """Asks clients the questions of a plan, and counts what they compute to answer.

    Their work is not the server's, even if one process does both.
    """

    asking: Asking | None
    macs: int = 0  # that clients have computed

    def __call__(self, orders: Sequence[Order]) -> Sequence[Reply]:
        assert self.asking is not None, "nobody can be asked here"
        with Meter() as answering:
            replies = self.asking(orders)
        self.macs += answering.macs
        return replies


def awaited(draws: Sequence[Draw], orders: Sequence[Order]) -> set[int]:
    """The clients that a plan could ask later, if none of those that it wants is available now.

    They are those of its orders and, if nobody could be drawn from a pool, the whole pool.
    """
    clients = {order.client for order in orders}
    for draw in draws:
        if draw.clients:
            return clients
        clients.update(draw.pool)
    return clients


def spare_in(draws: Sequence[Draw]) -> int:
    """How many more clients were drawn than replies that the round waits for.

    A method may draw the same clients several times in one plan. They count once.
    """
    spare_of = {draw.clients: len(draw.clients) - draw.wanted for draw in draws}
    return sum(spare_of.values())


def clock_of(
    planned: Planned,
    orders: Sequence[Order],
    settings: Settings,
    hops: int,
) -> RoundClock:
    """The clock of a round, which knows which clients will leave."""
    clients = [order.client for order in orders]
    begin = planned.view.now
    wanted = None
    if planned.spare:
        wanted = max(1, len(orders) - planned.spare)
    return RoundClock(
        devices=settings.devices,
        phases=settings.phases,
        begin=begin,
        deadline=settings.round_deadline,
        wanted=wanted,
        departures=settings.attendance.departures(planned.view.number, clients, hops),
        stays=settings.attendance.stays(clients, begin),
    )


def check_orders(
    orders: Sequence[Order],
    population: int,
    fields: Collection[str],
) -> None:
    """Raise an error for a plan that breaks the rules, before it does any harm."""
    for order in orders:
        if order.kind not in fields:
            raise FedloomError(
                "a plan's orders must be of a kind that the method's `fields` declare",
                f"one is of kind {order.kind!r}, and declared are {', '.join(fields) or 'none'}",
                "fix the method",
            )
    clients = [order.client for order in orders]
    if len(set(clients)) != len(clients):
        raise FedloomError(
            "a plan must have at most one order per client",
            f"it has {len(clients)} orders for {len(set(clients))} clients",
            "fix the method",
        )
    unregistered = [client for client in clients if not 0 <= client < population]
    if unregistered:
        raise FedloomError(
            "a plan must name registered clients",
            f"it names {unregistered[0]}",
            "use r.cohort() or r.clients",
        )

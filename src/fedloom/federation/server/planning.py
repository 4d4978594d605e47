"""A round as its method plans it, for those who are there by the simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from fedloom.cost.meter import Meter
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.clock import RoundClock
from fedloom.federation.server.settings import Settings
from fedloom.types import Asking, Draw, Order, Reply, Round, State

# A round that begins then, with those who are there; None: everybody is.
ViewOf = Callable[[float, Collection[int] | None], Round]


@dataclass(frozen=True)
class Planned:
    view: Round
    state: State
    orders: Sequence[Order]  # for those who are there
    macs: int  # of planning
    asks_nobody: bool
    spare: int  # orders beyond the replies that are waited for


def planned_round(
    method: Method,
    state: State,
    view_of: ViewOf,
    attendance: Attendance,
    now: float,
    population: int,
) -> Planned | None:
    """What a method plans when somebody whom it would ask is there; None: no more.

    While nobody is, the simulated clock moves on to the first who comes.
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
            planned = method.plan(state, view)
        if planned is None:
            return None
        planned_state, orders = planned
        check_orders(orders, population)
        there = [order for order in orders if present is None or order.client in present]
        absent = awaited(view.draws, orders)
        if not there and absent:
            now = attendance.first_return(absent, now)
            continue
        spare = spare_in(view.draws)
        macs = planning.macs - questions.macs
        return Planned(view, planned_state, there, macs, not orders, spare)


@dataclass
class Questions:
    """What a plan asks clients. Their work is not the server's, though one process may do both."""

    asking: Asking | None
    macs: int = 0

    def __call__(self, orders: Sequence[Order]) -> Sequence[Reply]:
        assert self.asking is not None, "nobody can be asked here"
        with Meter() as answering:
            replies = self.asking(orders)
        self.macs += answering.macs
        return replies


def awaited(draws: Sequence[Draw], orders: Sequence[Order]) -> set[int]:
    """Whom a plan that asks nobody who is there could ask later: all whom it wanted are away."""
    clients = {order.client for order in orders}
    for draw in draws:
        if draw.clients:
            return clients
        clients |= set(draw.pool)
    return clients


def spare_in(draws: Sequence[Draw]) -> int:
    """How many were drawn beyond those whose replies are waited for."""
    spare = {draw.clients: len(draw.clients) - draw.wanted for draw in draws}
    return sum(spare.values())


def clock_of(
    planned: Planned,
    orders: Sequence[Order],
    settings: Settings,
    hops: int,
) -> RoundClock:
    """The clock of a round, which knows who will leave."""
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


def check_orders(orders: Sequence[Order], population: int) -> None:
    """A method's own mistakes, named before they do harm."""
    clients = [order.client for order in orders]
    if len(set(clients)) != len(clients):
        raise FedloomError(
            "a plan must have at most one order a client",
            f"it has {len(clients)}",
            "mend the method",
        )
    strange = [client for client in clients if not 0 <= client < population]
    if strange:
        raise FedloomError(
            "a plan must name registered clients",
            f"it names {strange[0]}",
            "use r.cohort() or r.clients",
        )

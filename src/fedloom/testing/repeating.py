"""Tests of repeatability: runs that are stopped, or get replies in another order, end the same.

The results must be equal to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.server.events import ClientEvaluated, Event, Replied, RoundEnded
from fedloom.testing.engines import Shuffled, Stop, Stopping
from fedloom.testing.memory import changed_beside_states
from fedloom.testing.subject import Subject, finished, nothing_differs, repeated
from fedloom.testing.toy import Toy, Trace, Wrap, differences, unlike

NOT_REPEATED = (
    "two runs with the same seed end differently: something is drawn without a named stream "
    "(run.rng at a client, r.rng at the server), or remembered outside of the states"
)
NOT_RESUMED = (
    "a run that was stopped and resumed ends differently: something is remembered outside of "
    "the states, or drawn without a named stream"
)
ORDER_MATTERS = (
    "the order in which replies arrive changes the result: merge with `aggregate`, or sort the "
    "replies by client first"
)
BESIDE_STATES = (
    "a run changed something beside the states. Clients may work in other processes and at other "
    "sites, and a run may be resumed, so the only memory is the State of the server and of each "
    "client; what clients need from the server goes into their orders"
)
UNNAMED_DRAWS = (
    "something is drawn from a global generator: draw from run.rng(purpose) at a client, and from "
    "r.rng(purpose) at the server"
)
# The moments at which a run is stopped. "work" is not an event: there the engine stops the run.
# The first two are those between which a client works, the others those after which all is saved.
MOMENTS = (("reply", "work"), ("round", "evaluated"))
EVENTS = {"round": RoundEnded, "reply": Replied, "evaluated": ClientEvaluated}
MOST_STOPS = 1000  # of one run; more would mean that it never ends


class Repeating(Subject):
    def test_deterministic(self, toy: Toy) -> None:
        """Two runs are equal to the bit, whatever the state of the global random generators."""
        nothing_differs(repeated(toy), NOT_REPEATED)

    @pytest.mark.parametrize("moments", MOMENTS, ids="-".join)
    def test_stopped_and_resumed(self, toy: Toy, tmp_path: Path, moments: tuple[str, ...]) -> None:
        """A run that is stopped at every such moment of all rounds ends as without stops."""
        again, stops = interrupted(toy, tmp_path, set(moments))
        assert stops >= 2 * len(moments)
        nothing_differs(differences(finished(toy).trace, again), NOT_RESUMED)

    def test_stopped_and_resumed_with_the_best_round(self, toy: Toy, tmp_path: Path) -> None:
        toy = replace(toy, select="best", evaluate_every=1)
        again, _ = interrupted(toy, tmp_path / "stopped", {"round"})
        nothing_differs(differences(toy.run(tmp_path / "whole"), again), NOT_RESUMED)

    def test_reply_order_is_irrelevant(self, toy: Toy, tmp_path: Path) -> None:
        shuffled = toy.run(tmp_path, engine=Shuffled)
        nothing_differs(differences(finished(toy).trace, shuffled), ORDER_MATTERS)

    def test_no_memory_but_the_states(self, toy: Toy) -> None:
        """A run changes no attribute of a method or its class, and no global of its file."""
        after = [vars(method) for method in finished(toy).server.methods]
        before = [vars(stage.method) for stage in toy.stages]
        assert after == before, BESIDE_STATES
        changed = changed_beside_states([type(stage.method) for stage in toy.stages])
        nothing_differs(changed, BESIDE_STATES)

    def test_server_draws_only_from_the_seed_tree(self, toy: Toy) -> None:
        """Init, plan, merge and serve do not use the generators of torch, numpy and random."""
        nothing_differs(sorted(set(finished(toy).server.draws)), UNNAMED_DRAWS)

    def test_clients_draw_only_from_the_seed_tree(self, toy: Toy) -> None:
        """A client's work does not use the generators of numpy and random.

        Torch's is seeded for every order, because dropout draws from it.
        """
        nothing_differs(sorted(set(finished(toy).clients.draws)), UNNAMED_DRAWS)

    def test_evaluation_only_reads(self, toy: Toy, tmp_path: Path) -> None:
        """A run ends the same whether it is evaluated after every round or only at the end.

        There are figures for every client.
        """
        outcome = finished(toy).trace.outcome
        often = replace(toy, evaluate_every=1).run(tmp_path).outcome
        moved = unlike(outcome.state, often.state)
        nothing_differs(moved, "evaluating after every round changes the result of the run")
        assert often.clients == outcome.clients
        assert len(outcome.clients) == len(toy.data)
        shares = toy.stages[-1].method.shares
        for client in outcome.clients:
            assert client.own.reason is None
            assert (client.shared is not None) == shares


@dataclass
class Interruptions:
    """Raises Stop at every moment of these kinds.

    At moments where no progress is saved it does so only once, so that the run can end.
    """

    kinds: set[str]
    seen: set[tuple[int, int]] = field(default_factory=set)  # (round, client) of evaluations
    orders: set[tuple[int, int, int]] = field(default_factory=set)  # (round, hop, client)

    def listen(self, event: Event) -> None:
        if not self._stops_at(event):
            return
        if isinstance(event, ClientEvaluated):
            place = (event.round, event.client)
            if place in self.seen:
                return
            self.seen.add(place)
        raise Stop

    def _stops_at(self, event: Event) -> bool:
        for kind, event_type in EVENTS.items():
            if kind in self.kinds and isinstance(event, event_type):
                return True
        return False

    def engine(self, inner: Engine) -> Engine:
        if "work" in self.kinds:
            return Stopping(inner, self.orders)
        return inner


def interrupted(
    toy: Toy,
    folder: Path,
    kinds: set[str],
    engine: Wrap = lambda inner: inner,
) -> tuple[Trace, int]:
    """Stop and resume a run until it is finished; returns also how often it was stopped."""
    stops = Interruptions(kinds)

    def stopping(inner: Engine) -> Engine:
        return stops.engine(engine(inner))

    for count in range(MOST_STOPS):
        try:
            trace = toy.run(folder, engine=stopping, listen=stops.listen)
        except Stop:
            continue
        return trace, count
    outcome = f"after {MOST_STOPS} stops it has not ended"
    raise AssertionError(f"a resumed run must make progress, but {outcome}")

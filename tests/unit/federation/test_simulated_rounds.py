"""The loop by the simulated clock: seconds that can be checked by hand, losses, limits, resume."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedloom.cost.devices import Device
from fedloom.data.samples import ClientData, Samples
from fedloom.errors import FedloomError, TooFewReplies
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.availability import Attendance, Interval, Schedule
from fedloom.federation.server.budgets import charged
from fedloom.federation.server.events import Replied, RoundEnded
from fedloom.federation.server.loop import Loop
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat
from fedloom.records.rows import read_rows
from fedloom.types import Fields, Order, Reply, State, Task

SHAPE = (1, 1, 1)
LABELS = ("no", "yes")
TASK = Task("counting", {}, "image", SHAPE, LABELS, 7, (0.0,), (1.0,))
MACS = 1000
PART = Samples(torch.zeros(4, *SHAPE), torch.tensor([0, 1, 0, 1]))
# Links so quick that bytes take no time worth telling: client c works for 1, 2, 3 or 4 seconds.
DEVICES = [Device(MACS / (client + 1), 1e15, 1e15, 1e15) for client in range(4)]


@dataclass(frozen=True)
class Counting(Method):
    """Every accepted reply adds 1; every client counts its rounds in a state of its own."""

    notes: list | None = None

    fields = {"work": Fields(tensors=("w",), writes=True)}

    def init(self, setup, previous):
        return State({"w": torch.zeros(1)}, {"replies": []})

    def plan(self, state, r):
        if self.notes is not None:
            self.notes.append(
                (r.number, r.now, r.progress, None if r.present is None else sorted(r.present))
            )
        return state, [Order(client, "work", state.tensors) for client in r.cohort()]

    def client(self, order, data, own, run):
        nn.Linear(MACS, 1)(torch.zeros(1, MACS))
        rounds = 1 if own is None else own.meta["rounds"] + 1
        return Reply(order.client, {"w": order.tensors["w"] + 1}, len(data)), State(
            {}, {"rounds": rounds}
        )

    def merge(self, state, orders, replies, r):
        clients = [reply.client for reply in replies]
        merged = super().merge(state, orders, replies, r)
        return State(merged.tensors, {"replies": [*state.meta["replies"], clients]})

    def predictor(self, order, data, own, run):
        return lambda x: nn.functional.one_hot(torch.zeros(len(x)).long(), len(LABELS)).float()

    def network(self, order, data, own, run):
        return nn.Sequential(nn.Flatten(), nn.Linear(1, len(LABELS)))


TRAIN = (Stage("train", Counting()),)


def loop_in(folder, stages=TRAIN, listen=lambda event: None, **changes):
    data = ClientData(PART, PART, PART)
    site = Site(
        lambda client: data, ClientStore(folder / "clients"), lambda task: stages, SHAPE, LABELS
    )
    usual = {
        "experiment": "clock",
        "task": TASK,
        "population": 4,
        "rounds": 4,
        "devices": DEVICES,
        "evaluate_every": 99,
    }
    settings = Settings(**{**usual, **changes})
    archive = Archive(folder)
    return Loop(
        settings,
        stages,
        InlineEngine(site),
        Spool(folder / "spool"),
        Flat(),
        archive,
        listen=listen,
    )


def run(folder, **changes):
    outcome = loop_in(folder, **changes).run()
    return outcome, list(read_rows(folder / "metrics.jsonl"))


def spans(rows):
    return [(row.simulated.begin, row.simulated.end) for row in rows]


def near(*numbers):
    return pytest.approx(numbers, abs=1e-6)


def of_clock(outcome, rows):
    """All that must not depend on how a run was made."""
    untimed = []
    refused = []
    for row in rows:
        untimed += [replace(line, seconds=None, memory=None) for line in row.ledger]
        refused += row.refused
    totals = replace(outcome.totals, seconds=0.0, measured_clock=0.0, wall=0.0)
    state = (outcome.state.tensors["w"].item(), outcome.state.meta)
    return untimed, refused, spans(rows), totals, state, outcome.stopped, outcome.over_budget


def schedule(*intervals, period=100.0):
    """`intervals` has a list of (begin, end) for every client."""
    of_clients = []
    for pairs in intervals:
        of_clients.append(tuple(Interval(begin, end) for begin, end in pairs))
    return Schedule(period, tuple(of_clients))


# Time


def test_a_round_is_as_long_as_its_slowest_client(tmp_path):
    outcome, rows = run(tmp_path)
    begins, ends = zip(*spans(rows), strict=True)
    assert list(ends) == near(4, 8, 12, 16)
    assert begins == (0.0, *ends[:-1])
    assert outcome.totals.simulated == ends[-1]
    work = [line for line in rows[0].ledger if line.hop == 0]
    assert [line.simulated for line in work] == near(1, 2, 3, 4)
    assert all(line.cluster is None for line in work)
    assert outcome.stopped == "rounds"
    assert outcome.totals.asked == 16
    assert outcome.totals.dropped == outcome.totals.late == 0


def test_without_devices_there_is_no_clock(tmp_path):
    outcome, rows = run(tmp_path, devices=())
    assert outcome.totals.simulated == 0.0 and all(row.simulated is None for row in rows)
    assert "simulated" not in rows[0].to_json() and len(rows[0].to_json()["ledger"][0]) == 7


def test_describing_costs_bytes_and_no_seconds(tmp_path):
    outcome, rows = run(tmp_path)
    described = [line for line in rows[0].ledger if line.hop < 0]
    assert len(described) == 4 and all(line.simulated is None for line in described)
    totals = outcome.totals
    assert totals.describe_down == sum(line.down for line in described) > 0
    assert (
        charged(totals)["wan"]
        == totals.down + totals.up - totals.describe_down - totals.describe_up
    )


# Losses


def test_who_is_late_is_refused_and_its_work_is_wasted(tmp_path):
    outcome, rows = run(tmp_path, round_deadline=2.5)
    assert [end for _, end in spans(rows)] == [2.5, 5.0, 7.5, 10.0]
    assert outcome.state.meta["replies"] == [[0, 1]] * 4
    assert [refusal.client for refusal in rows[0].refused] == [2, 3]
    assert (
        rows[0].refused[0].reason.startswith("late: a reply must come within 2.5 simulated seconds")
    )
    totals = outcome.totals
    assert (totals.late, totals.dropped, totals.wasted_macs) == (8, 0, 8 * MACS)
    wasted = 0
    for row in rows:
        for line in row.ledger:
            if line.hop == 0 and line.client > 1:
                wasted += line.down + line.up
    assert totals.wasted_bytes == wasted
    assert totals.macs == 16 * MACS


def test_a_refused_clients_state_does_not_advance(tmp_path):
    run(tmp_path, round_deadline=2.5)
    assert Archive(tmp_path).load(4).versions == {0: "4.0", 1: "4.0"}


def test_who_leaves_is_refused(tmp_path):
    faults = {(1, 0): 0, (2, 3): 0}
    outcome, rows = run(tmp_path, attendance=Attendance(4, faults=faults))
    assert outcome.state.meta["replies"] == [[1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert rows[0].refused[0].reason.startswith("left: it went away after 1 simulated seconds")
    assert [end for _, end in spans(rows)] == near(4, 8, 12, 16)  # it left when its work was done
    line = next(line for line in rows[0].ledger if line.client == 0 and line.hop == 0)
    assert (line.up, line.macs) == (0, MACS)
    assert (outcome.totals.dropped, outcome.totals.late) == (2, 0)


def test_dropout_by_seed(tmp_path):
    one, rows = run(tmp_path / "one", attendance=Attendance(4, 1, dropout=0.5), rounds=8)
    two, _ = run(tmp_path / "two", attendance=Attendance(4, 2, dropout=0.5), rounds=8)
    assert 0 < one.totals.dropped < 32
    assert one.state.meta != two.state.meta
    half_done = []
    for row in rows:
        half_done += [line.macs for line in row.ledger if line.hop == 0 and line.up == 0]
    assert one.totals.wasted_macs == sum(half_done) and 0 < min(half_done) < max(half_done) < MACS


def test_a_round_that_everybody_leaves_is_lost_and_the_run_goes_on(tmp_path):
    everybody = {(2, client): 0 for client in range(4)}
    outcome, rows = run(tmp_path, attendance=Attendance(4, faults=everybody))
    assert outcome.state.meta["replies"] == [[0, 1, 2, 3]] * 3 and outcome.rounds == 4
    assert rows[1].replies == 0 and outcome.state.tensors["w"].item() == 3.0
    assert Archive(tmp_path).load(4).versions == dict.fromkeys(range(4), "4.0")
    assert outcome.totals.simulated == pytest.approx(16)


def test_replies_that_the_clock_did_not_take_still_stop_a_run(tmp_path):
    class Broken(Counting):
        def client(self, order, data, own, run):
            raise ValueError("broken")

    with pytest.raises(TooFewReplies, match="broken"):
        run(tmp_path, stages=(Stage("train", Broken()),), round_deadline=2.5)


def test_overselection_waits_for_the_first(tmp_path):
    """Half of four are wanted; 1.5 times as many are asked."""
    outcome, rows = run(tmp_path, participation=0.5, overselect=1.5)
    assert [len(clients) for clients in outcome.state.meta["replies"]] == [2] * 4
    assert (outcome.totals.asked, outcome.totals.late) == (12, 4)
    for row in rows:
        work = sorted(line.simulated for line in row.ledger if line.hop == 0)
        assert row.simulated.end - row.simulated.begin == pytest.approx(work[1])
    assert run(tmp_path / "all", overselect=2.0)[0].totals.late == 0  # everybody is wanted


# Who is there


def test_who_is_away_is_not_asked(tmp_path):
    times = schedule([(0, 100)], [(0, 100)], [(0, 7)], [(50, 100)])
    notes = []
    stages = (Stage("train", Counting(notes)),)
    outcome, rows = run(tmp_path, stages=stages, attendance=Attendance(4, schedule=times))
    # rounds of 3 seconds, while client 2 is there; it leaves the third, which began at 6, at 7
    assert outcome.state.meta["replies"] == [[0, 1, 2], [0, 1, 2], [0, 1], [0, 1]]
    assert [end for _, end in spans(rows)] == near(3, 6, 8, 10)
    assert outcome.totals.dropped == 1 and rows[2].refused[0].client == 2
    assert notes[0] == (1, 0.0, 0.0, [0, 1, 2]) and notes[3][3] == [0, 1]


def test_the_clock_moves_on_to_the_first_who_comes(tmp_path):
    times = schedule([(20, 30)], [(20, 30)], [(40, 50)], [(40, 50)])
    outcome, rows = run(tmp_path, attendance=Attendance(4, schedule=times), rounds=3)
    assert spans(rows)[0] == near(20, 22) and spans(rows)[1] == near(22, 24)
    times = schedule([(20, 21.5)], [(40, 50)], [(60, 61)], [(60, 61)])
    outcome, rows = run(tmp_path / "two", attendance=Attendance(4, schedule=times), rounds=3)
    assert spans(rows) == [near(20, 21), near(21, 21.5), near(40, 42)]
    assert outcome.state.meta["replies"] == [[0], [1]]  # the second round was lost


def test_a_plan_for_one_who_is_away_waits_for_it(tmp_path):
    class Only(Counting):
        def plan(self, state, r):
            return state, [Order(3, "work", state.tensors)]

    class Pool(Counting):
        def plan(self, state, r):
            return state, [Order(client, "work", state.tensors) for client in r.cohort([3])]

    times = schedule([(0, 100)], [(0, 100)], [(0, 100)], [(30, 60)])
    for number, method in enumerate((Only(), Pool())):
        folder = tmp_path / str(number)
        _, rows = run(
            folder,
            stages=(Stage("train", method),),
            attendance=Attendance(4, schedule=times),
            rounds=2,
        )
        assert spans(rows) == [near(30, 34), near(34, 38)]


# Limits


def test_no_round_begins_that_would_not_fit(tmp_path):
    outcome, rows = run(tmp_path, limits={"seconds": 11.0})
    assert len(rows) == 2 and outcome.totals.simulated == pytest.approx(8)
    assert (outcome.stopped, outcome.over_budget) == ("seconds", None)
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("limit", ["wan", "bytes", "macs"])
def test_limits_of_bytes_and_macs(tmp_path, limit):
    _, rows = run(tmp_path / "whole")
    after_two = charged(rows[1].totals)[limit]
    outcome, rows = run(tmp_path / "two", limits={limit: after_two, "seconds": 1e9})
    assert (len(rows), outcome.stopped) == (2, limit)
    outcome, rows = run(tmp_path / "one", limits={limit: after_two - 1})
    assert (len(rows), outcome.stopped) == (1, limit)
    assert charged(outcome.totals)[limit] < after_two


def test_a_round_that_went_over_is_dropped(tmp_path):
    """The third round is dearer than those before: client 3 came."""
    times = schedule([(0, 100)], [(0, 100)], [(0, 100)], [(5, 100)])
    outcome, rows = run(tmp_path, attendance=Attendance(4, schedule=times), limits={"seconds": 9.5})
    assert len(rows) == 2 and outcome.totals.simulated == pytest.approx(6)
    assert outcome.state.meta["replies"] == [[0, 1, 2]] * 2 and outcome.totals.macs == 6 * MACS
    over = outcome.over_budget
    assert (over.round, over.limit, over.cost["seconds"]) == (3, "seconds", pytest.approx(4))
    assert outcome.stopped == "seconds"


def test_the_next_stage_knows_nothing_of_a_dropped_round(tmp_path):
    """Its first round has the number of the dropped one, and asks one of the same clients."""

    class Two(Counting):
        def plan(self, state, r):
            return state, [Order(0, "work", state.tensors)]

        def client(self, order, data, own, run):
            reply, state = super().client(order, data, own, run)
            return replace(reply, tensors={"w": order.tensors["w"] + 2}), state

    times = schedule([(0, 100)], [(0, 100)], [(0, 100)], [(5, 100)])
    stages = (Stage("search", Counting(), 0.95), Stage("train", Two()))
    outcome, rows = run(
        tmp_path,
        stages=stages,
        attendance=Attendance(4, schedule=times),
        limits={"seconds": 9.5},
        rounds=20,
    )
    assert [row.stage for row in rows] == ["search"] * 2 + ["train"] * 3
    assert outcome.over_budget.round == 3 and outcome.state.tensors["w"].item() == 6.0


def test_a_limit_below_one_round_names_what_would_do(tmp_path):
    with pytest.raises(
        FedloomError, match=r"seconds must allow one round, which needs 4, but got 3\.5"
    ):
        run(tmp_path, limits={"seconds": 3.5})


def test_progress_is_the_largest_share_of_any_limit(tmp_path):
    notes = []
    run(
        tmp_path,
        stages=(Stage("train", Counting(notes)),),
        limits={"seconds": 32.0, "macs": 80.0 * MACS},
    )
    assert [progress for _, _, progress, _ in notes] == pytest.approx(
        [0, 0.25, 0.5, 0.75]
    )  # of rounds
    notes.clear()
    run(
        tmp_path / "two",
        stages=(Stage("train", Counting(notes)),),
        limits={"seconds": 20.001},
        rounds=100,
    )
    assert [progress for _, _, progress, _ in notes] == pytest.approx(
        [0, 0.2, 0.4, 0.6, 0.8], abs=1e-3
    )


def test_stages_share_the_limits(tmp_path):
    stages = (Stage("search", Counting(), 0.5), Stage("train", Counting()))
    outcome, rows = run(tmp_path, stages=stages, limits={"seconds": 17.0}, rounds=100)
    assert [row.stage for row in rows] == ["search"] * 2 + ["train"] * 2
    assert outcome.stopped == "seconds"


def test_room_is_left_for_a_last_round_of_its_own(tmp_path):
    class Once(Counting):
        def plan(self, state, r):
            if r.spent > 0:
                return None
            return super().plan(state, r)

    stages = (Stage("train", Counting()), Stage("adapt", Once(), None))
    outcome, rows = run(tmp_path, stages=stages, limits={"seconds": 17.0}, rounds=100)
    assert [row.stage for row in rows] == ["train"] * 3 + ["adapt"]
    assert (outcome.stopped, outcome.totals.simulated) == ("seconds", pytest.approx(16))


@pytest.mark.parametrize(("unit", "of_round"), [("seconds", 2), ("wan", 4)])
def test_a_budget_in_simulated_seconds_or_wan(tmp_path, unit, of_round):
    """It ends at the nearest round, as one in bytes does."""
    _, rows = run(tmp_path / "whole", rounds=8)
    amount = rows[of_round - 1].totals.spent(unit)
    outcome, rows = run(tmp_path / "part", unit=unit, amount=amount, rounds=8)
    assert (len(rows), outcome.stopped) == (of_round, unit)


# Resume


class Kill(Exception):
    pass


HARD = {
    "attendance": Attendance(
        4, 5, schedule([(0, 100)], [(3, 90)], [(0, 40)], [(9, 60)]), 0.3, {(2, 0): 0}
    ),
    "participation": 0.75,
    "overselect": 1.3,
    "round_deadline": 3.5,
    "limits": {"seconds": 23.0},
    "rounds": 20,
}


@pytest.mark.parametrize("event", [Replied, RoundEnded])
def test_killed_everywhere_it_ends_with_the_same_bits(tmp_path, event):
    whole, whole_rows = run(tmp_path / "whole", **HARD)
    assert whole.totals.dropped and whole.totals.late and whole.stopped == "seconds"
    seen = set()

    def listen(told):
        if not isinstance(told, event):
            return
        place = (told.round, told.client) if event is Replied else told.row.round
        if place not in seen:
            seen.add(place)
            raise Kill

    outcome = None
    while outcome is None:
        try:
            outcome = loop_in(tmp_path / "killed", listen=listen, **HARD).run()
        except Kill:
            continue
    assert len(seen) > 5
    rows = list(read_rows(tmp_path / "killed" / "metrics.jsonl"))
    assert of_clock(outcome, rows) == of_clock(whole, whole_rows)


def test_killed_in_a_round_that_is_dropped(tmp_path):
    changes = {
        "attendance": Attendance(
            4, schedule=schedule([(0, 100)], [(0, 100)], [(0, 100)], [(5, 100)])
        ),
        "limits": {"seconds": 9.5},
        "stages": (Stage("search", Counting(), 0.9), Stage("train", Counting())),
        "rounds": 20,
    }
    whole, whole_rows = run(tmp_path / "whole", **changes)
    seen = set()

    def listen(told):
        if isinstance(told, Replied) and (told.round, told.client) not in seen:
            seen.add((told.round, told.client))
            raise Kill

    outcome = None
    while outcome is None:
        try:
            outcome = loop_in(tmp_path / "killed", listen=listen, **changes).run()
        except Kill:
            continue
    rows = list(read_rows(tmp_path / "killed" / "metrics.jsonl"))
    assert of_clock(outcome, rows) == of_clock(whole, whole_rows)
    assert whole.over_budget is not None

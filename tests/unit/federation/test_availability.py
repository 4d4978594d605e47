"""Who is there, and who leaves."""

from math import inf

import pytest

from fedloom.errors import FedloomError
from fedloom.federation.server.availability import (
    Attendance,
    Fault,
    Interval,
    Schedule,
    duty,
    faults_in,
    schedule_in,
    wrapped,
)
from fedloom.federation.server.availability_files import read_faults, read_schedule
from fedloom.federation.server.clock import Departure

TWO = Schedule(100.0, ((Interval(10, 30), Interval(50, 60)), (Interval(0, 20), Interval(90, 100))))


@pytest.mark.parametrize(
    ("now", "there"),
    [(0, [1]), (10, [0, 1]), (20, [0]), (30, []), (50, [0]), (60, []), (95, [1]), (115, [0, 1])],
)
def test_who_is_there(now, there):
    assert [client for client in range(2) if TWO.is_there(client, now)] == there
    assert Attendance(2, schedule=TWO).present(now) == set(there)


def test_how_long_they_stay():
    assert TWO.leaves_after(0, 12.0) == 18.0
    assert TWO.leaves_after(0, 255.0) == 5.0
    assert TWO.leaves_after(1, 95.0) == 25.0  # the next period begins with it
    assert Attendance(2, schedule=TWO).stays([0, 1], 12.0) == {0: 18.0, 1: 8.0}


def test_when_they_return():
    assert TWO.returns_at(0, 12.0) == 12.0
    assert TWO.returns_at(0, 30.0) == 50.0
    assert TWO.returns_at(0, 60.0) == 110.0
    assert Attendance(2, schedule=TWO).first_return([0, 1], 65.0) == 90.0
    assert Attendance(2, schedule=TWO).first_return([0], 65.0) == 110.0


def test_one_that_is_always_there_never_leaves():
    always = Schedule(5.0, ((Interval(0.0, 5.0),),))
    assert all(always.is_there(0, now / 7) for now in range(100))
    assert always.leaves_after(0, 3.0) == inf
    assert Attendance(1, schedule=always).stays([0], 3.0) == {}


def test_when_one_returns_it_is_there():
    """However far the clock is, and however its sums are rounded."""
    schedule = duty(0.7, 0.4, 50, seed=3)
    now = 1e6 / 7
    for step in range(500):
        client = step % 50
        now = schedule.returns_at(client, now + 0.1)
        assert schedule.is_there(client, now)
        assert 0 < schedule.leaves_after(client, now) <= 0.7 + 1e-5


def test_a_duty_cycle_by_seed():
    assert duty(6, 3, 20, seed=1) == duty(6, 3, 20, seed=1) != duty(6, 3, 20, seed=2)
    assert duty(6, 3, 20, seed=1).of_client[:5] == duty(6, 3, 5, seed=1).of_client
    schedule = duty(600, 300, 400, seed=0)
    for now in (0.0, 450.0, 1e5):
        there = sum(schedule.is_there(client, now) for client in range(400))
        assert there / 400 == pytest.approx(2 / 3, abs=0.08)


def test_an_interval_beyond_the_end_of_its_period():
    assert wrapped(7.0, 6.0, 9.0) == (Interval(0.0, 4.0), Interval(7.0, 9.0))
    assert wrapped(1.0, 6.0, 9.0) == (Interval(1.0, 7.0),)
    assert wrapped(1.0, 9.0, 9.0) == (Interval(0.0, 9.0),)


def test_names():
    assert schedule_in("always", None, 3, 0) is None
    assert schedule_in("duty:6,3", None, 3, 0) == duty(6, 3, 3, 0)
    assert schedule_in("duty:6,0", None, 1, 0).leaves_after(0, 3.0) == inf


@pytest.mark.parametrize(
    "value",
    [
        "duty:",
        "duty:6",
        "duty:0,3",
        "duty:-1,3",
        "duty:6,-1",
        "duty:a,b",
        "duty:nan,3",
        "duty:inf,1",
    ],
)
def test_a_duty_cycle_that_never_is(value):
    with pytest.raises(FedloomError, match="must give the seconds for which a client is"):
        schedule_in(value, None, 3, 0)


def test_an_unknown_name():
    with pytest.raises(FedloomError, match="did you mean duty"):
        schedule_in("dutty:1,2", None, 3, 0)


# Files


def written(tmp_path, text):
    path = tmp_path / "times.csv"
    path.write_text(text)
    return path


def test_a_file_of_intervals(tmp_path):
    path = written(tmp_path, "client,begin,end\n1,0,20\n0,50,60\n0,10,30\n1,90,100\n")
    assert read_schedule(path) == TWO
    path = written(tmp_path, "client,begin,end\n0,10,20\n0,20,30\nperiod,0,86400\n")
    assert read_schedule(path) == Schedule(86400.0, ((Interval(10, 30),),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("client,begin\n", "it begins with client, begin"),
        ("client,begin,end\n", "it lists no interval"),
        ("client,begin,end\n0,1\n", "it has 2"),
        ("client,begin,end\n0,5,5\n", "begins before it ends"),
        ("client,begin,end\n0,nan,5\n", "begins before it ends"),
        ("client,begin,end\n0,1,inf\n", "begins before it ends"),
        ("client,begin,end\n-1,1,2\n", "whole number of 0 or more"),
        ("client,begin,end\n1,1,2\n", "client 0 never is"),
        ("client,begin,end\n0,1,5\n0,4,8\n", "must not overlap"),
        ("client,begin,end\n0,1,5\nperiod,0,4\n", "must end within its period"),
    ],
)
def test_a_file_that_cannot_be(tmp_path, text, reason):
    with pytest.raises(FedloomError, match=reason):
        read_schedule(written(tmp_path, text))


def test_a_file_of_other_clients():
    with pytest.raises(FedloomError, match="must list when each of the 3 clients is available"):
        schedule_in("a.csv", TWO, 3, 0)


def test_a_file_of_faults(tmp_path):
    faults = read_faults(written(tmp_path, "round,hop,client\n2,1,3\n2,0,1\n\n5,0,3\n"))
    assert faults == [Fault(2, 1, 3), Fault(2, 0, 1), Fault(5, 0, 3)]
    assert faults_in([*faults, Fault(2, 0, 3)], 4, 2) == {(2, 3): 0, (2, 1): 0, (5, 3): 0}


@pytest.mark.parametrize("row", ["0,0,0", "1,-1,0", "1,0,x", "1,0"])
def test_a_fault_that_cannot_be(tmp_path, row):
    with pytest.raises(FedloomError):
        read_faults(written(tmp_path, f"round,hop,client\n{row}\n"))


def test_faults_of_nobody():
    with pytest.raises(FedloomError, match="below 4"):
        faults_in([Fault(1, 0, 4)], 4, 1)
    with pytest.raises(FedloomError, match="hops below 1"):
        faults_in([Fault(1, 1, 0)], 4, 1)


# Leaving


def test_nobody_leaves_without_a_reason():
    assert Attendance(5).departures(1, range(5), 1) == {}
    assert Attendance(5).present(3.0) is None and Attendance(5).stays(range(5), 3.0) == {}


def test_who_leaves_is_drawn_by_round_and_client():
    attendance = Attendance(1000, seed=4, dropout=0.3)
    leaving = attendance.departures(2, range(1000), 3)
    assert len(leaving) == pytest.approx(300, abs=50)
    assert leaving == attendance.departures(2, range(1000), 3)
    assert leaving.keys() != attendance.departures(3, range(1000), 3).keys()
    assert {client: leaving[client] for client in leaving if client < 9} == attendance.departures(
        2, range(9), 3
    )
    assert {departure.hop for departure in leaving.values()} == {0, 1, 2}
    assert all(0 <= departure.share < 1 for departure in leaving.values())


def test_a_fault_comes_when_its_hop_is_done():
    attendance = Attendance(5, faults={(2, 3): 1})
    assert attendance.departures(2, range(5), 3) == {3: Departure(1, 1.0)}
    assert attendance.departures(1, range(5), 3) == {}

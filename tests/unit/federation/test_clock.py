"""The simulated clock, in numbers that can be checked by hand."""

from math import inf

import pytest

from fedloom.cost.devices import Device
from fedloom.federation.server.clock import Departure, RoundClock
from fedloom.federation.server.work_times import (
    HopWork,
    cluster_seconds,
    flat_client_seconds,
    flat_seconds,
    flat_visit,
    hop_seconds,
    macs_by,
    member_seconds,
    member_visits,
    work_seconds,
)

MB = 10**6
GIGA = 10**9
# speed, LAN, WAN down, WAN up
DEVICES = [
    Device(1 * GIGA, 4 * MB, 1 * MB, 0.5 * MB),
    Device(2 * GIGA, 8 * MB, 2 * MB, 1 * MB),
    Device(0.5 * GIGA, 4 * MB, 4 * MB, 2 * MB),
    Device(1 * GIGA, 2 * MB, 2 * MB, 2 * MB),
    Device(0.25 * GIGA, 4 * MB, 1 * MB, 1 * MB),
]
FIRST = [HopWork(client, 2 * MB, 2 * MB, GIGA) for client in (0, 1, 2)]
SECOND = [HopWork(client, MB, MB, GIGA // 2) for client in (3, 4)]


@pytest.mark.parametrize(("aggregator", "seconds"), [(0, 4.0), (1, 3.0), (2, 3.0)])
def test_a_hop_of_three(aggregator, seconds):
    assert hop_seconds(FIRST, DEVICES, aggregator, "serial") == seconds


@pytest.mark.parametrize(("aggregator", "seconds"), [(3, 3.0), (4, 2.0)])
def test_a_hop_of_two(aggregator, seconds):
    assert hop_seconds(SECOND, DEVICES, aggregator, "serial") == seconds


@pytest.mark.parametrize(("aggregator", "seconds"), [(0, 14.0), (1, 9.0), (2, 7.5)])
def test_a_round_of_three(aggregator, seconds):
    assert cluster_seconds([FIRST] * 2, DEVICES, aggregator, 2 * MB, 2 * MB, "serial") == seconds


@pytest.mark.parametrize(("aggregator", "seconds"), [(3, 7.0), (4, 6.0)])
def test_a_round_of_two(aggregator, seconds):
    assert cluster_seconds([SECOND] * 2, DEVICES, aggregator, MB, MB, "serial") == seconds


def test_a_flat_round():
    """The same work: two hops of MACs, one exchange."""
    works = [HopWork(work.client, work.down, work.up, 2 * work.macs) for work in (*FIRST, *SECOND)]
    assert [flat_client_seconds(work, DEVICES[work.client], "serial") for work in works] == [
        8,
        4,
        5.5,
        2,
        6,
    ]
    assert flat_seconds(works, DEVICES, "serial") == 8.0
    assert flat_seconds([], DEVICES, "serial") == 0.0


def test_a_member_alone_talks_with_nobody():
    assert hop_seconds(FIRST[:1], DEVICES, 0, "serial") == 1.0


def test_training_and_searching_at_once():
    work = HopWork(0, 0, 0, 3 * GIGA, 2 * GIGA)
    assert work_seconds(work, DEVICES[0], "serial") == 5.0
    assert work_seconds(work, DEVICES[0], "parallel") == 3.0
    assert work_seconds(HopWork(0, 0, 0, GIGA, 2 * GIGA), DEVICES[0], "parallel") == 2.0


def test_between_places_the_wan_carries_it():
    """Members 0 and 1 are where the aggregator 2 is not: they share its WAN, and nobody its LAN."""
    devices = [
        Device(GIGA, 4 * MB, 1 * MB, 0.5 * MB, "north"),
        Device(GIGA, 4 * MB, 2 * MB, 1 * MB, "north"),
        Device(GIGA, 4 * MB, 4 * MB, 2 * MB, "south"),
        Device(GIGA, 4 * MB, 4 * MB, 2 * MB, "south"),
    ]
    works = [HopWork(client, 2 * MB, 2 * MB, 0) for client in range(4)]
    # 0: down 2 / min(1, 2 / 2) + up 2 / min(.5, 4 / 2) = 2 + 4; 3: (2 + 2) / min(4, 4 / 1) = 1
    assert hop_seconds(works, devices, 2, "serial") == 6.0
    assert hop_seconds(works[2:], devices, 2, "serial") == 1.0
    # 1 alone: down 2 / min(2, 2 / 1) = 1, up 2 / min(1, 4 / 1) = 2
    assert hop_seconds(works[1:3], devices, 2, "serial") == 3.0


def test_macs_of_one_who_leaves():
    work = HopWork(0, 2 * MB, 2 * MB, GIGA)  # down for 2 seconds, then a second of work
    done = [macs_by(work, DEVICES[0], "serial", seconds) for seconds in (0.0, 2.0, 2.25, 3.0, 99.0)]
    assert done == [0, 0, GIGA // 4, GIGA, GIGA]
    assert macs_by(HopWork(0, 0, 0, 0), DEVICES[0], "serial", 0.0) == 0


# One round: 8, 4, 5.5, 2 and 6 seconds

WORKS = [HopWork(work.client, work.down, work.up, 2 * work.macs) for work in (*FIRST, *SECOND)]


def lost_work(times):
    return {client: loss.kind for client, loss in times.lost_work.items()}


def test_without_devices_no_time_passes():
    times = RoundClock().flat(WORKS, ())
    assert (times.seconds, times.of_client, times.lost_work) == (0.0, {}, {})


def test_everybody_in_time():
    times = RoundClock(DEVICES).flat(WORKS, ())
    assert times.seconds == 8.0 and times.lost_work == {}
    assert times.of_client == {0: 8.0, 1: 4.0, 2: 5.5, 3: 2.0, 4: 6.0}


def test_the_deadline_ends_a_round():
    times = RoundClock(DEVICES, deadline=5.5).flat(WORKS, ())
    assert lost_work(times) == {0: "late", 4: "late"} and times.seconds == 5.5
    assert times.lost_work[0].macs == 2 * GIGA and times.lost_work[0].up == 2 * MB
    assert (
        times.lost_work[4].reason
        == "late: a reply must come within 5.5 simulated seconds, and this one takes 6"
    )
    assert RoundClock(DEVICES, deadline=9.0).flat(WORKS, ()).seconds == 8.0


def test_enough_replies_end_a_round():
    times = RoundClock(DEVICES, wanted=3).flat(WORKS, ())
    assert lost_work(times) == {0: "late", 4: "late"} and times.seconds == 5.5
    assert "the round had its 3 replies after 5.5 simulated seconds" in times.lost_work[0].reason
    assert RoundClock(DEVICES, wanted=5).flat(WORKS, ()).lost_work == {}


def test_a_refused_reply_is_none_of_those_wanted():
    times = RoundClock(DEVICES, wanted=3).flat(WORKS, {1})
    assert lost_work(times) == {0: "late"} and times.seconds == 6.0


def test_the_earlier_of_deadline_and_enough():
    assert RoundClock(DEVICES, deadline=4.0, wanted=3).flat(WORKS, ()).seconds == 4.0
    assert RoundClock(DEVICES, deadline=7.0, wanted=3).flat(WORKS, ()).seconds == 5.5


def test_of_equally_quick_clients_the_lower_ids_are_in_time():
    works = [HopWork(client, 0, 0, GIGA) for client in (2, 0, 1)]
    assert lost_work(RoundClock([Device()] * 3, wanted=2).flat(works, ())) == {2: "late"}


def test_one_who_leaves_during_its_work():
    times = RoundClock(DEVICES, departures={0: Departure(0, 0.25)}).flat(WORKS, ())
    assert lost_work(times) == {0: "dropped"}
    assert (
        times.of_client[0] == 2.5 and times.seconds == 6.0
    )  # after 2 seconds down, a quarter of 2
    assert (times.lost_work[0].macs, times.lost_work[0].up) == (GIGA // 2, 0)
    assert (
        times.lost_work[0].reason
        == "left: it went away after 2.5 simulated seconds, during its work"
    )


def test_one_whose_time_is_over():
    times = RoundClock(DEVICES, stays={0: 7.9, 1: 4.0, 2: inf}).flat(WORKS, ())
    assert lost_work(times) == {0: "dropped"} and times.seconds == 7.9


def test_one_who_leaves_after_the_round_is_late():
    times = RoundClock(DEVICES, deadline=6.0, stays={0: 7.0}).flat(WORKS, ())
    assert lost_work(times) == {0: "late"} and times.lost_work[0].up == 0 and times.seconds == 6.0


def test_who_leaves_is_gone_in_later_hops():
    clock = RoundClock(DEVICES, departures={3: Departure(1)})
    assert [clock.is_gone(3, hop) for hop in range(3)] == [False, False, True]
    assert not clock.is_gone(2, 2)
    assert (
        clock.flat(WORKS, ()).lost_work == {}
    )  # it leaves in a hop that a flat round does not have


# What a client's seconds are made of


def parts(steps):
    return [(step.doing, step.seconds) for step in steps]


def test_a_visit_in_its_parts():
    visit = flat_visit(WORKS[0], DEVICES[0], "serial")  # 2 MB down at 1, 2 s of work, 2 MB up at .5
    assert parts(visit.steps_until(8.0)) == [
        ("transfer", 2.0),
        ("training", 2.0),
        ("transfer", 4.0),
    ]
    assert parts(visit.steps_until(3.5)) == [("transfer", 2.0), ("training", 1.5)]
    assert parts(visit.steps_until(1.0)) == [("transfer", 1.0)] and visit.steps_until(0.0) == []


def test_members_visits_are_made_of_their_parts():
    """At aggregator 2: 2 MB each way at min(4, 4 / 2) MB/s, and 1 s of work. It works for 2 s."""
    visits = member_visits(FIRST, DEVICES, 2, "serial")
    assert parts(visits[0].steps_until(3.0)) == [
        ("transfer", 1.0),
        ("training", 1.0),
        ("transfer", 1.0),
    ]
    assert parts(visits[2].steps_until(2.0)) == [("training", 2.0)]
    assert {client: visit.seconds for client, visit in visits.items()} == member_seconds(
        FIRST, DEVICES, 2, "serial"
    )


def test_the_pace_of_a_flat_round():
    """8, 4, 5.5, 2 and 6 seconds: client 0 is the slowest, 2 in the middle."""
    slowest, middle = RoundClock(DEVICES).flat(WORKS, ()).paces
    assert (slowest.client, middle.client) == (0, 2)
    assert (
        sum(step.seconds for step in slowest.steps) == 8.0
        and sum(step.seconds for step in middle.steps) == 5.5
    )


def test_the_pace_is_of_those_whose_replies_counted():
    """At 5.5 s it is over: 2 is the last in time, and of 2, 1 and 3 the middle one is 1."""
    slowest, middle = RoundClock(DEVICES, deadline=5.5).flat(WORKS, ()).paces
    assert (slowest.client, middle.client) == (2, 1)
    (only,) = RoundClock(DEVICES, deadline=3.0).flat(WORKS, ()).paces
    assert only.client == 3


def test_if_all_are_late_the_slowest_is_cut_off():
    slowest, middle = RoundClock(DEVICES, deadline=1.0).flat(WORKS, ()).paces
    assert slowest.client == 0 and middle.client == 2
    assert parts(slowest.steps) == [("transfer", 1.0)]
    assert RoundClock(DEVICES).flat([], ()).paces == ()

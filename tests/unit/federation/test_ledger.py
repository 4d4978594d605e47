import json
from dataclasses import replace

import pytest

from fedloom.federation.server.ledger import Booking, Transfer, evaluation_of, work_of
from fedloom.reading import Unreadable
from fedloom.records.rows import LedgerLine
from fedloom.records.totals import Totals


def booking(client, hop, down, up, macs, seconds, group=None):
    return Booking(LedgerLine(client, hop, down, up, macs, seconds), group)


ROWS = [
    booking(0, 0, 100, 10, 5, 1.0, 0),
    booking(2, 0, 100, 20, 6, 3.0, 0),
    booking(0, 1, 100, 30, 7, 2.0, 0),
    booking(2, 1, 100, 40, 8, 1.0, 0),
    booking(1, 0, 100, 50, 9, 4.5, 1),
]


def test_a_flat_topology_is_all_wan():
    assert work_of(ROWS) == Totals(down=500, up=150, macs=35, seconds=11.5, measured_clock=5.0)


def test_in_clusters_bytes_go_by_several_ways():
    """The aggregators 0 and 1 talk with themselves; 2 is on 0's LAN; describing is the server's."""
    near = Transfer(lan_down=100, lan_up=20)
    far = Transfer(wan_down=100, wan_up=80)
    rows = [
        replace(ROWS[0], transfer=Transfer()),
        replace(ROWS[1], transfer=near),
        replace(ROWS[4], transfer=far),
        booking(2, -1, 7, 9, 0, 0.0),
    ]
    totals = work_of(rows)
    assert (totals.lan_down, totals.lan_up) == (100, 20)
    assert (totals.down, totals.up) == (107, 89)
    assert (totals.describe_down, totals.describe_up) == (7, 9)


def test_another_message_goes_the_same_way():
    assert Transfer(lan_down=5, lan_up=1).same_way(3, 2) == Transfer(lan_down=3, lan_up=2)
    assert Transfer(wan_down=5).same_way(3, 2) == Transfer(wan_down=3, wan_up=2)
    assert Transfer().same_way(3, 2) == Transfer()


@pytest.mark.parametrize(
    ("rows", "clock"),
    [
        ([], 0.0),
        (ROWS[:1], 1.0),
        (ROWS[:2], 3.0),  # the slowest of a hop
        (ROWS[:4], 5.0),  # hops follow one another: 3 + 2
        (ROWS[2:], 4.5),  # clusters run side by side
    ],
)
def test_the_clock(rows, clock):
    assert work_of(rows).measured_clock == clock
    assert work_of(rows[::-1]).measured_clock == clock


def test_describing_comes_before_the_work():
    rows = [booking(0, -1, 0, 0, 0, 1.0), booking(1, -1, 0, 0, 0, 2.0), booking(0, 0, 0, 0, 0, 4.0)]
    assert work_of(rows).measured_clock == 6.0


def test_an_engine_without_a_meter_books_nothing_for_it():
    assert work_of([booking(0, 0, 3, 4, None, None)]) == Totals(down=3, up=4)


def test_rows_that_come_once_are_not_lost():
    assert work_of(iter(ROWS)) == work_of(ROWS)
    assert evaluation_of(iter(ROWS)) == evaluation_of(ROWS)


def test_evaluation_is_booked_apart():
    booked = evaluation_of([*ROWS, booking(3, -2, 1, 1, None, 9.0)])
    assert booked == Totals(evaluate_down=501, evaluate_up=151, evaluate_macs=35)
    assert [booked.spent(unit) for unit in ("rounds", "macs", "bytes")] == [0, 0, 0]


def test_spent_in_every_unit():
    totals = Totals(
        rounds=3, down=1, up=10, lan_down=100, lan_up=1000, macs=7, seconds=2.0, wall=5.0
    )
    assert [totals.spent(unit) for unit in ("rounds", "macs", "bytes")] == [3, 7, 1111]
    with pytest.raises(KeyError):
        totals.spent("joules")


def test_totals_add_up_field_by_field():
    one = Totals(*range(1, 13))
    two = Totals(*range(10, 130, 10))
    assert one.plus(two) == Totals(*range(11, 143, 11))
    assert one.plus(Totals()) == one


def test_totals_return_from_json():
    totals = Totals(1, 2, 3, 4, 5, 10**18, 0.1, 0.2, 8, 9, 10, 0.3)
    assert Totals.from_json(json.loads(json.dumps(totals.to_json()))) == totals


@pytest.mark.parametrize(
    "change", [{"down": None}, {"macs": 1.5}, {"wall": "x"}, {"up": -1}, {"measured_clock": True}]
)
def test_totals_that_somebody_damaged(change):
    with pytest.raises(Unreadable, match=f"`totals.{next(iter(change))}` should be "):
        Totals.from_json({**Totals().to_json(), **change})


def test_totals_of_a_later_version_and_of_none():
    assert Totals.from_json({**Totals(rounds=3).to_json(), "watts": 7}) == Totals(rounds=3)
    with pytest.raises(Unreadable, match="its totals lack `rounds`"):
        Totals.from_json({})
    with pytest.raises(Unreadable, match="not an object"):
        Totals.from_json([])

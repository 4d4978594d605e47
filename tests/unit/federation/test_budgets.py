"""Limits of what is spent."""

import pytest

from fedloom.federation.server.budgets import Allowance, Reserve, charged, exceeded
from fedloom.records.totals import Totals

NOTHING = Reserve()


def totals(seconds=0.0, down=0, macs=0, lan=0, described=0):
    return Totals(
        simulated=seconds,
        down=down + described,
        macs=macs,
        lan_up=lan,
        describe_down=described,
        evaluate_down=10**9,
    )


def test_what_is_charged():
    """Neither describing nor evaluating is."""
    spent = charged(totals(2.5, 100, 7, 30, described=50))
    assert spent == {"seconds": 2.5, "wan": 100, "bytes": 130, "macs": 7}


def test_the_limit_that_is_exceeded():
    limits = {"seconds": 10.0, "wan": 100.0}
    assert exceeded(limits, totals(10.0, 100)) is None
    assert exceeded(limits, totals(10.1, 100)) == "seconds"
    assert exceeded(limits, totals(10.0, 101)) == "wan"
    assert exceeded({}, totals(1e9, 10**9)) is None


def test_without_limits_nothing_stops():
    allowance = Allowance.of_stage({}, totals(), 0.5).after(totals(3.0))
    assert allowance.stopped_by(totals(1e9), NOTHING) is None
    assert allowance.share_spent(totals(1e9)) == 0.0


def test_a_round_as_dear_as_the_dearest_must_fit():
    allowance = Allowance.of_stage({"seconds": 10.0}, totals(), None)
    assert allowance.stopped_by(totals(), NOTHING) is None
    allowance = allowance.after(totals(4.0)).after(totals(2.0))
    assert allowance.stopped_by(totals(6.0), NOTHING) is None  # 4 more would be just 10
    assert allowance.stopped_by(totals(6.1), NOTHING) == "seconds"


def test_room_for_later_stages():
    allowance = Allowance.of_stage({"seconds": 10.0, "macs": 100.0}, totals(), None).after(
        totals(2.0, macs=10)
    )
    assert allowance.stopped_by(totals(6.0, macs=10), Reserve(1)) is None
    assert allowance.stopped_by(totals(6.1, macs=10), Reserve(1)) == "seconds"
    assert allowance.stopped_by(totals(2.0, macs=50), Reserve(1, 4.0)) is None  # 10 + 4 · 10
    assert allowance.stopped_by(totals(2.0, macs=51), Reserve(1, 4.0)) == "macs"


def test_a_stage_has_its_share_of_what_is_left():
    allowance = Allowance.of_stage({"macs": 100.0}, totals(macs=20), 0.25)
    assert allowance.parts == {"macs": 20.0}
    allowance = allowance.after(totals(macs=10))
    assert allowance.stopped_by(totals(macs=30), NOTHING) is None
    assert allowance.stopped_by(totals(macs=31), NOTHING) == "macs"
    assert allowance.share_spent(totals(macs=25)) == 0.25


def test_progress_is_the_largest_share():
    allowance = Allowance.of_stage({"seconds": 10.0, "macs": 100.0}, totals(), None)
    assert allowance.share_spent(totals(2.0, macs=50)) == 0.5
    assert allowance.share_spent(totals(8.0, macs=50)) == 0.8
    assert allowance.share_spent(totals(18.0)) == 1.0
    assert (
        Allowance.of_stage({"macs": 5.0}, totals(macs=5), None).share_spent(totals(macs=5)) == 1.0
    )


def test_a_checkpoint_keeps_it():
    allowance = Allowance.of_stage({"seconds": 10.0}, totals(1.0), None).after(totals(2.0))
    assert Allowance.from_json(allowance.to_json()) == allowance
    assert Allowance.from_json(None) == Allowance()


@pytest.mark.parametrize(
    ("unit", "amount"), [("seconds", 2.5), ("wan", 150), ("bytes", 180), ("macs", 7), ("rounds", 0)]
)
def test_totals_in_a_unit(unit, amount):
    assert totals(2.5, 100, 7, 30, described=50).spent(unit) == amount

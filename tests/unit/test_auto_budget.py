import pytest

from fedloom.errors import FedloomError
from fedloom.runs.auto_budget import AskedBudget, Pace, parse_budget, settle
from fedloom.runs.estimate import Estimate
from fedloom.runs.rehearsal_costs import Cost, StageCost


def pace(rounds=20):
    """A round of the control takes 1 G MACs, 1 MB and, with evaluation, 2 seconds."""
    training = Cost(seconds=rounds * 1.5, macs=rounds * 1e9, down=rounds * 6e5, up=rounds * 4e5)
    stage = StageCost("train", rounds, 8, training)
    return Pace("local-adaptation", Estimate([stage], 2, Cost(seconds=rounds * 0.5), 0, 0))


@pytest.mark.parametrize(
    ("texts", "unit", "amount", "limits"),
    [
        (["minutes=10"], "minutes", 10, {}),
        (["2m"], "minutes", 2, {}),
        (["1.5m"], "minutes", 1.5, {}),
        (["macs=2T"], "macs", 2e12, {}),
        (["bytes=50M,macs=1T"], "bytes", 5e7, {"macs": 1e12}),
        (["wan=1G", "seconds=60"], "wan", 1e9, {"seconds": 60}),
        (["rounds=30"], "rounds", 30, {}),
    ],
)
def test_parse(texts, unit, amount, limits):
    assert parse_budget(texts) == AskedBudget(unit, amount, limits)


def test_nothing_said():
    assert parse_budget([]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "hours=1",
        "minutes=",
        "macs=0",
        "macs=1,macs=2",
        "2m,2m",
        "m",
        "macs=-1",
        "minutes=ten",
        "macs=1e999",
        "2m=3",
    ],
)
def test_nonsense_is_one_sentence(text):
    with pytest.raises(
        FedloomError, match=r"--budget must be an amount of minutes.*try --budget minutes=10"
    ):
        parse_budget([text])


def test_minutes_are_not_a_limit_beside_something_else():
    with pytest.raises(FedloomError, match="minutes of --budget must stand alone or first"):
        parse_budget(["macs=1T,minutes=2"])


def test_minutes_become_macs_by_what_was_timed():
    """Ten minutes for two runs are 300 s each, 150 rounds of 2 s, 150 G MACs."""
    settled = settle(AskedBudget("minutes", 10), pace(), 2, 1.0, 0)
    assert settled.config == {"equal": "macs", "amount": pytest.approx(150e9), "rounds": 600}
    assert settled.seconds == pytest.approx(600)
    assert settled.evaluate_every == 15
    assert settled.note == (
        "150 GMACs for each contestant: 10 minutes on this machine for all of them, "
        "converted by a step that was timed here"
    )


def test_without_a_budget_the_control_has_its_rounds():
    settled = settle(None, pace(20), 3, 1.0, 0)
    assert settled.config["amount"] == pytest.approx(20e9)
    assert settled.note == "20 GMACs for each contestant: what 20 rounds of local-adaptation take"


def test_other_units_are_taken_as_they_are():
    settled = settle(AskedBudget("bytes", 5e7, {"macs": 1e12}), pace(), 2, 1.0, 0)
    assert settled.config == {
        "equal": "bytes",
        "amount": 5e7,
        "rounds": 200,
        "limits": {"macs": 1e12},
    }
    settled = settle(AskedBudget("rounds", 30), pace(), 2, 1.0, 0)
    assert settled.config == {"equal": "rounds", "amount": None, "rounds": 30}


def test_a_budget_in_rounds_takes_as_long_as_the_same_budget_in_macs():
    """Whatever number of rounds the configuration has."""
    by_rounds = settle(AskedBudget("rounds", 30), pace(20), 2, 1.0, 0)
    by_macs = settle(AskedBudget("macs", 30 * pace(20).a_round("macs")), pace(20), 2, 1.0, 0)
    assert by_rounds.evaluate_every == by_macs.evaluate_every == 3
    assert by_rounds.seconds == pytest.approx(by_macs.seconds)
    with pytest.raises(FedloomError, match="must last for 40 rounds"):
        settle(AskedBudget("rounds", 30), pace(20), 2, 1.0, 40)


@pytest.mark.parametrize(
    ("asked", "share", "says"),
    [
        (
            AskedBudget("macs", 1e9),
            1.0,
            "must last for 2 rounds of local-adaptation, but got 1 GMACs; 2.02 GMACs suffice",
        ),
        (
            AskedBudget("macs", 7e9),
            0.25,
            "must last for 8 rounds of local-adaptation, but got 7 GMACs; 8.08 GMACs suffice",
        ),
        (
            AskedBudget("minutes", 0.1),
            1.0,
            "got 0.1 minutes, which last for 1.5; 0.135 minutes suffice",
        ),
        (
            None,
            0.05,
            "must last for 40 rounds of local-adaptation, but got --rounds 20; try --rounds 40",
        ),
    ],
)
def test_too_little(asked, share, says):
    with pytest.raises(FedloomError) as caught:
        settle(asked, pace(), 2, share, 0)
    assert says in str(caught.value)

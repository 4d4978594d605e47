import pytest

from fedloom.evaluate.verdict import chosen_size, in_words, verdict
from fedloom.metrics.metric import ACCURACY, RMSE
from fedloom.records.auto import ClientWinner, Gap, LeaderboardRow, OnTest
from fedloom.records.decision import Decision
from fedloom.records.result import RunResult
from result_files import client, result

WORDS = {
    "auto": "the half-width CNN with the client prior",
    "local-adaptation": "FedAvg with fine-tuning",
}
NOT_TUNED = Decision(
    decision="fine-tuning",
    options=["fine-tune", "one network"],
    counts=[3, 5],
    chosen="one network",
)


def row(name, mean, gap=None, interval=None, *, macs=100.0, chosen=False):
    test = OnTest(mean=mean, std=0.0, worst=mean, pooled=mean, interval=None)
    to_control = None if gap is None else Gap(mean=gap, interval=interval)
    return LeaderboardRow(
        name=name,
        validation=mean,
        test=test,
        to_control=to_control,
        params=1.0,
        macs=macs,
        training_macs=1,
        bytes=1,
        chosen=chosen,
    )


def said(rows, clients=(), decisions=(), metric=ACCURACY):
    words = {**{row.name: row.name for row in rows}, **WORDS}
    return verdict(rows, clients, "local-adaptation", words, decisions, metric)


def test_the_sentence_of_the_front_page():
    rows = [
        row("auto", 0.661, 0.046, [0.028, 0.064], macs=29.0, chosen=True),
        row("local-adaptation", 0.615),
    ]
    assert said(rows, decisions=[NOT_TUNED]) == (
        "Use the half-width CNN with the client prior: 66.1 %, "
        "4.6 points above FedAvg with fine-tuning [2.8, 6.4], "
        "at 29 % of its MACs; personal networks gained nothing here"
    )


def test_an_interval_that_holds_0_may_be_chance():
    rows = [row("auto", 0.6, -0.01, [-0.03, 0.01], chosen=True), row("local-adaptation", 0.61)]
    assert "1.0 points below FedAvg with fine-tuning [-1.0, 3.0], which may be chance" in said(rows)


def test_the_control_may_win():
    rows = [
        row("local-adaptation", 0.7, chosen=True),
        row("auto", 0.6, -0.1, [-0.2, -0.05], macs=29.0),
    ]
    assert said(rows) == (
        "Use FedAvg with fine-tuning: 70.0 %; "
        "the half-width CNN with the client prior is 10.0 points below it [5.0, 20.0], "
        "at 29 % of its MACs"
    )
    assert said([*rows, row("ditto", 0.5, -0.2)]).endswith(
        " of its MACs; ditto gained nothing here"
    )


def test_two_with_the_same_figure_are_level():
    rows = [row("local-adaptation", 0.5, chosen=True), row("auto", 0.5, 0.0)]
    words = "the half-width CNN with the client prior is level with it"
    assert said(rows) == f"Use FedAvg with fine-tuning: 50.0 %; {words}"
    rows[1] = row("auto", 0.5, 0.0004, [-0.02, 0.0208])
    assert said(rows).endswith(f"; {words} [-2.0, 2.1], which may be chance")
    rows[1] = row("auto", 0.5, 0.0006, [-0.02, 0.0212])
    assert "is 0.1 points above it" in said(rows)


def test_a_number_without_a_unit_is_named():
    rows = [row("auto", 1.5, 0.25, [0.125, 0.375], chosen=True), row("local-adaptation", 1.25)]
    assert said(rows, metric=RMSE) == (
        "Use the half-width CNN with the client prior: RMSE 1.5, "
        "0.25 RMSE higher (worse) than FedAvg with fine-tuning [0.125, 0.375]"
    )


def test_a_control_over_the_limit_is_told_as_such():
    rows = [
        row("local-adaptation", 0.7).replace(fits=False),
        row("auto", 0.6, -0.1, [-0.2, -0.05], chosen=True),
    ]
    assert "10.0 points below FedAvg with fine-tuning (over the limit) [5.0, 20.0]" in said(rows)


def test_clients_with_another_model_are_named():
    rows = [
        row("auto", 0.7, 0.1, [0.05, 0.2], chosen=True),
        row("ditto", 0.6, 0.0),
        row("local-adaptation", 0.6),
    ]
    clients = [
        ClientWinner(client=k, chosen="ditto" if k in (1, 3) else "auto", samples=9)
        for k in range(4)
    ]
    assert said(rows, clients).endswith(
        "; decisively better on validation: clients 1 and 3 with ditto"
    )
    assert said(rows, clients[:1]).endswith("; ditto gained nothing here")


def test_one_client_has_no_interval_and_may_be_chance():
    rows = [row("auto", 0.7, 0.1, chosen=True), row("local-adaptation", 0.6)]
    clients = [ClientWinner(client=k, chosen="auto", samples=9) for k in range(2)]
    assert "above FedAvg with fine-tuning at the only client, which may be chance" in said(
        rows, clients[:1]
    )
    assert "chance" not in said(rows, clients)  # all are better by the same


def test_what_was_compared_on_no_samples_gained_nothing_and_lost_nothing():
    rows = [row("auto", 0.7, 0.1, [0.05, 0.2], chosen=True), row("local-adaptation", 0.6)]
    counts = {"up": 0, "down": 0, "samples": 12}
    assert "personal networks" in said(rows, decisions=[NOT_TUNED.replace(counts=counts)])
    nobody = NOT_TUNED.replace(counts={**counts, "samples": 0})
    assert "personal networks" not in said(rows, decisions=[nobody])


@pytest.mark.parametrize(
    ("chosen", "size"), [(["1, 0.5", "0.5"], 0.5), (["1, 0.5"], None), ([], None)]
)
def test_the_size_that_the_last_decision_left(chosen, size):
    decisions = []
    for number, name in enumerate(chosen):
        decisions.append(
            Decision(decision=f"size, slice {number + 1}", options=[], counts={}, chosen=name)
        )
    assert chosen_size(decisions) == size


def test_a_contestant_in_words():
    decided = [
        {"decision": "size, slice 2", "options": ["0.5", "1"], "counts": {}, "chosen": "0.5"}
    ]
    raw = result([], decisions=decided, options={"prior": "on", "network": "cnn"})
    assert in_words("auto", RunResult.from_json(raw)) == WORDS["auto"]
    raw = result([], decisions=decided, options={"prior": "off", "network": "my.py:Net"})
    assert in_words("auto", RunResult.from_json(raw)) == "the half-width my.py:Net"
    # There is one size, so there was nothing to decide.
    raw = result([client(architecture="cnn:0.5")], options={"prior": "on", "sizes": [0.5]})
    assert in_words("auto", RunResult.from_json(raw)) == WORDS["auto"]
    raw = result([])
    assert in_words("local-adaptation", RunResult.from_json(raw)) == "FedAvg with fine-tuning"

"""What a report says of states that were lost: every client once, in good English."""

import pytest

from fedloom.records.result import RunResult
from fedloom.report.incidents import incidents
from result_files import result


def of(**more):
    return incidents(RunResult.from_json(result(**more)))


def sentences(how, *losses):
    events = [{"client": client, "round": number, "how": how} for client, number in losses]
    return of(lost_states=events)


def test_none():
    assert of() == []


@pytest.mark.parametrize(
    ("how", "losses", "sentence"),
    [
        (
            "fresh",
            [(1, 3)],
            "Client 1 lost its own state (round 3) and continued with a fresh one.",
        ),
        (
            "fresh",
            [(1, 3), (1, 4)],
            "Client 1 lost its own state (rounds 3 and 4) and continued with a fresh one.",
        ),
        (
            "refused",
            [(1, 3)],
            "Client 1 lost its own state (round 3) and was left out of that round.",
        ),
        (
            "refused",
            [(1, 3), (1, 4)],
            "Client 1 lost its own state (rounds 3 and 4) and was left out of those rounds.",
        ),
        (
            "fresh",
            [(5, 3), (1, 3)],
            "Clients 1 (round 3) and 5 (round 3) lost their own states "
            "and continued with fresh ones.",
        ),
        (
            "refused",
            [(5, 3), (1, 3)],
            "Clients 1 (round 3) and 5 (round 3) lost their own states "
            "and were left out of that round.",
        ),
        (
            "refused",
            [(1, 3), (5, 7), (5, 8)],
            "Clients 1 (round 3) and 5 (rounds 7 and 8) lost their own states "
            "and were left out of those rounds.",
        ),
    ],
)
def test_who_lost_a_state(how, losses, sentence):
    assert sentences(how, *losses) == [sentence]


def test_both_ways_have_a_sentence_each():
    events = [
        {"client": 1, "round": 3, "how": "refused"},
        {"client": 2, "round": 4, "how": "fresh"},
    ]
    assert of(lost_states=events) == [
        "Client 2 lost its own state (round 4) and continued with a fresh one.",
        "Client 1 lost its own state (round 3) and was left out of that round.",
    ]


def test_many_clients_and_many_rounds_are_counted():
    (sentence,) = sentences("refused", *[(0, number) for number in range(1, 101)])
    assert "(rounds 1, 2, 3, 4, 5 and 95 more)" in sentence
    (sentence,) = sentences("fresh", *[(client, 2) for client in range(8)])
    assert "4 (round 2) and 3 more lost their own states" in sentence

"""How many clients' figures must be read with caution, and why.

A model that gives everybody the same answer can be right for three of four samples; a figure of a
handful of samples says little. Both look good in a table of accuracies.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.records.record import Count, Record

FEW_SAMPLES = 20  # a test part with fewer says little


class Cautions(Record):
    """Of one run, or of all runs of a method; then a client counts once for each run."""

    clients: Count  # that have figures
    # whose model gives the same answer for every test sample; None: nobody tells
    one_answer: Count | None
    shared_one_answer: Count | None  # where the shared model does
    few_samples: Count  # with fewer than 20 test samples


def added_up(cautions: Iterable[Cautions]) -> Cautions:
    clients = 0
    few_samples = 0
    one_answer = None
    shared_one_answer = None
    for each in cautions:
        clients += each.clients
        few_samples += each.few_samples
        one_answer = plus(one_answer, each.one_answer)
        shared_one_answer = plus(shared_one_answer, each.shared_one_answer)
    return Cautions(
        clients=clients,
        one_answer=one_answer,
        shared_one_answer=shared_one_answer,
        few_samples=few_samples,
    )


def plus(one: int | None, other: int | None) -> int | None:
    """Of what is known."""
    if one is None:
        return other
    if other is None:
        return one
    return one + other


def has_one_answer(answers: int | None, samples: int, figure: float | None) -> bool | None:
    """Whether a model gives the same answer for every sample; None: that is not known.

    Where that answer is always right, it is no fault: the samples are all of one class. Of a single
    sample nothing can be said.
    """
    if answers is None or figure is None:
        return None
    return answers <= 1 and samples > 1 and figure < 1


def number_of(facts: Iterable[bool | None]) -> int | None:
    """How many are true; None: none is known."""
    known = [fact for fact in facts if fact is not None]
    if not known:
        return None
    return sum(known)

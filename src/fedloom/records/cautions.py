"""How many clients' figures must be read with caution, and why.

A model that gives the same answer for every sample can be right for three of four samples, and a
figure from a handful of samples says little. Both can look good in a table of accuracies.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedloom.records.record import Count, Record

FEW_SAMPLES = 20  # figures from fewer test samples than this say little


class Cautions(Record):
    """Numbers of clients in one run, or in all runs of a method.

    In the latter case a client counts once for each run.
    """

    clients: Count  # clients that have figures
    # Clients whose model gives the same answer for every test sample; None: unknown.
    one_answer: Count | None
    shared_one_answer: Count | None  # clients where the shared model does so
    few_samples: Count  # clients with fewer than 20 test samples
    # Clients whose test part has one class, which balanced accuracy leaves out; None: unknown.
    one_class: Count | None = None
    one_answer_of_one_class: Count | None = None  # those of `one_answer` with such a test part
    shared_of_one_class: Count | None = None  # those of `shared_one_answer` with such a test part


def added_up(cautions: Iterable[Cautions]) -> Cautions:
    clients = 0
    few_samples = 0
    one_answer = None
    shared_one_answer = None
    one_class = None
    one_answer_of_one_class = None
    shared_of_one_class = None
    for run in cautions:
        clients += run.clients
        few_samples += run.few_samples
        one_answer = plus(one_answer, run.one_answer)
        shared_one_answer = plus(shared_one_answer, run.shared_one_answer)
        one_class = plus(one_class, run.one_class)
        one_answer_of_one_class = plus(one_answer_of_one_class, run.one_answer_of_one_class)
        shared_of_one_class = plus(shared_of_one_class, run.shared_of_one_class)
    return Cautions(
        clients=clients,
        one_answer=one_answer,
        shared_one_answer=shared_one_answer,
        few_samples=few_samples,
        one_class=one_class,
        one_answer_of_one_class=one_answer_of_one_class,
        shared_of_one_class=shared_of_one_class,
    )


def plus(one: int | None, other: int | None) -> int | None:
    """The sum of those that are known; None: neither is known."""
    if one is None:
        return other
    if other is None:
        return one
    return one + other


def has_one_answer(answers: int | None, samples: int, figure: float | None) -> bool | None:
    """Whether a model gives the same answer for every sample; None: unknown.

    It counts even if that answer is always right: samples of one class do not show how the model
    would answer for another class. A single sample does not count.
    """
    if answers is None or figure is None:
        return None
    return answers <= 1 and samples > 1


def number_of(facts: Iterable[bool | None]) -> int | None:
    """How many are true; None: all are unknown."""
    known = [fact for fact in facts if fact is not None]
    if not known:
        return None
    return sum(known)


def both(one: bool | None, other: bool | None) -> bool | None:
    """Whether both are true; None: one of them is unknown."""
    if one is None or other is None:
        return None
    return one and other

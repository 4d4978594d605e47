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
    # whose test part has one class, which balanced accuracy leaves out; None: nobody tells
    one_class: Count | None = None
    one_answer_of_one_class: Count | None = None  # of `one_answer`, those with such a test part
    shared_of_one_class: Count | None = None  # the same of `shared_one_answer`


def added_up(cautions: Iterable[Cautions]) -> Cautions:
    clients = 0
    few_samples = 0
    one_answer = None
    shared_one_answer = None
    one_class = None
    one_answer_of_one_class = None
    shared_of_one_class = None
    for each in cautions:
        clients += each.clients
        few_samples += each.few_samples
        one_answer = plus(one_answer, each.one_answer)
        shared_one_answer = plus(shared_one_answer, each.shared_one_answer)
        one_class = plus(one_class, each.one_class)
        one_answer_of_one_class = plus(one_answer_of_one_class, each.one_answer_of_one_class)
        shared_of_one_class = plus(shared_of_one_class, each.shared_of_one_class)
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
    """Of what is known."""
    if one is None:
        return other
    if other is None:
        return one
    return one + other


def has_one_answer(answers: int | None, samples: int, figure: float | None) -> bool | None:
    """Whether a model gives the same answer for every sample; None: that is not known.

    It counts where that answer is always right too: of samples of one class nobody can tell what
    the model would say of another. Of a single sample nothing can be said.
    """
    if answers is None or figure is None:
        return None
    return answers <= 1 and samples > 1


def number_of(facts: Iterable[bool | None]) -> int | None:
    """How many are true; None: none is known."""
    known = [fact for fact in facts if fact is not None]
    if not known:
        return None
    return sum(known)


def both(one: bool | None, other: bool | None) -> bool | None:
    """Whether both are true; None: one of them is not known."""
    if one is None or other is None:
        return None
    return one and other

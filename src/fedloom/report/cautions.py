"""Sentences on how far a run's figures can be trusted, and on what personal models gained.

They are printed beside the figures wherever those are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.metrics.metric import Metric
from fedloom.records.cautions import FEW_SAMPLES, Cautions
from fedloom.records.comparison import MethodRow
from fedloom.records.result import ClientResult, RunResult
from fedloom.records.result_parts import PersonalGain, Uphill

SAME_ANSWER = "the same answer for every test sample"


def cautions_of_run(result: RunResult) -> list[str]:
    """Return the warnings about a run's figures; empty where nothing is doubtful."""
    cautions = result.known_cautions
    sentences = []
    if cautions.one_answer:
        sentences.append(one_answer(cautions))
    if cautions.shared_one_answer and result.known_gain is not None:
        sentences.append(f"The {shared_one_answer(cautions)}")
    if cautions.one_class:
        sentences.append(left_out_sentence(cautions))
    if cautions.few_samples:
        sentences.append(few_samples(cautions.few_samples, cautions.clients))
    context = context_sentence(result)
    if context:
        sentences.append(context)
    if result.uphill is not None:
        sentences.append(uphill_sentence(result.uphill))
    return sentences


def uphill_sentence(uphill: Uphill) -> str:
    rounds = f"{uphill.rounds:,} rounds"
    if uphill.rounds == 1:
        rounds = "1 round"
    return (
        f"In {rounds} η₁‖g‖² exceeded 1 (at most {uphill.largest:.3g}): there the outer product "
        f"of Eq. 5 turns steps uphill. A smaller inner_lr or hessian=none avoids it."
    )


def context_sentence(result: RunResult) -> str:
    """Say whether samples really take different paths, and whether that matters.

    "" where all samples take the same path by design.
    """
    if result.supernet is None or not result.supernet.sampler_params:
        return ""
    routed = [client for client in result.clients if client.routes is not None]
    if not routed:
        return ""
    paths = set()
    for client in routed:
        assert client.routes is not None
        if client.routes.distinct > 1:
            return shuffled_sentence(routed)
        paths.add(tuple(client.routes.top[0].path))
    if len(paths) == 1:
        return "context: all samples take the same path."
    return "context: all samples of a client take the same path."


def shuffled_sentence(routed: Sequence[ClientResult]) -> str:
    """Compare accuracy with every sample on another sample's path and on its own path."""
    own = []
    shuffled = []
    for client in routed:
        if client.shuffled_accuracy is not None and client.figure is not None:
            own.append(client.figure)
            shuffled.append(client.shuffled_accuracy)
    if not own:
        return ""
    on_others = 100 * sum(shuffled) / len(shuffled)
    on_own = 100 * sum(own) / len(own)
    return (
        f"context: accuracy would be {on_others:.1f} % with every sample on the path of another "
        f"one; on their own paths it is {on_own:.1f} %, mean over clients."
    )


def cautions_of_methods(methods: Sequence[MethodRow]) -> list[str]:
    """Return the warnings about a comparison.

    Models with a single answer are named for each method. Warnings about test parts come once,
    because methods on the same splits have the same ones.
    """
    sentences = []
    test_parts = []
    for row in methods:
        cautions = row.cautions
        if cautions is None:
            continue
        over = over_seeds(row)
        if cautions.one_answer:
            sentences.append(f"{row.name}: {one_answer(cautions, over)}")
        if cautions.shared_one_answer and row.personal_gain is not None:
            sentences.append(f"{row.name}: the {shared_one_answer(cautions, over)}")
        if cautions.one_class:
            test_parts.append(left_out_sentence(cautions, over))
        if cautions.few_samples:
            test_parts.append(few_samples(cautions.few_samples, cautions.clients, over))
    sentences += dict.fromkeys(test_parts)  # without repeats
    return sentences


def over_seeds(row: MethodRow) -> str:
    """Return " over 3 seeds": in counts of clients, a client counts once for each seed."""
    if row.runs <= 1:
        return ""
    return f" over {row.runs} seeds"


def one_answer(cautions: Cautions, over: str = "") -> str:
    count = cautions.one_answer or 0
    verb = "give"
    if count == 1:
        verb = "gives"
    limit = of_one_class(cautions.one_answer_of_one_class, count)
    models = f"{count:,} of {cautions.clients:,} clients' models"
    return f"{models}{over} {verb} {SAME_ANSWER}{limit}."


def shared_one_answer(cautions: Cautions, over: str = "") -> str:
    """Continue a sentence that begins with "the", on a method with personal models."""
    count = cautions.shared_one_answer or 0
    places = of_clients(count, cautions.clients)
    limit = of_one_class(cautions.shared_of_one_class, count)
    return f"shared model gives {SAME_ANSWER} at {places}{over}{limit}."


def of_one_class(count: int | None, among: int) -> str:
    """Qualify a sentence on models with one answer: some test parts have only one class."""
    if not count:
        return ""
    if count == among == 1:
        return "; its test part has one class"
    places = f"{count:,} of them"
    if count == among:
        places = "all of them"
    return f"; at {places} the test part has one class"


def left_out_sentence(cautions: Cautions, over: str = "") -> str:
    """Say how many clients the means of balanced accuracy leave out."""
    count = cautions.one_class or 0
    places = of_clients(count, cautions.clients)
    whose = "whose test parts have one class"
    if count == 1:
        whose = "whose test part has one class"
    return f"Balanced accuracy leaves out {places}{over}, {whose}."


def few_samples(count: int, clients: int, over: str = "") -> str:
    if count == 1:
        consequence = f"has fewer than {FEW_SAMPLES} test samples: its figures say little"
    else:
        consequence = f"have fewer than {FEW_SAMPLES} test samples: their figures say little"
    return f"{of_clients(count, clients)}{over} {consequence}."


def of_clients(count: int, clients: int) -> str:
    return f"{count:,} of {clients:,} clients"


def gain_sentence(gain: PersonalGain | None, metric: Metric) -> str:
    """Say what personal models gained over the shared one; "" where there are none."""
    if gain is None:
        return ""
    own = metric.text(gain.own)
    shared = f"{metric.text(gain.shared)}{metric.unit}"
    means = f"{own} against {shared}, mean over clients"
    clients = f"better for {of_clients(gain.better, gain.clients)}, worse for {gain.worse:,}"
    details = f"({means}): {clients}{balanced_gain(gain)}."
    size = points(abs(gain.difference), metric)
    if own == metric.text(gain.shared):  # compared as printed: an invisible difference is none
        return f"Personal models gained nothing over the shared one {details}"
    if metric.better(gain.own, gain.shared):
        return f"Personal models gained {size} over the shared one {details}"
    return f"Personal models lost {size} against the shared one {details}"


def balanced_gain(gain: PersonalGain) -> str:
    """Say the same by balanced accuracy, which often says the opposite; "" where unknown."""
    difference = gain.balanced_difference
    if difference is None:
        return ""
    own = f"{100 * (gain.own_balanced_accuracy or 0):.1f}"
    shared = f"{100 * (gain.shared_balanced_accuracy or 0):.1f}"
    means = f"{own} against {shared} %"
    if own == shared:
        return f"; by balanced accuracy they gained nothing ({means})"
    verb = "lost"
    if difference > 0:
        verb = "gained"
    return f"; by balanced accuracy they {verb} {100 * abs(difference):.1f} points ({means})"


def points(difference: float, metric: Metric) -> str:
    """Write a difference: of percentages in points, of any other metric in its own unit."""
    text = metric.text(difference)
    if metric.unit != " %":
        return f"{text} of {metric.title}"
    if text == "1.0":
        return "1.0 point"
    return f"{text} points"


def most_common_sentence(figure: float | None, metric: Metric) -> str:
    if figure is None:
        return ""
    text = f"{metric.text(figure)}{metric.unit}"
    return f"Always answering each client's most common class would give {text}."

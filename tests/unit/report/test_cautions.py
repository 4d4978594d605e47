"""Sentences that readers must know before the figures, and on what personal models gained."""

from html import unescape

import pytest
from fabricated import client, counted, make_run, result, row

from fedloom.evaluate.judgement import judged
from fedloom.metrics.metric import ACCURACY, PERPLEXITY
from fedloom.records.comparison import MethodRow
from fedloom.records.result import RunResult
from fedloom.records.result_parts import PersonalGain
from fedloom.report.cautions import (
    cautions_of_methods,
    cautions_of_run,
    gain_sentence,
    most_common_sentence,
)
from fedloom.report.page import run_page
from fedloom.report.run_table import summary
from fedloom.report.sections.headline import headline
from fedloom.report.story import Reader
from fedloom.report.versus import beside_each_other, versus_page
from result_files import method

ONE = {"answers": 1, "test_samples": 40, "balanced_accuracy": 0.5}
TWO = {"answers": 2, "test_samples": 40}


def run_of(clients, **more):
    return RunResult.from_json(result(clients, **more))


def test_clients_whose_model_gives_one_answer_are_counted():
    clients = [
        client(0, 0.7, **ONE),
        client(1, 0.7, **ONE),
        client(2, 0.75, **ONE),
        client(3, 0.8, **TWO),
    ]
    rule = "3 of 4 clients' models give the same answer for every test sample."
    assert cautions_of_run(run_of(clients)) == [rule]
    assert rule in summary(run_of(clients))
    assert cautions_of_run(run_of(clients[2:])) == [
        "1 of 2 clients' models gives the same answer for every test sample."
    ]
    assert cautions_of_run(run_of(clients[3:])) == []


def test_one_answer_counts_where_the_test_part_has_one_class_too():
    """It is always right or always wrong there, which says nothing about other classes."""
    of_one = {**ONE, "balanced_accuracy": None}
    clients = [
        client(0, 0.7, **ONE),
        client(1, 1.0, **of_one),
        client(2, 0.0, **of_one),
        client(3, 0.8, **TWO),
    ]
    limit = "at 2 of them the test part has one class"
    left_out = "Balanced accuracy leaves out 2 of 4 clients, whose test parts have one class."
    assert cautions_of_run(run_of(clients)) == [
        f"3 of 4 clients' models give the same answer for every test sample; {limit}.",
        left_out,
    ]
    assert cautions_of_run(run_of(clients[1:3]))[0] == (
        "2 of 2 clients' models give the same answer for every test sample; "
        "at all of them the test part has one class."
    )
    assert cautions_of_run(run_of(clients[2:])) == [
        "1 of 2 clients' models gives the same answer for every test sample; "
        "its test part has one class.",
        "Balanced accuracy leaves out 1 of 2 clients, whose test part has one class.",
    ]


def test_the_counts_of_an_earlier_version_are_counted_again():
    """It left out models whose one answer was always right."""
    clients = [client(0, 0.7, **ONE), client(1, 1.0, **ONE | {"balanced_accuracy": 1.0})]
    before = {"clients": 2, "one_answer": 1, "shared_one_answer": None, "few_samples": 0}
    assert cautions_of_run(run_of(clients, cautions=before)) == [
        "2 of 2 clients' models give the same answer for every test sample."
    ]


def test_clients_with_few_test_samples_are_counted():
    few = client(0, 0.7, test_samples=19)
    enough = client(1, 0.7, test_samples=20)
    assert cautions_of_run(run_of([few, few, enough])) == [
        "2 of 3 clients have fewer than 20 test samples: their figures say little."
    ]
    assert cautions_of_run(run_of([few, enough])) == [
        "1 of 2 clients has fewer than 20 test samples: its figures say little."
    ]
    assert cautions_of_run(run_of([enough])) == []


def test_the_shared_model_is_told_apart_where_clients_have_others():
    shared = {"shared_accuracy": 0.6, "shared_answers": 1}
    clients = [client(0, 0.7, **TWO, **shared), client(1, 0.7, **TWO)]
    rule = "The shared model gives the same answer for every test sample at 1 of 2 clients."
    assert cautions_of_run(run_of(clients)) == [rule]
    everybodys = client(0, 0.6, **ONE, **shared)
    assert cautions_of_run(run_of([everybodys])) == [
        "1 of 1 clients' models gives the same answer for every test sample."
    ]
    of_one = client(1, 1.0, **TWO, **shared | {"balanced_accuracy": None})
    assert cautions_of_run(run_of([clients[0], of_one]))[0] == (
        "The shared model gives the same answer for every test sample at 2 of 2 clients; "
        "at 1 of them the test part has one class."
    )


def test_of_methods():
    judged = {
        "clients": 12,
        "one_answer": 5,
        "shared_one_answer": None,
        "few_samples": 3,
        "one_class": 4,
        "one_answer_of_one_class": 2,
    }
    rows = [
        MethodRow.from_json(method("fedavg", runs=3, cautions=judged)),
        MethodRow.from_json(method("local", runs=3, cautions=judged | {"one_answer": 0})),
        MethodRow.from_json(method("old", runs=3)),
    ]
    assert cautions_of_methods(rows) == [
        "fedavg: 5 of 12 clients' models over 3 seeds give the same answer for every test sample; "
        "at 2 of them the test part has one class.",
        "Balanced accuracy leaves out 4 of 12 clients over 3 seeds, "
        "whose test parts have one class.",
        "3 of 12 clients over 3 seeds have fewer than 20 test samples: their figures say little.",
    ]


def test_a_comparison_says_where_a_shared_model_gives_one_answer():
    """Where clients have models of their own; else it is the model that was told of already."""
    counts = {
        "clients": 8,
        "one_answer": 0,
        "shared_one_answer": 3,
        "few_samples": 0,
        "shared_of_one_class": 1,
    }
    personal = MethodRow.from_json(
        method("ditto", cautions=counts, personal_gain={"mean": 0.1, "std": None})
    )
    assert cautions_of_methods(
        [personal, MethodRow.from_json(method("fedavg", cautions=counts))]
    ) == [
        "ditto: the shared model gives the same answer for every test sample at 3 of 8 clients; "
        "at 1 of them the test part has one class."
    ]
    clients = [
        client(0, 0.7, **TWO, shared_accuracy=0.6),
        client(1, 0.9, **TWO, shared_accuracy=0.8),
    ]
    assert judged(personal, [run_of(clients)]).personal_gain.mean == pytest.approx(0.1)
    assert (
        judged(MethodRow.from_json(method()), [run_of([client(0, 0.7, **TWO)])]).personal_gain
        is None
    )


@pytest.mark.parametrize(
    ("own", "shared", "says"),
    [
        (
            0.975,
            0.952,
            "gained 2.3 points over the shared one (97.5 against 95.2 %, mean over clients)",
        ),
        (
            0.975,
            0.983,
            "lost 0.8 points against the shared one (97.5 against 98.3 %, mean over clients)",
        ),
        (
            0.975,
            0.975,
            "gained nothing over the shared one (97.5 against 97.5 %, mean over clients)",
        ),
        (
            0.9721,
            0.9719,
            "gained nothing over the shared one (97.2 against 97.2 %, mean over clients)",
        ),
    ],
)
def test_what_personal_models_gained(own, shared, says):
    gain = PersonalGain(clients=4, own=own, shared=shared, better=3, worse=1)
    assert (
        gain_sentence(gain, ACCURACY)
        == f"Personal models {says}: better for 3 of 4 clients, worse for 1."
    )


def test_of_perplexity_the_lower_is_the_gain():
    gain = PersonalGain(clients=2, own=3.0, shared=4.5, better=2, worse=0)
    means = "3.00 against 4.50, mean over clients"
    assert gain_sentence(gain, PERPLEXITY) == (
        f"Personal models gained 1.50 of perplexity over the shared one ({means}): "
        "better for 2 of 2 clients, "
        "worse for 0."
    )
    assert gain_sentence(None, ACCURACY) == "" == most_common_sentence(None, ACCURACY)


@pytest.mark.parametrize(
    ("own", "shared", "says"),
    [
        (0.362, 0.5, "lost 13.8 points (36.2 against 50.0 %)"),
        (0.5, 0.362, "gained 13.8 points (50.0 against 36.2 %)"),
        (0.50001, 0.5, "gained nothing (50.0 against 50.0 %)"),
    ],
)
def test_a_gain_is_told_by_balanced_accuracy_too(own, shared, says):
    gain = PersonalGain(
        clients=8,
        own=0.95,
        shared=0.9,
        better=5,
        worse=2,
        own_balanced_accuracy=own,
        shared_balanced_accuracy=shared,
    )
    assert gain_sentence(gain, ACCURACY).endswith(f"worse for 2; by balanced accuracy they {says}.")


def test_the_headline(tmp_path):
    clients = [
        client(0, 0.7, **ONE, shared_accuracy=0.8),
        client(1, 0.9, **TWO, shared_accuracy=0.8),
    ]
    labels = {
        "kind": "image",
        "shape": [1, 8, 8],
        "labels": ["a", "b"],
        "mean": [0.0],
        "std": [1.0],
    }
    balanced = {"mean": 0.7, "std": 0.2, "worst": 0.5, "worst10": 0.5}
    folder = make_run(
        tmp_path / "run",
        [row(1)],
        clients,
        classes=counted(2),
        balanced_accuracy=balanced,
        auc={**balanced, "mean": 0.61},
        input=labels,
    )
    text = unescape(str(headline(Reader(folder).read())))
    assert (
        "Personal models gained nothing over the shared one "
        "(80.0 against 80.0 %, mean over clients)" in text
    )
    assert "1 of 2 clients' models gives the same answer for every test sample." in text
    assert "balanced accuracy" in text and "70.0 %" in text and "AUC" in text and "61.0 %" in text
    assert "Always answering each client's most common class would give 25.0 %." in text
    page = run_page(Reader(folder).read())
    assert "client 0 (worst) (one answer)" in page


def test_auc_is_shown_of_two_classes_alone(tmp_path):
    balanced = {"mean": 0.7, "std": 0.2, "worst": 0.5, "worst10": 0.5}
    folder = make_run(
        tmp_path / "run", [row(1)], [client(0, 0.7)], balanced_accuracy=balanced, auc=balanced
    )
    assert "AUC" not in str(headline(Reader(folder).read()))


def test_runs_beside_each_other(tmp_path):
    for name in ("fedavg", "local"):
        make_run(
            tmp_path / name,
            [row(1)],
            [client(0, 0.7, **ONE), client(1, 0.8, **TWO)],
            method=name,
            classes=counted(2),
        )
    versus = beside_each_other([tmp_path / "fedavg", tmp_path / "local"])
    text = unescape(versus_page(versus, tmp_path))
    for name in ("fedavg", "local"):
        assert (
            f"{name}: 1 of 2 clients' models gives the same answer for every test sample." in text
        )
    assert "Balanced accuracy of each client under each method" in text
    assert "baseline: each client's most common class" in text


# Samples that take their own paths


SAMPLERS = {"space": "stacks:1:1:1", "edges": 3, "params": 10, "sampler_params": 5}


def routed(number, paths, shuffled=0.4, figure=0.5):
    """A client whose samples take these paths, as often as they are named."""
    top = [
        {"path": [path], "share": paths.count(path) / len(paths)} for path in dict.fromkeys(paths)
    ]
    routes = {"samples": len(paths), "distinct": len(top), "entropy": 0.0, "top": top}
    return client(number, figure, test_samples=40, routes=routes, shuffled_accuracy=shuffled)


def test_one_path_for_all_samples_is_said():
    same = run_of([routed(0, ["skip", "skip"]), routed(1, ["skip"])], supernet=SAMPLERS)
    assert "context: all samples take the same path." in cautions_of_run(same)
    same_per_client = run_of([routed(0, ["skip", "skip"]), routed(1, ["pool"])], supernet=SAMPLERS)
    assert "context: all samples of a client take the same path." in cautions_of_run(
        same_per_client
    )


def test_what_other_samples_paths_would_give_is_said():
    run = run_of(
        [routed(0, ["skip", "pool"], 0.3, 0.6), routed(1, ["skip"], 0.5, 0.4)], supernet=SAMPLERS
    )
    (sentence,) = [line for line in cautions_of_run(run) if line.startswith("context")]
    assert "would be 40.0 % with" in sentence and "it is 50.0 %" in sentence


def test_nothing_is_said_of_context_where_there_is_none():
    assert not any(
        "context" in line for line in cautions_of_run(run_of([client(0, 0.5, test_samples=40)]))
    )
    cut = run_of([routed(0, ["skip"], shuffled=None)], supernet={**SAMPLERS, "sampler_params": 0})
    assert not any("context" in line for line in cautions_of_run(cut))


def test_steps_that_turned_uphill_are_said():
    run = run_of([client(0, 0.5, test_samples=40)], uphill={"rounds": 2, "largest": 3.6})
    (sentence,) = cautions_of_run(run)
    assert sentence.startswith("In 2 rounds η₁‖g‖² exceeded 1 (at most 3.6)")
    assert sentence in summary(run)
    once = run_of([client(0, 0.5, test_samples=40)], uphill={"rounds": 1, "largest": 1.25})
    assert cautions_of_run(once)[0].startswith("In 1 round ")

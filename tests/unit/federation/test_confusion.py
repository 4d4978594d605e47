"""Confusion matrices are sent once, with the final metrics, and only by sites that allow it."""

from dataclasses import replace

import pytest

from fedloom.federation.client.site import MOST_CONFUSION_CLASSES, has_confusion_matrix
from fedloom.federation.protocol.wire import read_reply
from fedloom.testing.toy import Toy


@pytest.fixture(scope="module")
def toy():
    return Toy.of("fedavg", rounds=3)


def test_only_the_final_evaluation_tells_them(toy):
    trace = toy.run_apart()
    told = [
        (exchange.order.meta["final"], "confusion" in read_reply(exchange.answer).meta)
        for exchange in trace.exchanges
        if exchange.order.kind == "evaluate"
    ]
    assert set(told) == {(False, False), (True, True)}
    for client in trace.outcome.clients:
        counts = client.own.confusion
        figures = client.own.figures
        assert len(counts) == len(toy.task.labels)
        assert sum(map(sum, counts)) == figures.samples
        assert sum(counts[k][k] for k in range(len(counts))) == figures.correct


def test_a_site_may_keep_them_and_loses_nothing_else(toy, tmp_path, monkeypatch):
    open_site = Toy.site
    monkeypatch.setattr(
        Toy, "site", lambda *given: replace(open_site(*given), sends_confusion=False)
    )
    for client in toy.run(tmp_path).outcome.clients:
        assert client.own.confusion is None and client.own.figures.value is not None


def test_which_tasks_have_them(toy):
    many = tuple(map(str, range(MOST_CONFUSION_CLASSES + 1)))
    assert has_confusion_matrix(toy.task) and has_confusion_matrix(
        replace(toy.task, labels=many[1:])
    )
    assert not has_confusion_matrix(replace(toy.task, labels=many))
    assert not has_confusion_matrix(replace(toy.task, kind="text"))

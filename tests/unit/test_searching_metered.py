"""Searching is metered apart from training."""

import torch
from torch import nn

from fedloom.cost.meter import Meter, known_to_cost, partly_searching, searching
from fedloom.federation.protocol.envelope import Envelope
from fedloom.searchers.milenas import share_of_search
from fedloom.testing import Toy


def test_what_is_inside_is_searching():
    net = nn.Linear(10, 3)
    x = torch.zeros(2, 10)
    with Meter() as meter:
        net(x)
        with searching():
            net(x).sum().backward()  # forward, and the gradient to the weight
            with Meter() as inner, searching():
                net(x)
        with searching(), known_to_cost(7):
            net(x)
        net(x)
    assert (inner.macs, inner.search_macs) == (60, 60)
    assert (meter.macs, meter.search_macs) == (60 * 5 + 7, 60 * 3 + 7)


def test_a_share_of_what_is_inside_is_searching():
    net = nn.Linear(10, 3)
    x = torch.zeros(2, 10)
    with Meter() as meter:
        net(x)
        with partly_searching(0.25):
            net(x)
        with partly_searching(0.25), known_to_cost(60):  # as one that is not looked at again
            net(x)
    assert (meter.macs, meter.search_macs) == (180, 30)


def test_both_batches_at_once():
    assert share_of_search(30, 30) == 0.4  # two products of five
    assert share_of_search(20, 30) == 0.5


def test_an_envelope_tells_it():
    plain = Envelope(1.0, 5, search_macs=3).to_json()
    assert Envelope.from_json(plain).search_macs == 3
    del plain["search_macs"]  # a site of an earlier version
    assert Envelope.from_json(plain).search_macs == 0


def search_macs(method, options, rounds=2):
    toy = Toy.of(method, options, rounds)
    work = [
        exchange
        for exchange in toy.run_apart().exchanges
        if exchange.order.kind not in ("describe", "evaluate")
    ]
    return [(exchange.envelope.macs, exchange.envelope.search_macs) for exchange in work]


def test_fedavg_never_searches():
    assert {searched for _, searched in search_macs("fedavg", {})} == {0}


def test_fednas_does_both():
    counted = search_macs("fednas", {"nodes": 1, "search_share": 0.5})
    assert any(0 < searched < macs for macs, searched in counted)  # in its search
    assert any(searched == 0 < macs for macs, searched in counted)  # in its training


def test_spider_does_both():
    counted = search_macs("spider", {"nodes": 1, "t_s": 1, "tau": 1}, 4)
    assert any(0 < searched < macs for macs, searched in counted)

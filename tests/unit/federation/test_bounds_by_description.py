"""What a client described at first contact bounds what it may claim later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from fedloom.federation.protocol.wire import read_reply
from fedloom.testing import Toy
from fedloom.testing.engines import Passing, encoded, order_of
from fedloom.types import Reply

LIAR = 2  # it has 8 samples to train on, 3 of validation and 4 of test


@dataclass(frozen=True)
class Lying(Passing):
    """One client's replies to one kind of order are changed on their way."""

    kind: str
    lie: Callable[[Reply], Reply]

    def ask(self, parcels, deadline):
        for parcel, envelope in self.inner.ask(parcels, deadline):
            if parcel.client == LIAR and order_of(parcel).kind == self.kind:
                parcel.reply.put([encoded(self.lie(read_reply(parcel.reply.read_bytes())))])
            yield parcel, envelope


@pytest.fixture
def toy():
    return replace(Toy.of("fedavg", rounds=1), participation=1.0)


@pytest.mark.parametrize(("weight", "refused"), [(8.0, []), (8.5, [LIAR]), (15.0, [LIAR])])
def test_a_weight_is_at_most_the_samples_to_train_on(toy, weight, refused, tmp_path):
    trace = toy.run(
        tmp_path,
        engine=lambda inner: Lying(inner, "train", lambda reply: replace(reply, weight=weight)),
    )
    assert [refusal.client for refusal in trace.rows[0].refused] == refused


@pytest.mark.parametrize(
    ("samples", "reason"),
    [(4, None), (15, None), (16, "it evaluated 16 samples of 15"), (10**9, "samples of 15")],
)
def test_an_evaluation_is_of_at_most_all_its_samples(toy, samples, reason, tmp_path):
    """The parts together: which of them is evaluated is the order's to say."""

    def boast(reply: Reply) -> Reply:
        personal = {**reply.meta["personal"], "samples": samples}
        return replace(reply, meta={"personal": personal, "shared": None})

    trace = toy.run(tmp_path, engine=lambda inner: Lying(inner, "evaluate", boast))
    evaluated = trace.outcome.clients[LIAR].own
    if reason is None:
        assert evaluated.reason is None and evaluated.figures.samples == samples
    else:
        assert reason in evaluated.reason and evaluated.figures is None

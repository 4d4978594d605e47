"""Tests of a process that serves one client after the other: nothing may leak to the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from fedloom.cost.repeated import KNOWN
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.parcels import Engine, Parcel
from fedloom.testing.engines import Answers
from fedloom.testing.subject import Subject, finished, nothing_differs
from fedloom.testing.toy import Toy, differences

LEFT_OVER = (
    "a client's answer depends on what earlier work left in its process, such as the content of a "
    "network that was not loaded completely"
)


class Serving(Subject):
    def test_a_network_that_served_before_is_as_good_as_a_new_one(
        self,
        toy: Toy,
        tmp_path: Path,
    ) -> None:
        """A client's reply does not depend on what an earlier client left in the networks.

        The plain run lends networks again as they are left, and knows the MACs of steps that were
        taken before. A process that meets every step for the first time, with networks whose
        content is overwritten, must answer the same.
        """
        usual = finished(toy).trace
        spoiled = toy.run(tmp_path, engine=Spoiling)
        nothing_differs(differences(usual, spoiled), LEFT_OVER)
        for exchange, twin in zip(usual.exchanges, spoiled.exchanges, strict=True):
            assert exchange.answer == twin.answer, LEFT_OVER

    def test_a_client_leaves_its_samples_alone(self, toy: Toy) -> None:
        """A client's work does not change its samples, which are kept for its next order."""
        before = parts_of(toy)  # made anew for this test
        after = parts_of(finished(toy).toy)
        for was, now in zip(before, after, strict=True):
            assert torch.equal(was, now), "a client changed its samples in place: work on a copy"


class Spoiling:
    """Before every order, overwrites the networks that wait; and all steps are metered anew."""

    def __init__(self, inner: Engine) -> None:
        assert isinstance(inner, InlineEngine)
        self.inner = inner

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        with KNOWN.none():
            for parcel in parcels:
                for waiting in self.inner.site.networks.waiting:
                    spoil(waiting.net)
                yield from self.inner.ask([parcel], deadline)


@torch.no_grad()
def spoil(net: nn.Module) -> None:
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)
        else:
            tensor.fill_(-1)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
        parameter.requires_grad_(not parameter.requires_grad)
    net.eval()


def parts_of(toy: Toy) -> list[torch.Tensor]:
    tensors = []
    for data in toy.data:
        for part in (data.train, data.validation, data.test):
            tensors += [part.x, part.y]
    return tensors

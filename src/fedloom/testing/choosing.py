"""Choosing: what can be left out of a supernet has an owner, and cutting it out changes no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedloom.rng import rng
from fedloom.testing.subject import Subject, finished
from fedloom.testing.toy import Toy
from fedloom.types import Arch

MOST_REMOVED = 6  # operations of a supernet that are left out, one at a time
MOST_CUT = 3


class Choosing(Subject):
    """For methods whose networks have `owner`, `cut` and `space`, as `fedloom.spaces.supernet` has; others skip."""

    def test_every_searchable_key_has_an_owner(self, toy: Toy) -> None:
        """What one operation alone touches, parameter or buffer, is its own, and nothing else is."""
        for net in self._supernets(toy):
            x, y, everything = toy.data[0].train.x, toy.data[0].train.y, existing(net)
            whole = touched_by(net, everything, x, y)
            for slot, op, arch in removals(everything):
                lost = whole - touched_by(net, arch, x, y)
                assert lost == {name for name in whole if net.owner(name) == (slot, op)}, f"slot {slot}, operation {op}"

    def test_cut_is_the_supernet(self, toy: Toy) -> None:
        """A cut network answers as the supernet does when it is told the same choice."""
        x = toy.data[0].test.x
        for net in self._supernets(toy):
            for arch in self.architectures(net):
                with torch.no_grad():
                    whole, cut = net.eval()(x, arch), net.cut(arch).eval()(x)
                torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-5)

    def architectures(self, supernet: Any) -> Sequence[Arch]:
        """What to cut out of it; override it for a space without `sample`."""
        if existing(supernet) != supernet.space.full():
            return [existing(supernet)]  # it was cut before
        return [supernet.space.sample(rng(0, "architecture", number)) for number in range(MOST_CUT)]

    def _supernets(self, toy: Toy) -> list[Any]:
        parts = [part for net in finished(toy).clients.networks.values() for part in deepcopy(net).modules()]
        found = [part for part in parts if hasattr(part, "owner") and hasattr(part, "cut")]
        if not found:
            pytest.skip("its networks have no owner and no cut: there is nothing to choose")
        return found


def existing(net: Any) -> Arch:
    """All operations that a supernet has."""
    arch: Arch = net.arch if hasattr(net, "arch") else net.space.full()
    return arch


def removals(arch: Arch) -> Iterator[tuple[int, int, Arch]]:
    """Architectures with one operation less, of slots that keep another; a few of them, drawn at random."""
    pairs = [(slot, op) for slot, live in enumerate(arch.choice) if len(live) > 1 for op in live]
    for number in rng(0, "removals").permutation(len(pairs))[:MOST_REMOVED]:
        slot, op = pairs[number]
        left = tuple(other for other in arch.choice[slot] if other != op)
        yield slot, op, replace(arch, choice=(*arch.choice[:slot], left, *arch.choice[slot + 1 :]))


def touched_by(net: nn.Module, arch: Arch, x: torch.Tensor, y: torch.Tensor) -> set[str]:
    """Parameters that get a gradient and buffers that change in one step on this choice."""
    twin, before = deepcopy(net).train(), dict(net.named_buffers())
    twin.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(twin(x, arch), y).backward()
    moved = {name for name, value in twin.named_parameters() if value.grad is not None and value.grad.any()}
    return moved | {name for name, value in twin.named_buffers() if not torch.equal(value, before[name])}

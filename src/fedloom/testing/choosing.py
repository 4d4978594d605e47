"""Tests of supernets: removable parameters have an owner, and cutting changes no score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from fedloom.rng import rng
from fedloom.spaces.space import OpId
from fedloom.testing.subject import Subject, finished
from fedloom.testing.toy import Toy
from fedloom.types import Arch

MOST_REMOVED = 6  # operations of a supernet to leave out, one at a time
MOST_CUT = 3  # architectures to cut out of a supernet


class Choosing(Subject):
    """Tests for methods whose networks have `owner`, `cut` and `space`.

    The networks of `fedloom.spaces.supernet` have them; for others the tests are skipped.
    """

    def test_every_searchable_key_has_an_owner(self, toy: Toy) -> None:
        """An operation owns exactly the parameters and buffers that only it touches."""
        for net in self._supernets(toy):
            train = toy.data[0].train
            everything = existing(net)
            whole = touched_by(net, everything, train.x, train.y)
            for removal in removals(everything):
                lost = whole - touched_by(net, removal.remaining, train.x, train.y)
                owned = owned_by(net, removal.op, whole)
                assert lost == owned, f"{removal}"

    def test_cut_is_the_supernet(self, toy: Toy) -> None:
        """A cut network gives the same scores as the supernet under the same choice."""
        x = toy.data[0].test.x
        for net in self._supernets(toy):
            for arch in self.architectures(net):
                with torch.no_grad():
                    whole = net.eval()(x, arch)
                    cut = net.cut(arch).eval()(x)
                torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-5)

    def architectures(self, supernet: Any) -> Sequence[Arch]:
        """The architectures to cut out; override this for a space without `sample`."""
        if existing(supernet) != supernet.space.full():
            return [existing(supernet)]  # it has been cut already
        draws = [rng(0, "architecture", number) for number in range(MOST_CUT)]
        return [supernet.space.sample(generator) for generator in draws]

    def _supernets(self, toy: Toy) -> list[Any]:
        supernets = []
        for net in finished(toy).clients.networks.values():
            for part in deepcopy(net).modules():
                if hasattr(part, "owner") and hasattr(part, "cut"):
                    supernets.append(part)
        if not supernets:
            pytest.skip("its networks have no `owner` and no `cut`: there is nothing to choose")
        return supernets


def existing(net: Any) -> Arch:
    """The operations that a supernet has."""
    if not hasattr(net, "arch"):
        everything: Arch = net.space.full()
        return everything
    arch: Arch = net.arch
    return arch


@dataclass(frozen=True)
class Removal:
    """One operation that is left out."""

    op: OpId
    remaining: Arch  # all operations but this one

    def __str__(self) -> str:
        return f"slot {self.op.slot}, operation {self.op.op}"


def removals(arch: Arch) -> Iterator[Removal]:
    """A few random ways to leave out one operation from a slot that has several."""
    operations = []
    for slot, live in enumerate(arch.choice):
        if len(live) > 1:
            operations += [OpId(slot, op) for op in live]
    for number in rng(0, "removals").permutation(len(operations))[:MOST_REMOVED]:
        removed = operations[number]
        remaining = list(arch.choice[removed.slot])
        remaining.remove(removed.op)
        choice = list(arch.choice)
        choice[removed.slot] = tuple(remaining)
        yield Removal(removed, replace(arch, choice=tuple(choice)))


def owned_by(net: Any, op: OpId, names: Iterable[str]) -> set[str]:
    """Those of the names whose parameter or buffer belongs to this operation."""
    return {name for name in names if net.owner(name) == op}


def touched_by(net: nn.Module, arch: Arch, x: torch.Tensor, y: torch.Tensor) -> set[str]:
    """The parameters that get a gradient, and the buffers that change, in one training step."""
    before = dict(net.named_buffers())
    twin = deepcopy(net).train()
    twin.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(twin(x, arch), y).backward()
    touched = set()
    for name, parameter in twin.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            touched.add(name)
    for name, buffer in twin.named_buffers():
        if not torch.equal(buffer, before[name]):
            touched.add(name)
    return touched

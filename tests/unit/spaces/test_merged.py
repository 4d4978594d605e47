"""Operations of several edges in one call: the numbers of single ones.

They are so to the bit where oneDNN has AVX2 alone, whose kernels the guards of `merged` were chosen by. With wider
instructions a group of channels may be added up in another order; no promise rests on that.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedloom.cost.meter import Meter
from fedloom.searchers.milenas import constant, tracking_norms, untracked
from fedloom.spaces import merged
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.choice import Mixture
from fedloom.spaces.space import Size
from fedloom.types import Arch

# op set, nodes, channels, image; of 7×9 pixels, reductions need a pixel more
CASES = [
    ("s2", 2, 8, (1, 8, 8)),
    ("s3", 3, 8, (1, 7, 9)),
    ("full", 4, 8, (3, 8, 8)),
    ("s3", 2, 16, (1, 4, 4)),
]


def check_same(ours, theirs):
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        assert torch.equal(ours, theirs)
    else:
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


class Step:
    """A network, its α, two batches, and the gradients of a search step."""

    def __init__(self, ops, nodes, channels, shape):
        torch.manual_seed(0)
        self.space = DartsCells(ops, nodes)
        self.net = self.space.network(shape, 10, Size(3, channels))
        self.net.to(memory_format=torch.channels_last)
        self.weights = list(self.net.parameters())
        self.alpha = []
        for slot in self.space.slots:
            self.alpha.append((0.1 * torch.randn(len(slot.options))).requires_grad_())
        self.images = torch.randn(16, *shape)
        self.labels = torch.randint(0, 10, (16,))

    def loss(self):
        scores = self.net(self.images, Mixture.softmax(self.alpha))
        return functional.cross_entropy(scores, self.labels)

    def gradients(self):
        of_both = torch.autograd.grad(self.loss(), [*self.weights, *self.alpha])
        with constant(self.weights), untracked(tracking_norms(self.net)):
            of_alpha = torch.autograd.grad(self.loss(), self.alpha)
        return [*of_both, *of_alpha]


@pytest.fixture
def calls(monkeypatch):
    """How many operations each merged call had."""
    sizes = []
    compute = merged.compute

    def counted(kind, waiting):
        sizes.append(len(waiting))
        return compute(kind, waiting)

    monkeypatch.setattr(merged, "compute", counted)
    return sizes


def never(monkeypatch):
    monkeypatch.setattr(merged, "MOST_ELEMENTS", 0)


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_statistics_are_those_of_single_calls(case, calls, monkeypatch):
    ours = Step(*case)
    found = ours.gradients()
    assert max(calls) > 1
    calls.clear()
    never(monkeypatch)
    theirs = Step(*case)
    expected = theirs.gradients()
    assert not calls
    for one, other in zip(found, expected, strict=True):
        check_same(one, other)
        assert one.stride() == other.stride()
    for name, buffer in ours.net.named_buffers():
        check_same(buffer, theirs.net.get_buffer(name))


@pytest.mark.parametrize("case", CASES)
def test_the_meter_counts_the_same(case, monkeypatch):
    step = Step(*case)
    with Meter() as ours:
        step.gradients()
    never(monkeypatch)
    with Meter() as theirs:
        step.gradients()
    assert ours.macs == theirs.macs > 0


def test_a_weight_that_trains_beside_a_frozen_one_has_its_gradient(monkeypatch):
    def gradients(step):
        for number, weight in enumerate(step.weights):
            weight.requires_grad_(number % 3 != 0)
        trained = [weight for weight in step.weights if weight.requires_grad]
        return torch.autograd.grad(step.loss(), trained)

    ours = gradients(Step(*CASES[0]))
    never(monkeypatch)
    for one, other in zip(ours, gradients(Step(*CASES[0])), strict=True):
        check_same(one, other)


def test_gradients_can_be_differentiated_again(monkeypatch):
    def second(step):
        first = torch.autograd.grad(step.loss(), step.weights, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), step.alpha)

    ours = second(Step(*CASES[0]))
    never(monkeypatch)
    torch.testing.assert_close(ours, second(Step(*CASES[0])), rtol=1e-3, atol=1e-4)


def test_only_mixtures_that_train_are_merged(calls):
    """A cut network must answer to the bit like the supernet under its architecture."""
    step = Step(*CASES[0])
    step.net(step.images)
    step.net(step.images, Arch(step.space.name, step.space.full().choice))
    with torch.no_grad():
        step.net(step.images, Mixture.softmax(step.alpha))
    step.net.eval()
    step.net(step.images, Mixture.softmax(step.alpha))
    assert not calls


@pytest.mark.parametrize("channels", [4, 6, 12, 64])
def test_channels_whose_bits_would_change_are_not_merged(channels):
    state = torch.zeros(2, channels, 2, 2).contiguous(memory_format=torch.channels_last)
    assert not merged.can_merge(state, channels)


def test_slots_of_a_kind_of_cell_that_is_not_there_have_no_gradient():
    """Adam must not move them: two cells are both reduction cells."""
    space = DartsCells("s3", 1)
    net = space.network((1, 8, 8), 10, Size(2, 8)).to(memory_format=torch.channels_last)
    alpha = [torch.zeros(len(slot.options), requires_grad=True) for slot in space.slots]
    scores = net(torch.randn(4, 1, 8, 8), Mixture.softmax(alpha))
    gradients = torch.autograd.grad(scores.sum(), alpha, allow_unused=True)
    normal = len(space.slots_of("normal"))
    assert all(gradient is None for gradient in gradients[:normal])
    assert all(gradient is not None for gradient in gradients[normal:])

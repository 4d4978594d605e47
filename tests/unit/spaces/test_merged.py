"""Operations of several edges and both batches of a step in one call: equal up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedloom.cost.meter import Meter
from fedloom.searchers.milenas import constant, tracking_norms, untracked
from fedloom.spaces import merged
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.choice import Mixture
from fedloom.spaces.ops import SepConv
from fedloom.spaces.space import Size
from fedloom.types import Arch

# op set, nodes, channels, image; of 7×9 pixels, reductions need a pixel more
CASES = [
    ("s2", 2, 8, (1, 8, 8)),
    ("s3", 3, 8, (1, 7, 9)),
    ("full", 4, 8, (3, 8, 8)),
    ("s3", 2, 16, (1, 4, 4)),
]


LAM = 0.7  # of the validation batch, which is smaller than the other


def check_same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


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
        self.others = torch.randn(13, *shape)
        self.labels_of_others = torch.randint(0, 10, (13,))

    def loss(self):
        scores = self.net(self.images, Mixture.softmax(self.alpha))
        return functional.cross_entropy(scores, self.labels)

    def loss_of_others(self):
        scores = self.net(self.others, Mixture.softmax(self.alpha))
        return functional.cross_entropy(scores, self.labels_of_others)

    def loss_of_both(self):
        scores = self.net.forward_both(self.images, self.others, Mixture.softmax(self.alpha))
        loss = functional.cross_entropy(scores.train, self.labels)
        return loss + LAM * functional.cross_entropy(scores.validation, self.labels_of_others)

    def gradients(self):
        """Of all weights, then of α: one batch after the other."""
        gradients = list(torch.autograd.grad(self.loss(), [*self.weights, *self.alpha]))
        with constant(self.weights), untracked(tracking_norms(self.net)):
            of_others = torch.autograd.grad(self.loss_of_others(), self.alpha)
        for number, gradient in enumerate(of_others, len(self.weights)):
            gradients[number] = gradients[number] + LAM * gradient
        return gradients

    def gradients_at_once(self):
        return torch.autograd.grad(self.loss_of_both(), [*self.weights, *self.alpha])


@pytest.fixture
def calls(monkeypatch):
    """How many operations each merged call had."""
    sizes = []
    compute = merged.SideBySide.compute

    def counted(self, kind, waiting):
        sizes.append(len(waiting))
        return compute(self, kind, waiting)

    monkeypatch.setattr(merged.SideBySide, "compute", counted)
    return sizes


def never(monkeypatch):
    monkeypatch.setattr(merged, "MOST_ELEMENTS", 0)


WAYS = [Step.gradients, Step.gradients_at_once]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_gradients_and_statistics_are_those_of_single_calls(case, way, calls, monkeypatch):
    ours = Step(*case)
    actual = way(ours)
    assert max(calls) > 1
    calls.clear()
    never(monkeypatch)
    theirs = Step(*case)
    expected = theirs.gradients()
    assert not calls
    for one, other in zip(actual, expected, strict=True):
        check_same(one, other)
        assert one.stride() == other.stride()
    for name, buffer in ours.net.named_buffers():
        check_same(buffer, theirs.net.get_buffer(name))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_the_meter_counts_the_same(case, way, monkeypatch):
    step = Step(*case)
    with Meter() as ours:
        way(step)
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


def test_gradients_of_both_batches_can_be_differentiated_again(monkeypatch):
    """The weights' gradient does not depend on the other batch, and so its derivative does not."""

    def second(step, loss):
        first = torch.autograd.grad(loss, step.weights, create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), step.alpha)

    step = Step(*CASES[0])
    ours = second(step, step.loss_of_both())
    never(monkeypatch)
    step = Step(*CASES[0])
    torch.testing.assert_close(ours, second(step, step.loss()), rtol=1e-3, atol=1e-4)


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


def test_what_merging_does_not_pay_for_goes_one_after_the_other(calls):
    wide = Step("s2", 2, 12, (1, 8, 8))  # channels in no whole blocks
    assert wide.net.forward_both(wide.images, wide.others, Mixture.softmax(wide.alpha)) is None
    large = torch.zeros(16, 1, 32, 32)
    step = Step(*CASES[0])
    assert step.net.forward_both(large, large, Mixture.softmax(step.alpha)) is None
    one = step.images[:1]  # of which BN has no deviation
    assert step.net.forward_both(step.images, one, Mixture.softmax(step.alpha)) is None
    step.net.cells[0].pre0.bn.eval()  # frozen statistics
    assert step.net.forward_both(step.images, step.others, Mixture.softmax(step.alpha)) is None
    assert not calls


def test_an_operation_from_outside_is_not_merged(calls):
    class Own(SepConv):
        pass

    step = Step(*CASES[0])
    getattr(step.net.cells[0].edges, "0")["sep_conv_3x3"].__class__ = Own
    step.loss()
    assert not calls


def test_frozen_weights_change_nothing_else(monkeypatch):
    """In one pass over both batches too: α learns from both."""

    def of_alpha(step, loss):
        with constant(step.weights):
            return torch.autograd.grad(loss(step), step.alpha)

    ours = of_alpha(Step(*CASES[0]), Step.loss_of_both)
    never(monkeypatch)
    theirs = of_alpha(Step(*CASES[0]), lambda step: step.loss() + LAM * step.loss_of_others())
    for one, other in zip(ours, theirs, strict=True):
        check_same(one, other)


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

"""Architectures that are run together answer as each does alone."""

import pytest
import torch

from fedloom.cost.meter import Meter
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.joint import Joint
from fedloom.spaces.nasbench201 import NasBench201Cells
from fedloom.spaces.space import Size
from fedloom.types import Arch

SPACES = ("full", "s1", "s2", "s3", "s5", "nasbench201")


def network(space: str, cells: int = 3):
    torch.manual_seed(0)
    if space == "nasbench201":
        return NasBench201Cells().network((3, 8, 8), 3, Size(2, 2), affine=True)
    return DartsCells(space, 4).network((3, 9, 7), 3, Size(cells, 2))


def one_less(net, slots=None):
    """Every architecture with one operation less."""
    full = net.space.full()
    for slot, live in enumerate(full.choice):
        for op in live if slots is None or slot in slots else ():
            others = tuple(other for other in live if other != op)
            yield Arch(full.space, (*full.choice[:slot], others, *full.choice[slot + 1 :]))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("training", [True, False])
def test_together_they_answer_as_each_alone_to_the_bit(space, training):
    net = network(space).train(training)
    x = torch.randn(5, *net.shape, generator=torch.Generator().manual_seed(1))
    archs = [net.space.full(), *one_less(net)][:12]
    with torch.no_grad():
        for arch, answer in zip(archs, Joint(net, archs)(x), strict=True):
            assert torch.equal(answer, net(x, arch))


def test_architectures_alike_in_all_that_is_computed_are_one():
    """Removing `none` changes nothing, nor does a cell of a kind that the network lacks."""
    net = network("s3")
    full = net.space.full()
    without_none = Arch(full.space, ((1, 2), *full.choice[1:]))
    joint = Joint(net, [full, without_none, full])
    assert joint.answers[0] == joint.answers[1] == joint.answers[2]
    assert len(list(joint(torch.randn(2, *net.shape)))) == 3
    reductions_only = network("s2", cells=2)
    assert len(set(Joint(reductions_only, list(one_less(reductions_only, range(14)))).answers)) == 1


def test_nothing_is_computed_twice_and_nothing_stays():
    net = network("s2")
    archs = list(one_less(net, {0, 14}))
    x = torch.randn(3, *net.shape)
    with torch.no_grad(), Meter() as alone:
        for arch in archs:
            net(x, arch)
    joint = Joint(net, archs)
    with torch.no_grad(), Meter() as together:
        list(joint(x))
    assert together.macs < 0.8 * alone.macs
    with torch.no_grad(), Meter() as one, Meter() as three:
        net(x, archs[0])
    with torch.no_grad(), Meter() as three:
        list(Joint(net, [archs[0]] * 3)(x))
    assert three.macs == one.macs


def test_a_step_that_nobody_needs_any_more_is_forgotten(monkeypatch):
    net = network("s2")
    joint = Joint(net, list(one_less(net, {3})))
    alive = []
    last = joint.steps[-1]

    def watched(*values):
        alive.append(torch.is_tensor(values[0]))
        return last.work(*values)

    joint.steps[-1] = last._replace(work=watched)
    answers = joint(torch.randn(2, *net.shape))
    next(answers)
    results = answers.gi_frame.f_locals["results"]
    assert len(results) < len(joint.steps) / 3  # what the second one shares
    list(answers)
    assert alive == [True]

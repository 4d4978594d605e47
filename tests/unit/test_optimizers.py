"""The same bits as torch's classes, memory by name, and without torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedloom.learning.optimizers import Adam, Sgd, clip_gradients, remembered


def two_nets():
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4))
        for _ in range(2)
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets


def stepped(net, optimizer, x):
    optimizer.zero_grad()
    (net(x) ** 2).sum().backward()
    optimizer.step()


PAIRS = {
    "sgd": (Sgd, torch.optim.SGD, {}),
    "decay": (Sgd, torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum": (Sgd, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 3e-4}),
    "adam": (Adam, torch.optim.Adam, {"betas": (0.5, 0.999), "weight_decay": 1e-3}),
}


@pytest.mark.parametrize("case", PAIRS)
def test_the_same_bits_as_torchs_classes(case):
    ours, theirs, settings = PAIRS[case]
    mine, other = two_nets()
    optimizers = (
        ours(dict(mine.named_parameters()), 0.01, **settings),
        theirs(other.parameters(), lr=0.01, **settings),
    )
    for number in range(5):
        x = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(number))
        for net, optimizer in zip((mine, other), optimizers, strict=True):
            stepped(net, optimizer, x)
    assert all(
        torch.equal(a, b) for a, b in zip(mine.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("case", ["momentum", "adam"])
def test_memory_goes_on_where_it_was(case):
    ours, _, settings = PAIRS[case]
    whole, cut = two_nets()
    xs = [
        torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(number))
        for number in range(4)
    ]
    optimizer = ours(dict(whole.named_parameters()), 0.01, **settings)
    for x in xs:
        stepped(whole, optimizer, x)
    memory = {}
    for x in xs:
        optimizer = ours(dict(cut.named_parameters()), 0.01, **settings, memory=memory)
        stepped(cut, optimizer, x)
        memory = remembered(optimizer)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters(), strict=True))


@pytest.mark.parametrize("case", ["momentum", "adam"])
def test_what_has_no_gradient_stays_and_is_not_remembered(case):
    ours, _, settings = PAIRS[case]
    used, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = ours({"used": used, "unused": unused}, 0.1, **settings)
    (used.sum() + 0 * 1).backward()
    optimizer.step()
    assert torch.equal(unused, torch.ones(2)) and not torch.equal(used, torch.ones(2))
    assert all("unused" not in name for name in optimizer.memory)


def test_a_step_does_not_import_torchs_compiler():
    script = """
import sys, torch
from fedloom.learning.optimizers import Adam, Sgd
for make in (lambda w: Sgd(w, 0.1, momentum=0.9), lambda w: Adam(w, 0.1, betas=(0.5, 0.999))):
    w = torch.ones(2, requires_grad=True)
    optimizer = make({"w": w})
    w.sum().backward()
    optimizer.step()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("most", [1e-3, 5.0, 1e9])
@pytest.mark.parametrize("value", [None, torch.inf, torch.nan])
def test_clipped_gradients_have_torchs_bits(most, value):
    mine, other = two_nets()
    for net in (mine, other):
        (net(torch.linspace(-3, 3, 144).view(4, 1, 6, 6)) ** 2).sum().backward()
        net[1].bias.grad = None  # it was off the path
        if value is not None:
            net[0].weight.grad[0, 0, 0, 0] = value
    clip_gradients(mine.parameters(), most)
    nn.utils.clip_grad_norm_(other.parameters(), most)
    assert mine[1].bias.grad is None
    for ours, theirs in zip(mine.parameters(), other.parameters(), strict=True):
        if ours.grad is not None:
            assert ours.grad.numpy().tobytes() == theirs.grad.numpy().tobytes()


def test_without_gradients_there_is_nothing_to_clip():
    clip_gradients([torch.zeros(2, requires_grad=True)], 1.0)

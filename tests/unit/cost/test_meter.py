import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from fedloom.cost.count import macs, parameters
from fedloom.cost.meter import Meter


def both(work):
    """The meter's count, and that of torch's own counter, where a MAC is two flops."""
    with FlopCounterMode(display=False) as oracle, Meter() as meter:
        work()
    return meter.macs, oracle.get_total_flops() / 2


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 3, stride=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def test_by_hand():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3, requires_grad=True)
    with Meter() as meter:
        y = net(x)
        assert meter.macs == 24
        y.sum().backward()
    assert meter.macs == 3 * 24


LAYERS = {
    "linear": (nn.Linear(3, 4), (5, 3)),
    "linear without bias": (nn.Linear(3, 4, bias=False), (5, 3)),
    "linear on 3-D": (nn.Linear(3, 4), (2, 5, 3)),
    "linear on 3-D without bias": (nn.Linear(3, 4, bias=False), (2, 5, 3)),
    "linear on 4-D": (nn.Linear(3, 4), (2, 2, 5, 3)),
    "linear on one sample": (nn.Linear(3, 4), (3,)),
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2), (2, 3, 9)),
    "conv2d": (nn.Conv2d(3, 4, (3, 1), stride=2, padding=1), (2, 3, 9, 8)),
    "conv2d dilated": (nn.Conv2d(3, 4, 3, dilation=2, padding="same"), (2, 3, 9, 8)),
    "conv2d circular": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 9, 8)),
    "conv2d unbatched": (nn.Conv2d(3, 4, 3), (3, 9, 8)),
    "conv3d": (nn.Conv3d(2, 3, 3), (2, 2, 5, 4, 4)),
    "transposed 1d": (nn.ConvTranspose1d(3, 4, 3, stride=2), (2, 3, 5)),
    "transposed 2d": (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5, 4)),
    "transposed 3d": (nn.ConvTranspose3d(2, 3, 2), (1, 2, 3, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_every_layer_against_torch(name, inward, frozen):
    layer, shape = LAYERS[name]
    layer.requires_grad_(True)
    layer.weight.requires_grad_(not frozen)
    if frozen and not inward and layer.bias is None:
        return  # nothing to differentiate
    x = torch.randn(shape, requires_grad=inward)
    counted, expected = both(lambda: layer(x).sum().backward())
    assert counted == expected > 0


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_groups(kind):
    """torch's counter ignores the groups in a weight's gradient: that one is computed by hand."""
    layer = kind(4, 8, 3, groups=2)
    x = torch.randn(2, 4, 6, 6, requires_grad=True)
    places = 4 * 4 * 8 * 2 if kind is nn.Conv2d else 6 * 6 * 4 * 4  # outputs × 4/2, or inputs × 8/2
    forward, expected = both(lambda: layer(x))
    assert forward == expected == 2 * places * 9
    assert both(lambda: layer(x).sum().backward())[0] == 3 * forward
    layer.weight.requires_grad_(False)
    counted, expected = both(lambda: layer(x).sum().backward())
    assert counted == expected == 2 * forward


def test_linear_on_a_tensor_that_is_not_contiguous():
    layer = nn.Linear(3, 4)
    x = torch.randn(2, 3, 5, requires_grad=True)
    counted, expected = both(lambda: layer(x.transpose(1, 2)).sum().backward())
    assert counted == expected
    counted, expected = both(lambda: torch.autograd.grad(layer(x.transpose(1, 2)).sum(), [x]))
    assert counted == expected


@pytest.mark.parametrize("inward", [False, True])
def test_a_network_against_torch(inward):
    net = cnn()
    x = torch.randn(2, 3, 9, 9, requires_grad=inward)
    counted, expected = both(lambda: net(x))
    assert counted == expected
    counted, expected = both(lambda: net(x).sum().backward())
    assert counted == expected
    net[3].weight.requires_grad_(False)
    fewer, expected = both(lambda: net(x).sum().backward())
    assert counted > fewer == expected


def test_channels_last():
    net = cnn().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    counted, expected = both(lambda: net(x).sum().backward())
    assert counted == expected


def test_only_the_gradients_that_were_asked_for():
    """grad(loss, [α]) computes no weight gradients, although every weight requires one."""
    net = cnn()
    x = torch.randn(2, 3, 9, 9)
    alpha = torch.ones((), requires_grad=True)
    counted, expected = both(lambda: torch.autograd.grad(net(x * alpha).sum(), [alpha]))
    assert counted == expected
    whole, expected = both(lambda: net(x * alpha).sum().backward())
    assert whole == expected > counted
    some, expected = both(lambda: net(x).sum().backward(inputs=[net[-1].weight]))
    assert some == expected < counted


def test_two_backward_passes_count_twice():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    with Meter() as meter:
        loss = net(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert meter.macs == 3 * 24


def test_a_checkpointed_block_counts_its_second_forward_pass():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2), nn.Tanh())
    x = torch.ones(4, 3, requires_grad=True)
    counted, expected = both(lambda: checkpoint(net, x, use_reentrant=False).sum().backward())
    assert counted == expected == 4 * (36 + 24)


def test_no_grad_and_no_backward_count_forward_only():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3, requires_grad=True)
    with Meter() as meter, torch.no_grad():
        net(x)
    assert meter.macs == 24
    with Meter() as meter:
        net(x)
    assert meter.macs == 24


def test_keyword_inputs():
    net = nn.ConvTranspose1d(2, 3, 3)
    x = torch.ones(1, 2, 4)
    assert both(lambda: net(input=x)) == both(lambda: net(x)) == (72, 72)


def test_nested_meters_both_count():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    with Meter() as outer:
        net(x)
        with Meter() as inner:
            net(x).sum().backward()
        net(x).sum().backward()
    assert (inner.macs, outer.macs) == (2 * 24, 5 * 24)


def test_a_backward_pass_after_closing_counts_nothing():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    with Meter() as meter:
        loss = net(x).sum()
    loss.backward()
    net(x)
    assert meter.macs == 24


def test_hooks_are_gone_after_an_error():
    before = len(torch_module._global_forward_hooks)
    with pytest.raises(RuntimeError), Meter():
        nn.Linear(3, 2)(torch.ones(4, 4))
    assert len(torch_module._global_forward_hooks) == before


def test_a_meter_opens_once_at_a_time_but_may_go_on():
    net = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    with Meter() as meter:
        net(x)
        with pytest.raises(RuntimeError, match="already open"):
            meter.__enter__()
    with meter:
        net(x)
    assert meter.macs == 48


class Sliced(nn.Module):
    """A narrower part of a shared layer, as a plain functional call."""

    def __init__(self, after=lambda y: y):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4, 3, 3))
        self.after = after

    def forward(self, x):
        return self.after(F.conv2d(x, self.weight[:2, : x.shape[1]]))

    def count_macs(self, inputs, output):
        return output.numel() * inputs[0].shape[1] * 9


@pytest.mark.parametrize(
    "after", [lambda y: y, lambda y: y * 2]
)  # autograd's product seen, and hidden
@pytest.mark.parametrize("inward", [False, True])
def test_a_module_that_counts_itself(after, inward):
    net = Sliced(after)
    x = torch.randn(2, 3, 5, 5, requires_grad=inward)
    counted, expected = both(lambda: net(x).sum().backward())
    assert counted == expected == (2 + inward) * 2 * 2 * 9 * 3 * 9


def test_a_module_that_counts_itself_and_is_frozen():
    net = Sliced(lambda y: y * 2).requires_grad_(False)
    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    counted, expected = both(lambda: net(x).sum().backward())
    assert counted == expected


class Shares(nn.Module):
    """Several inputs, several outputs, and a leaf among them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, xs):
        return self.weight, xs[0] @ self.weight + xs[1]

    def count_macs(self, inputs, output):
        return output[1].numel() * 2


def test_lists_of_tensors_and_leaves():
    net = Shares()
    x = torch.ones(3, 2)
    with Meter() as meter:
        net([x, x.clone().requires_grad_()])[1].sum().backward()
    assert meter.macs == 3 * 12
    assert not net.weight._backward_hooks  # a hook on a leaf would stay for ever


def test_the_meter_changes_no_bit():
    def train(metered):
        net = cnn().to(memory_format=torch.channels_last)
        x = torch.randn(4, 3, 9, 9)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        with Meter() if metered else torch.enable_grad():
            for _ in range(3):
                optimiser.zero_grad()
                net(x).square().sum().backward()
                optimiser.step()
        return [*net.state_dict().values(), *(p.grad for p in net.parameters())]

    for plain, metered in zip(train(False), train(True), strict=True):
        assert torch.equal(plain, metered)
        assert plain.stride() == metered.stride()


class Token:
    """Something that dies with the graph node that holds it."""


@pytest.mark.parametrize("backward", [False, True])
def test_the_graph_is_freed_as_early_as_without_a_meter(backward):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    x = torch.ones(4, 3)
    token = Token()
    gc.disable()  # counting references must be enough
    try:
        with Meter():
            middle = net[0](x)
            loss = net[1](middle).sum()
            middle.grad_fn.register_prehook(lambda _, token=token: None)
            node = weakref.ref(token)
            middle = weakref.ref(middle)
            token = None
            if backward:
                loss.backward()
            assert node() is not None
            del loss
            assert node() is None
            assert middle() is None
    finally:
        gc.enable()


def test_a_parametrised_weight_is_not_recomputed():
    """Reading a spectrally normalised weight moves its power iteration on."""

    def run(metered):
        torch.manual_seed(0)
        net = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
        with Meter() if metered else torch.enable_grad():
            net(torch.ones(4, 3))
        return net.state_dict()

    plain = run(False)
    metered = run(True)
    assert all(torch.equal(plain[key], metered[key]) for key in plain)


def test_parameters_count_shared_ones_once():
    layer = nn.Linear(3, 3)
    assert parameters(nn.Sequential(layer, nn.ReLU(), layer)) == 12
    assert parameters(nn.ReLU()) == 0


def test_macs_of_one_sample():
    assert macs(nn.Conv2d(3, 4, 3), (3, 5, 5)) == 3 * 3 * 4 * 27
    assert macs(nn.ReLU(), (3,)) == 0
    net = cnn().double()
    assert macs(net, (3, 9, 9)) == both(lambda: net.eval()(torch.zeros(1, 3, 9, 9).double()))[1]


def test_macs_leave_the_network_as_it_was():
    net = cnn()
    net[1].eval()  # frozen statistics inside a network in training
    modes = [module.training for module in net.modules()]
    before = copy.deepcopy(net.state_dict())
    macs(net, (3, 9, 9))
    assert [module.training for module in net.modules()] == modes
    for name, tensor in net.state_dict().items():
        assert torch.equal(before[name], tensor), name
    assert all(parameter.grad is None for parameter in net.parameters())


def test_macs_restore_flags_after_an_error():
    net = cnn()
    with pytest.raises(RuntimeError):
        macs(net, (4, 9, 9))
    assert all(m.training for m in net.modules())

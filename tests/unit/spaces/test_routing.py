"""Every sample through its own operations, and through no other."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.cost.meter import Meter
from fedloom.errors import FedloomError
from fedloom.nets.folding import FOLDED, weights_stay
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.choice import Mixture, Routes
from fedloom.spaces.routing import Gathered, Joined, Part
from fedloom.spaces.space import Size
from fedloom.types import Arch

SHAPE = (3, 8, 8)
NAMES = ["stacks:3:1:2", "stacks:1:2:1:sum", "darts:full:2", "nasbench201"]
SIZES = {"nasbench201": Size(1, 4), "darts:full:2": Size(3, 4)}


class Fixed:
    """Routes that are written down: an option for every sample and slot of the space."""

    def __init__(self, space, ops, factors=None):
        self.options = [len(slot.options) for slot in space.slots]
        self.ops = ops
        self.factors = factors

    def routes(self, place, inputs):
        chosen = slice(place.slots.start, place.slots.stop)
        factors = None if self.factors is None else self.factors[:, chosen]
        return Routes(self.ops[:, chosen], factors, self.options[chosen])


class Masked(Fixed):
    """The same as weights of all operations."""

    routes = None

    def weights(self, place, inputs):
        rows = []
        for slot in place.slots:
            taken = functional.one_hot(self.ops[:, slot], self.options[slot]).float()
            if self.factors is not None:
                taken = taken * self.factors[:, slot, None]
            rows.append(taken)
        return rows


def network(name, dtype=torch.float32, affine=True):
    space = open_space(name)
    torch.manual_seed(1)
    net = space.network(SHAPE, 5, SIZES.get(name, space.usual._replace(channels=4)), affine=affine)
    with torch.no_grad():  # statistics that are not those of a new network
        net(
            torch.randn(16, *SHAPE),
            Mixture.softmax([torch.zeros(len(slot.options)) for slot in space.slots]),
        )
    return space, net.to(dtype)


def drawn(space, batch, name="routes"):
    generator = rng(5, name)
    columns = [generator.integers(len(slot.options), size=batch) for slot in space.slots]
    return torch.tensor(columns).T.contiguous()


def images(batch, dtype=torch.float32):
    torch.manual_seed(2)
    return torch.randn(batch, *SHAPE, dtype=dtype)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_as_each_sample_alone(name):
    space, net = network(name)
    net.eval()
    ops = drawn(space, 12)
    x = images(12)
    together = net(x, Fixed(space, ops))
    alone = torch.cat([net(x[k : k + 1], Fixed(space, ops[k : k + 1])) for k in range(12)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_each_sample_is_as_the_network_of_its_path(name):
    space, net = network(name)
    net.eval()
    ops = drawn(space, 4)
    x = images(4)
    scores = net(x, Fixed(space, ops))
    for k in range(4):
        path = Arch(space.name, tuple((int(op),) for op in ops[k]))
        torch.testing.assert_close(scores[k : k + 1], net(x[k : k + 1], path), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_common_path_has_the_bits_of_that_path(name, training):
    space, net = network(name)
    net.train(training)
    path = space.sample(rng(3, "path"))
    if any(not live for live in path.choice):
        path = Arch(space.name, tuple((live or (0,)) for live in path.choice))
    ops = torch.tensor([[live[0] for live in path.choice]] * 6)
    statistics = {key: value.clone() for key, value in net.state_dict().items()}
    routed = net(images(6), Fixed(space, ops))
    net.load_state_dict(statistics)
    assert torch.equal(routed, net(images(6), path))


def test_a_permuted_batch_has_permuted_answers():
    space, net = network("stacks:3:1:2")
    net.eval()
    ops = drawn(space, 10)
    x = images(10)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    scores = net(x, Fixed(space, ops))
    permuted = net(x[order], Fixed(space, ops[order]))
    torch.testing.assert_close(permuted, scores[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_routed_is_as_all_operations_and_a_mask(name):
    """Scores, and the gradients of weights, samples and factors; BN in evaluation mode."""
    space, net = network(name, torch.float64)
    net.eval()
    ops = drawn(space, 9)
    results = {}
    for kind in (Fixed, Masked):
        x = images(9, torch.float64).requires_grad_()
        factors = torch.ones(ops.shape, dtype=torch.float64, requires_grad=True)
        net.zero_grad()
        scores = net(x, kind(space, ops, factors))
        functional.cross_entropy(scores, torch.arange(9) % 5).backward()
        weights = {key: p.grad for key, p in net.named_parameters() if p.grad is not None}
        results[kind] = (scores.detach(), x.grad, factors.grad, weights)
    routed = results[Fixed]
    masked = results[Masked]
    for actual, expected in zip(routed[:3], masked[:3], strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-9)
    for key, gradient in masked[3].items():
        if key in routed[3]:
            torch.testing.assert_close(routed[3][key], gradient, rtol=1e-5, atol=1e-9)
        else:
            assert not gradient.any()  # nobody took that operation


def test_an_operation_that_nobody_takes_has_no_gradient():
    space, net = network("stacks:1:1:1")
    ops = torch.zeros(6, len(space.slots), dtype=torch.int64)
    net(images(6), Fixed(space, ops)).sum().backward()
    for key, parameter in net.named_parameters():
        owner = net.owner(key)
        if owner is not None and owner.op != 0:
            assert parameter.grad is None, key


def test_statistics_are_of_those_who_take_an_operation():
    """Statistics of the others stay as they are."""
    space, net = network("stacks:1:1:1")
    before = {key: value.clone() for key, value in net.state_dict().items()}
    ops = torch.zeros(6, len(space.slots), dtype=torch.int64)
    ops[:3] = 2
    net.train()
    net(images(6), Fixed(space, ops))
    changed = {
        net.owner(key).op
        for key, value in net.state_dict().items()
        if net.owner(key) and not torch.equal(value, before[key])
    }
    assert changed == {0, 2}


def test_one_number_a_channel_takes_running_statistics_and_leaves_them():
    """A map of 1×1 behind two reductions: one sample alone has no variance there."""
    space = open_space("stacks:2:1:1")
    torch.manual_seed(0)
    net = space.network((1, 4, 4), 3, Size(3, 2)).train()
    ops = torch.zeros(3, len(space.slots), dtype=torch.int64)
    last = len(space.slots) - 1  # the edge of the personal cell
    ops[:, last] = torch.tensor([2, 0, 0])  # the first sample is alone in sep_conv_3x3
    key = "personal.0.edges.0.sep_conv_3x3.bn2."
    before = {
        name: value.clone() for name, value in net.state_dict().items() if name.startswith(key)
    }
    scores = net(torch.randn(3, 1, 4, 4), Fixed(space, ops))
    scores.sum().backward()
    assert scores.isfinite().all()
    for name, value in before.items():
        if "running" in name or "tracked" in name:
            assert torch.equal(net.state_dict()[name], value), name
    assert all(norm.training for norm in net.modules() if isinstance(norm, nn.BatchNorm2d))


SAMPLES = [torch.tensor([3, 0]), torch.tensor([2]), torch.tensor([1, 4])]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gathering_keeps_the_layout_and_has_the_right_gradients(layout):
    state = torch.randn(5, 2, 3, 3, dtype=torch.float64).to(memory_format=layout).requires_grad_()

    def gather(state):
        return Gathered.apply(state, SAMPLES, [True, False, True])

    parts = gather(state)
    assert torch.equal(parts[0], functional.relu(state[[3, 0]]))
    assert torch.equal(parts[1], state[[2]])
    assert all(part.is_contiguous(memory_format=layout) for part in parts)
    assert torch.autograd.gradcheck(gather, state)
    assert torch.autograd.gradgradcheck(gather, state)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("are_ones", [True, False])
def test_joining_has_the_right_values_and_gradients(layout, are_ones):
    """An edge of three groups and one that all samples take."""
    parts = [*(Part(0, samples) for samples in SAMPLES), Part(1, None)]
    factors = torch.ones(5, 2, dtype=torch.float64)
    if not are_ones:
        factors = torch.rand(5, 2, dtype=torch.float64)
    whole = torch.randn(5, 2, 3, 3, dtype=torch.float64).to(memory_format=layout)
    other = torch.randn(5, 2, 3, 3, dtype=torch.float64)
    results = [*(whole[samples].to(memory_format=layout) for samples in SAMPLES), other]
    inputs = [tensor.requires_grad_() for tensor in (factors, *results)]

    def join(factors, *results):
        return Joined.apply(parts, 5, 2, factors, *results)

    by_hand = (
        whole * factors[:, 0, None, None, None] + other * factors[:, 1, None, None, None]
    ) / 2
    torch.testing.assert_close(join(*inputs), by_hand)
    assert torch.autograd.gradcheck(join, inputs)
    assert torch.autograd.gradgradcheck(join, inputs)


def draw_norms(net):
    """Statistics and factors that nothing can be mistaken for."""
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 2.0)
                nn.init.normal_(norm.bias)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_folded_operations_answer_as_their_modules_do(name, affine):
    space, net = network(name, torch.float64, affine=affine)
    net.eval()
    draw_norms(net)
    ops = drawn(space, 12)
    x = images(12, torch.float64)
    with torch.no_grad():
        by_modules = net(x, Fixed(space, ops))
        with weights_stay():
            folded = net(x, Fixed(space, ops))
            again = net(x, Fixed(space, ops))
            assert len(FOLDED.get()) > 5  # more than were taken by all samples
    torch.testing.assert_close(folded, by_modules, rtol=1e-9, atol=1e-12)
    assert torch.equal(folded, again)


def test_folding_ends_where_weights_may_change():
    space, net = network("stacks:3:1:2", torch.float64)
    net.eval()
    ops = drawn(space, 12)
    x = images(12, torch.float64)
    with torch.no_grad():
        with weights_stay():
            before = net(x, Fixed(space, ops))
        for parameter in net.parameters():
            parameter.mul_(1.5)
        with weights_stay():
            after = net(x, Fixed(space, ops))
        by_modules = net(x, Fixed(space, ops))
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, by_modules, rtol=1e-9, atol=1e-12)


def test_nothing_is_folded_in_training_or_where_gradients_are_wanted():
    space, net = network("stacks:3:1:2")
    choice = Fixed(space, drawn(space, 12))
    with weights_stay():
        net.eval()
        net(images(12), choice)
        assert FOLDED.get() == {}
        net.train()
        with torch.no_grad():
            net(images(12), choice)
        assert FOLDED.get() == {}


def test_a_common_path_keeps_its_bits_while_weights_stay():
    space, net = network("stacks:3:1:2")
    net.eval()
    path = drawn(space, 1)
    x = images(6)
    with torch.no_grad():
        by_path = net(x, Arch(space.name, tuple((op,) for op in path[0].tolist())))
        with weights_stay():
            routed = net(x, Fixed(space, path.expand(6, -1)))
    assert torch.equal(routed, by_path)


def test_a_meter_hears_of_folded_products():
    space, net = network("stacks:3:1:2")
    net.eval()
    choice = Fixed(space, drawn(space, 12))
    with torch.no_grad():
        with Meter() as of_modules:
            net(images(12), choice)
        with weights_stay(), Meter() as of_folded:
            net(images(12), choice)
    assert of_folded.macs == of_modules.macs > 0


@pytest.mark.parametrize("name", NAMES)
def test_without_gradients_answers_are_the_same(name):
    """Groups are then gathered one by one, and added up at once."""
    space, net = network(name)
    net.eval()
    ops = drawn(space, 9)
    factors = torch.rand(ops.shape)
    with_gradients = net(images(9), Fixed(space, ops, factors))
    assert with_gradients.requires_grad
    with torch.no_grad():
        assert torch.equal(net(images(9), Fixed(space, ops, factors)), with_gradients)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (torch.zeros(2, 2), "must be Routes"),
        (Routes(torch.zeros(5, 2, dtype=torch.int64), None, (9, 9)), "must be of shape"),
        (Routes(torch.full((2, 2), 9), None, (9, 9)), "must be numbers of options"),
        (Routes(torch.full((2, 2), -1), None, (9, 9)), "must be numbers of options"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(answer, words):
    class Wrong:
        def routes(self, place, inputs):
            return answer

    _, net = network("stacks:1:1:1")
    with pytest.raises(FedloomError, match=words):
        net(images(2), Wrong())

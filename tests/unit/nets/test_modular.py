import pytest
import torch
from torch import nn

from fedloom.nets.model import Model
from fedloom.nets.modular import Pool, along, block_of, blocks
from fedloom.networks import NETWORKS

IMAGE = (3, 16, 16)


def model_of(name: str, width: float = 0.125) -> Model:
    if name == "lstm":
        return Model(NETWORKS.get(name)((5,), 7, width), (), ())
    return Model(NETWORKS.get(name)(IMAGE, 4, width), (0.0,) * 3, (1.0,) * 3)


def inputs(name: str) -> torch.Tensor:
    return torch.randint(0, 7, (3, 5)) if name == "lstm" else torch.randn(3, *IMAGE)


@pytest.mark.parametrize(
    ("name", "count"),
    [("cnn", 4), ("resnet18", 10), ("vgg16", 14), ("lstm", 3), ("supernet:s2:2:3", 5)],
)
def test_blocks(name, count):
    """A convolution and its BN are one block, a residual block or a cell another."""
    assert len(blocks(model_of(name))) == count


NAMES = ("alexnet", "cnn", "darts-v2", "densenet", "resnet18", "vgg16", "lstm", "supernet:s2:2:3")


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_has_a_block(name):
    net = model_of(name)
    groups = blocks(net)
    assert {block_of(key, groups) for key in net.state_dict()} == set(range(len(groups)))


@pytest.mark.parametrize("name", NAMES)
def test_a_route_is_the_network_of_its_modules(name):
    pool = Pool([model_of(name), model_of(name)]).eval()
    x = inputs(name)
    frame = model_of(name).eval()
    route = [n % 2 for n in range(len(pool.groups))]
    weights = pool.state_dict()
    frame.load_state_dict(
        {key: weights[along(route, key, pool.groups)] for key in frame.state_dict()}
    )
    with torch.no_grad():
        torch.testing.assert_close(pool(x, route), frame(x))
        ones = [torch.ones(()) for _ in route]
        torch.testing.assert_close(pool(x, route, ones), frame(x))


@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_factors_reach_every_block(name):
    pool = Pool([model_of(name), model_of(name)]).train()
    x = inputs(name)
    factors = [torch.ones((), requires_grad=True) for _ in pool.groups]
    pool(x, [1] * len(factors), factors).square().sum().backward()
    assert all(factor.grad is not None and factor.grad.abs() > 0 for factor in factors)


def test_only_the_route_is_trained_and_counted():
    """Modules off the route get no gradient, and their running statistics stay."""
    pool = Pool([model_of("cnn"), model_of("cnn")]).train()
    x = inputs("cnn")
    before = {name: buffer.clone() for name, buffer in pool.named_buffers()}
    pool(x, [1, 0, 1, 0]).sum().backward()
    route = [1, 0, 1, 0]
    parameters_on_route = set()
    for name, _ in model_of("cnn").named_parameters():
        parameters_on_route.add(along(route, name, pool.groups))
    with_gradient = {name for name, p in pool.named_parameters() if p.grad is not None}
    assert with_gradient == parameters_on_route
    moved = set()
    for name, buffer in pool.named_buffers():
        if not torch.equal(buffer, before[name]):
            moved.add(name)
    on_route = {along(route, key, pool.groups) for key in model_of("cnn").state_dict()}
    assert moved and moved <= on_route


class Bare(nn.Module):
    """A normalisation without weights: it has buffers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4, affine=False)
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.first(x)).mean((2, 3)))


class Tied(Bare):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(super().forward(x))


class Counting(Bare):
    """A buffer of the network's own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


@pytest.mark.parametrize(("net", "count"), [(Bare, 2), (Tied, 1), (Counting, 1)])
def test_networks_of_others_are_pools_too(net, count):
    copies = [Model(net(), (0.0,) * 3, (1.0,) * 3) for _ in range(2)]
    pool = Pool(copies).eval()
    x = torch.randn(3, *IMAGE)
    assert len(pool.groups) == count
    assert {block_of(key, pool.groups) for key in copies[0].state_dict()} == set(range(count))
    with torch.no_grad():
        torch.testing.assert_close(pool(x, [1] * count), copies[1](x))
        assert not torch.allclose(pool(x, [0] * count), copies[1](x))

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.model import Model, seeded
from fedloom.networks.building import build_model
from fedloom.types import Task

TASK = Task("fedavg", {}, "image", (2, 4, 4), ("a", "b", "c"), 5, mean=(10.0, 20.0), std=(2.0, 4.0))


def weights(net: nn.Module) -> list[torch.Tensor]:
    return list(net.state_dict().values())


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def test_raw_values_are_normalised_by_channel():
    x = torch.tensor([[[[10.0, 12.0]], [[20.0, 16.0]]]])
    output = Model(nn.Identity(), [10.0, 20.0], [2.0, 4.0])(x)
    assert torch.equal(output, torch.tensor([[[[0.0, 1.0]], [[0.0, -1.0]]]]))


def test_bytes_are_numbers_too():
    x = torch.full((1, 1, 1, 2), 200, dtype=torch.uint8)
    assert Model(nn.Identity(), [100.0], [50.0])(x).tolist() == [[[[2.0, 2.0]]]]


def test_the_constants_are_no_weights():
    """They are never sent, averaged or counted, and go wherever the model goes."""
    net = Model(nn.Conv2d(2, 1, 1), [1.0, 2.0], [3.0, 4.0])
    assert set(net.state_dict()) == {"net.weight", "net.bias"}
    assert {name for name, _ in net.named_parameters()} == {"net.weight", "net.bias"}
    assert {name for name, _ in net.named_buffers()} == {"mean", "std"}
    assert net.double().mean.dtype == torch.float64


def test_an_exported_model_normalises_by_itself():
    """Raw bytes in, the same scores out, from a graph that knows nothing of this class."""
    net = build_model(TASK, "cnn", 0.25, [1.0, 2.0], [3.0, 4.0]).eval()
    x = torch.randint(
        0, 256, (3, 2, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    alone = torch.export.export(net, (x,)).module()
    assert torch.equal(alone(x), net(x))
    assert not torch.equal(
        net(x), build_model(TASK, "cnn", 0.25).eval()(x)
    )  # they do depend on the constants


def test_a_choice_goes_through_to_the_network():
    class Chosen(nn.Module):
        def forward(self, x, choice):
            return x * choice

    assert Model(Chosen(), [0.0], [1.0])(torch.ones(1, 1, 1, 1), 7).item() == 7


def test_it_says_what_its_network_is():
    assert build_model(TASK, "cnn", 0.5).architecture == "cnn:0.5"
    assert Model(nn.Identity(), [0.0], [1.0]).architecture == "Identity"


def test_the_seed_alone_decides_the_weights():
    torch.manual_seed(1)
    one = build_model(TASK, "cnn", 0.25)
    torch.manual_seed(2)
    assert equal(one, build_model(replace(TASK, method="other"), "cnn", 0.25))
    assert not equal(one, build_model(replace(TASK, seed=6), "cnn", 0.25))


def test_the_tasks_constants_or_given_ones():
    assert build_model(TASK, "cnn", 0.25).mean.flatten().tolist() == [10.0, 20.0]
    own = build_model(TASK, "cnn", 0.25, [1.0, 2.0], [3.0, 4.0])
    assert (own.mean.flatten().tolist(), own.std.flatten().tolist()) == ([1.0, 2.0], [3.0, 4.0])


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    build_model(TASK, "cnn", 0.25)
    assert torch.equal(torch.rand(4), expected)


def test_seeded_draws_are_named_and_put_back():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    with seeded(11):
        first = torch.rand(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    with seeded(11):
        assert torch.equal(torch.rand(2), first)
    with seeded(12):
        assert not torch.equal(torch.rand(2), first)
    assert torch.equal(first, torch.rand(2, generator=torch.Generator().manual_seed(11)))


def test_seeded_puts_back_after_an_error():
    before = torch.random.get_rng_state()
    with pytest.raises(KeyError), seeded(11):
        {}[torch.rand(1).item()]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_network_from_a_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes, width):\n"
        "    inputs = shape[0] * shape[1] * shape[2]\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))\n"
        "def number(shape, classes, width):\n"
        "    return 7\n"
    )
    assert build_model(TASK, f"{tmp_path}/mine.py:make", 1.0)(torch.zeros(5, 2, 4, 4)).shape == (
        5,
        3,
    )
    with pytest.raises(FedloomError, match="must return a torch module, but it returned int"):
        build_model(TASK, f"{tmp_path}/mine.py:number", 1.0)


def test_an_unknown_network_is_named():
    with pytest.raises(FedloomError, match="did you mean cnn"):
        build_model(TASK, "cn", 1.0)

"""The supernet as a network that every method can train: whole, of any size."""

import pytest
import torch

from fedloom.cost.count import parameters
from fedloom.errors import FedloomError
from fedloom.methods.spider_options import SpiderOptions
from fedloom.networks import NETWORKS, NetworkRegistry
from fedloom.spaces.mixed import supernet_model
from fedloom.testing import Toy
from fedloom.types import Task


def test_it_is_spiders():
    """0.665 M parameters with 10 classes; the same keys as the supernet that SPIDER trains."""
    net = NETWORKS.get("supernet")((3, 32, 32), 10, head="mean")
    task = Task("spider", {}, "image", (3, 32, 32), tuple("0123456789"), 0, (0.0,) * 3, (1.0,) * 3)
    spiders = supernet_model(task, SpiderOptions(head="mean")).net
    assert parameters(net) == parameters(spiders) == 665_466
    assert list(net.state_dict()) == list(spiders.state_dict())


def test_a_size_in_its_name():
    net = NETWORKS.get("supernet:s3:2:3")((1, 8, 8), 4, 0.25)
    assert (net.space.name, len(net.cells), net.size.channels) == ("darts:s3:2", 3, 4)
    assert net.arch == net.space.full()
    assert net(torch.randn(2, 1, 8, 8)).shape == (2, 4)


@pytest.mark.parametrize("size", ["s2", "s2:4", "s2:4:0", "s2:0:8", "s2:4:x", "s2:4:8:1", "s9:4:8"])
def test_a_bad_size_is_refused(size):
    with pytest.raises(FedloomError):
        NETWORKS.get(f"supernet:{size}")


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("local-adaptation", "perfedavg", "knn-per", "fedmn")
]


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedrep", *OTHERS])
def test_every_method_of_a_fixed_network_can_train_it(method):
    trace = Toy.of(method, {"network": "supernet:s2:2:3", "width": 0.125}, rounds=2).run_apart()
    assert all(client.own.figures.value is not None for client in trace.outcome.clients)
    assert not [row.refused for row in trace.rows if row.refused]


def test_only_families_have_sizes():
    with pytest.raises(FedloomError, match="cnn:3"):
        NETWORKS.get("cnn:3")


def test_spaces_are_asked_only_for_a_name_that_is_not_a_fixed_networks():
    networks = NetworkRegistry()
    networks.get("cnn")
    assert networks.is_built_in("cnn") and not networks.spaces_were_asked
    assert networks.is_built_in("darts-v2") and networks.is_built_in("supernet:s2:2:3")
    assert not networks.is_built_in("mine.py:Net") and not networks.is_built_in("elsewhere")

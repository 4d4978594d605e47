"""Ways and their costs, over samples."""

import numpy as np
import pytest
import torch

from fedloom.cost.count import macs
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.searchers import routes_taken as routes
from fedloom.searchers.guides import ContextGuide
from fedloom.searchers.routes_taken import Spread, paths_of, routes_taken, sum_along, summary_of
from fedloom.spaces import open_space
from fedloom.spaces.choice import Place
from fedloom.spaces.mixed import model_of_space
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Arch, Order, Setup


def guided(**options):
    search = Toy.of("ca-feddsnas", {"search": "random", **options}).stages[0].method
    tensors = search.init(Setup(search.task, 4), None).tensors
    run = ClientRun(search.task, "search", 1, 0, 0, "cpu", lambda: b"")
    return search, search.network(Order(0, "evaluate", tensors), samples(2), None, run).eval()


def test_linear_costs_by_hand():
    """Four samples on operations of 10, 10, 30 and 50 MACs."""
    spread = Spread.of(sum_along(np.array([[0], [0], [1], [2]]), [(10, 30, 50)]))
    assert (spread.mean, spread.most) == (25, 50)
    assert spread.std == pytest.approx(16.583124, abs=1e-6)


def test_the_mean_cost_is_the_sum_of_shares():
    """fixed_macs + Σ share · macs = macs."""
    search, net = guided()
    part = samples(40, "ways")
    result = routes_taken(net, part, search.task.labels)
    total = result["fixed_macs"]
    for edge in result["edges"]:
        total += sum(share * cost for share, cost in zip(edge["share"], edge["macs"], strict=True))
        assert sum(edge["share"]) == pytest.approx(1)
    assert total == pytest.approx(result["macs"])
    assert result["macs_max"] >= result["macs"] >= result["fixed_macs"]


def test_a_sample_costs_what_the_network_of_its_path_costs():
    """The measured MACs of the cut path, and those of the samplers."""
    search, net = guided()
    part = Samples(samples(1, "one").x, samples(1, "one").y)
    (path,) = paths_of(net, part)
    arch = Arch(search.options.stack_space.name, tuple((int(op),) for op in path))
    cut = model_of_space(
        search.task, search.options.stack_space, search.options.size, arch=arch, affine=True
    )
    result = routes_taken(net, part, search.task.labels)
    samplers = sum(p.numel() for name, p in net.guide.named_parameters() if name.endswith("weight"))
    assert result["macs"] == macs(cut, search.task.shape) + samplers
    assert result["shuffled_accuracy"] is None  # there is no other sample
    params = sum(p.numel() for p in cut.parameters()) + sum(
        p.numel() for p in net.guide.parameters()
    )
    assert result["params_used"] == params


@pytest.mark.parametrize("channels", [2, 4, 8, 16])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 4), (3, 13, 13), (1, 28, 28)])
@pytest.mark.parametrize("name", ["stacks:1:1:1", "stacks:3:1:2", "stacks:4:4:2"])
def test_samplers_are_a_small_share_of_the_expected_macs(name, shape, channels):
    """At most 15 %, where all operations are equally likely."""
    space = open_space(name)
    size = space.usual._replace(channels=channels, head="mean")
    places = [Place(number, slots) for number, slots in enumerate(space.slots_by_cell())]
    units = routes.sampler_units(space, places, shape, 10, size)
    guide = ContextGuide(space, channels, shape, places, 4.0, units=units)
    costs = routes.path_costs(space, shape, 10, size)
    network = costs.fixed_macs + sum(np.mean(row) for row in costs.macs)
    samplers = routes.macs_of_samplers(guide)
    assert samplers <= 0.15 * (network + samplers)
    if channels == 16 and shape == (1, 28, 28):
        assert units == 32  # the usual width where there is room for it


def test_shuffled_samples_take_the_ways_of_others(monkeypatch):
    search, net = guided()
    part = samples(9, "ways")
    paths = np.array([[number, number, number % 5] for number in range(9)])  # all differ
    handed_out = []

    class Noted(routes.FixedRoutes):
        def __init__(self, guided, paths):
            super().__init__(guided, paths)
            handed_out.append(paths)

    monkeypatch.setattr(routes, "FixedRoutes", Noted)
    accuracy = routes.shuffled_accuracy(net, part, paths)
    (taken,) = handed_out
    assert sorted(taken.tolist()) == paths.tolist()
    assert all(other != own for other, own in zip(taken.tolist(), paths.tolist(), strict=True))
    right = 0
    for x, y, path in zip(part.x, part.y, taken, strict=True):
        arch = Arch(search.options.stack_space.name, tuple((int(op),) for op in path))
        right += int(net.model(x.unsqueeze(0), arch).argmax() == y)
    assert accuracy == right / 9


def test_samples_that_look_alike_take_one_way():
    _, net = guided()
    x = samples(1, "x").x.expand(6, -1, -1, -1)
    result = routes_taken(net, Samples(x, torch.zeros(6, dtype=torch.int64)), ("a", "b", "c"))
    assert result["routes"]["distinct"] == 1
    assert result["routes"]["entropy"] == 0
    assert result["routes"]["top"][0]["share"] == 1
    assert result["edges"][0]["share_by_class"].keys() == {"a"}


def test_the_most_common_ways_come_first():
    space = open_space("stacks:1:1:1")
    paths = np.array([[0, 0, 0]] * 1 + [[8, 8, 4]] * 3)
    result = summary_of(paths, space)
    assert result["top"][0] == {
        "path": ["skip_connect", "skip_connect", "skip_connect"],
        "share": 0.75,
    }
    assert (result["samples"], result["distinct"]) == (4, 2)
    assert result["entropy"] == pytest.approx(0.5623351446)


def test_drawn_ways_are_not_told():
    search, net = guided(evaluate="sample:2")
    assert routes_taken(net, samples(4), search.task.labels) is None


def test_a_cut_costs_every_sample_the_same():
    search = Toy.of("feddsnas", {"search": "random"}).stages[0].method
    tensors = search.init(Setup(search.task, 4), None).tensors
    run = ClientRun(search.task, "search", 1, 0, 0, "cpu", lambda: b"")
    net = search.network(Order(0, "evaluate", tensors), samples(2), None, run).eval()
    result = search.routes(net, samples(5, "test"), search.task)
    assert result["macs"] == result["macs_max"] == macs(net, search.task.shape)
    assert result["params_used"] == sum(parameter.numel() for parameter in net.parameters())
    assert result["macs_std"] == 0 and result["shuffled_accuracy"] is None
    assert (
        result["routes"]["samples"],
        result["routes"]["distinct"],
        result["routes"]["entropy"],
    ) == (
        5,
        1,
        0,
    )
    path = [live[0] for live in Arch.from_plain(net.architecture).choice]
    names = [
        slot.options[op] for slot, op in zip(search.options.stack_space.slots, path, strict=True)
    ]
    assert result["routes"]["top"] == [{"path": names, "share": 1.0}]
    total = result["fixed_macs"] + sum(
        edge["macs"][op] for edge, op in zip(result["edges"], path, strict=True)
    )
    assert total == result["macs"]

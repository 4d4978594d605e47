"""A group of cells with their own edges: its slots, reductions, costs and refusals."""

import pytest
import torch
from torch.nn import functional

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.searchers.milenas import constant, tracking_norms, untracked
from fedloom.searchers.subspaces import draw_subspace, macs_table
from fedloom.spaces import merged, space_of
from fedloom.spaces.choice import Mixture
from fedloom.spaces.drawing import as_text
from fedloom.spaces.edges import Edges
from fedloom.spaces.groups import CellGroup
from fedloom.spaces.mixed import MixedPart, live_alpha
from fedloom.spaces.options import SpaceOptions
from fedloom.spaces.reductions import (
    reducing_positions,
    reductions,
    reductions_in_words,
    unsearched_reductions,
)
from fedloom.spaces.space import Size
from fedloom.types import Arch


def refusal(work) -> str:
    with pytest.raises(FedloomError) as caught:
        work()
    return str(caught.value)


def subspace(space: CellGroup, seed: int = 0, ops_per_edge: int = 2) -> Arch:
    table = macs_table(space, (3, 8, 8), 10, space.usual)
    return draw_subspace(space, table, ops_per_edge, None, rng(seed))


# What is chosen


def test_every_cell_has_slots_of_its_own():
    space = CellGroup()
    assert space.name == "group:full:4:4"
    assert space_of("group:full:4:4") == space
    assert len(space.slots) == 4 * 14
    assert {len(slot.options) for slot in space.slots} == {8}
    assert [space.slots[number].name for number in (0, 1, 14, 55)] == [
        "cell0.0-2",
        "cell0.1-2",
        "cell1.0-2",
        "cell3.4-5",
    ]
    assert space.usual == Size(cells=4, channels=16)
    assert CellGroup("s2", 2, 3).usual.cells == 3


def test_an_edge_is_decided_in_all_cells_together_and_nodes_keep_two_inputs():
    space = CellGroup("s2", 1, 3)
    assert space.together() == [(0, 2, 4), (1, 3, 5)]
    assert [rivals.slots for rivals in space.rivals()] == [(0, 1), (2, 3), (4, 5)]


def test_mutations_reach_every_cell():
    space = CellGroup("s2", 2, 4)
    arch = space.sample(rng(0))
    drawn = rng(1)
    changed = set()
    for _ in range(200):
        other = space.mutate(arch, drawn)
        for slot, live in enumerate(arch.choice):
            if other.choice[slot] != live:
                changed.add(slot // len(space.edges))
    assert changed == {0, 1, 2, 3}


# Where it reduces


def strides(net) -> list[int]:
    """The largest stride of every cell."""
    return [max(part.strides) for part in net.modules() if isinstance(part, Edges)]


@pytest.mark.parametrize(
    ("cells", "expected"), [(4, [1, 2]), (8, [2, 5]), (12, [4, 8]), (20, [6, 13])]
)
def test_the_map_is_halved_at_a_third_and_at_two_thirds(cells, expected):
    space = CellGroup("s2", 1, 4)
    net = space.network((3, 9, 8), 5, Size(cells, 4), arch=space.sample(rng(0)))
    assert [cell for cell, stride in enumerate(strides(net)) if stride == 2] == expected
    assert sorted(reductions(cells)) == expected
    channels = [cell.edges.channels for cell in net.cells]
    assert channels == [4] * expected[0] + [8] * (expected[1] - expected[0]) + [16] * (
        cells - expected[1]
    )


def test_every_copy_of_a_cell_has_the_edges_of_its_position():
    space = CellGroup("s3", 2, 4)
    arch = space.sample(rng(3))
    net = space.network((3, 8, 8), 5, Size(20, 2), arch=arch)
    for number, cell in enumerate(net.cells):
        first = number % 4 * len(space.edges)
        for edge in range(len(space.edges)):
            live = [space.slots[first + edge].options[op] for op in arch.choice[first + edge]]
            assert list(getattr(cell.edges, str(edge))) == live
            for name in live:
                key = f"cells.{number}.edges.{edge}.{name}.anything"
                assert net.owner(key).slot == first + edge


def test_other_positions_than_in_the_search_are_named():
    assert reducing_positions(4, 4) == {1, 2}
    assert reducing_positions(20, 4) == {1, 2}
    assert reductions_in_words(20, 4) == ""
    assert unsearched_reductions(12, 4) == [4, 8]
    assert reducing_positions(12, 4) == {0}
    assert reductions_in_words(12, 4) == (
        "cell 4 of the network's 12 reduces, but is a copy of cell 0, which did not reduce in the "
        "search; cell 8 of the network's 12 reduces, but is a copy of cell 0, which did not reduce "
        "in the search"
    )


def test_the_drawing_has_every_cell_and_names_those_that_reduce():
    space = CellGroup()
    graphs = space.graphs(space.sample(rng(0)))
    in_search = "reduces in the search"
    assert [graph.title for graph in graphs] == [
        "cell 0",
        f"cell 1 ({in_search})",
        f"cell 2 ({in_search})",
        "cell 3",
    ]
    assert as_text(space.sample(rng(0))).count("output ── 0, 1, 2, 3") == 4


# What it costs


@pytest.mark.parametrize("cells", [4, 12, 20])
@pytest.mark.parametrize("affine", [False, True])
def test_the_formula_is_the_network_built(cells, affine):
    """Activations of searched sizes and of parts stand in tests/unit/cost/test_network.py."""
    space = CellGroup("full", 2, 4)
    size = Size(cells, 4)
    for arch in (space.sample(rng(1)), subspace(space), space.full()):
        cost = space.cost((3, 9, 10), 5, arch, size, affine=affine)
        net = space.network((3, 9, 10), 5, size, arch=arch, affine=affine)
        assert (cost.params, cost.macs) == (parameters(net), macs(net, net.shape))


# A part of the supernet, mixed by α of its live operations


class Part:
    """A sub-space's network, α of its live operations, two batches."""

    def __init__(self, shape=(3, 8, 8), channels=8):
        torch.manual_seed(0)
        self.space = CellGroup("full", 2, 3)
        self.arch = subspace(self.space, seed=5)
        self.net = self.space.network(shape, 10, Size(3, channels), arch=self.arch)
        self.net.to(memory_format=torch.channels_last)
        full = {}
        for slot in self.space.slots:
            full[slot.name] = torch.randn(len(slot.options))
        self.full = full
        self.alpha = [row.requires_grad_() for row in live_alpha(full, self.arch).values()]
        self.images = torch.randn(16, *shape)
        self.labels = torch.randint(0, 10, (16,))
        self.others = torch.randn(13, *shape)
        self.labels_of_others = torch.randint(0, 10, (13,))

    def mixture(self) -> Mixture:
        return Mixture.softmax_of_live(self.alpha, self.arch, self.space.slots)

    def gradients(self, scores, labels):
        loss = functional.cross_entropy(scores, labels)
        return torch.autograd.grad(loss, [*self.net.parameters(), *self.alpha])


def test_alpha_of_live_operations():
    alpha = {"a": torch.tensor([0.1, 0.2, 0.3, 0.4]), "b": torch.tensor([5.0, 6.0, 7.0])}
    entries = live_alpha(alpha, Arch("any", ((0, 2), (1,))))
    assert list(entries) == ["a", "b"]
    torch.testing.assert_close(entries["a"], torch.tensor([0.1, 0.3]))
    torch.testing.assert_close(entries["b"], torch.tensor([6.0]))


def test_the_mixture_is_the_softmax_over_what_is_alive():
    part = Part()
    for row, live, name in zip(part.mixture().weights, part.arch.choice, part.full, strict=True):
        plain = torch.zeros(8)
        exponents = [torch.exp(part.full[name][op]) for op in live]
        for op, exponent in zip(live, exponents, strict=True):
            plain[op] = exponent / sum(exponents)
        torch.testing.assert_close(row.detach(), plain)


def test_entries_stand_in_the_order_of_the_architecture():
    slots = CellGroup("s3", 1, 1).slots
    alpha = [torch.tensor([0.0, 1.0]), torch.tensor([2.0])]
    rows = Mixture.softmax_of_live(alpha, Arch("any", ((2, 0), (1,))), slots).weights
    expected = torch.softmax(alpha[0], dim=0)
    assert rows[0].tolist() == [expected[1], 0, expected[0]]
    assert rows[1].tolist() == [0, 1, 0]


def test_a_part_gives_the_whole_supernets_scores_and_gradients(monkeypatch):
    """The whole network, with α of minus infinity where nothing is alive, computes the same."""
    monkeypatch.setattr(merged, "MOST_ELEMENTS", 0)
    part = Part()
    whole = part.space.network((3, 8, 8), 10, Size(3, 8))
    whole.to(memory_format=torch.channels_last)
    weights = whole.state_dict()
    weights.update(part.net.state_dict())
    whole.load_state_dict(weights)
    rows = []
    for row, live in zip(part.full.values(), part.arch.choice, strict=True):
        masked = torch.full((8,), -torch.inf)
        masked[list(live)] = row[list(live)]
        rows.append(masked.requires_grad_())
    expected = whole(part.images, Mixture.softmax(rows))
    scores = part.net(part.images, part.mixture())
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
    loss = functional.cross_entropy(expected, part.labels)
    of_rows = torch.autograd.grad(loss, rows)
    of_alpha = part.gradients(scores, part.labels)[-len(rows) :]
    for ours, theirs, live in zip(of_alpha, of_rows, part.arch.choice, strict=True):
        assert ours.shape == (2,)
        torch.testing.assert_close(ours, theirs[list(live)], rtol=1e-3, atol=1e-6)
    assert sum(float(row.abs().sum()) for row in of_alpha) > 1e-3


def test_both_batches_side_by_side(monkeypatch):
    """The fast path of small maps gives a part's gradients as single calls do."""
    part = Part()
    scores = part.net.forward_both(part.images, part.others, part.mixture())
    both = functional.cross_entropy(scores.train, part.labels)
    both = both + functional.cross_entropy(scores.validation, part.labels_of_others)
    parameters_and_alpha = [*part.net.parameters(), *part.alpha]
    merged_gradients = torch.autograd.grad(both, parameters_and_alpha)
    monkeypatch.setattr(merged, "MOST_ELEMENTS", 0)
    single = Part()
    assert single.net.forward_both(single.images, single.others, single.mixture()) is None
    expected = list(single.gradients(single.net(single.images, single.mixture()), single.labels))
    with constant(list(single.net.parameters())), untracked(tracking_norms(single.net)):
        loss = functional.cross_entropy(
            single.net(single.others, single.mixture()), single.labels_of_others
        )
        of_others = torch.autograd.grad(loss, single.alpha)
    first = len(expected) - len(of_others)
    for number, gradient in enumerate(of_others, first):
        expected[number] = expected[number] + gradient
    for ours, theirs in zip(merged_gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_mixed_part_derives_among_its_live_operations():
    part = Part()

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = part.net

        def forward(self, x, choice):
            return self.net(x, choice)

    alpha = live_alpha(part.full, part.arch)
    mixed = MixedPart(Holder(), {name: row.detach() for name, row in alpha.items()})
    scores = part.net(part.images, part.mixture())
    torch.testing.assert_close(mixed(part.images), scores)
    derived = Arch.from_plain(mixed.architecture)
    for chosen, live in zip(derived.choice, part.arch.choice, strict=True):
        assert set(chosen) <= set(live)


# As a method's options


def test_a_search_has_the_group_once_unless_it_says_otherwise():
    assert SpaceOptions.model_validate({"space": "group"}).size.cells == 4
    assert SpaceOptions.model_validate({"space": "group", "group": 3}).size.cells == 3
    assert SpaceOptions.model_validate({"space": "group:s2:2:5"}).size.cells == 5
    assert SpaceOptions.model_validate({"space": "group", "cells": 8}).size.cells == 8
    for other in ("darts", "darts:s2:2", "nasbench201"):
        assert SpaceOptions.model_validate({"space": other}).size.cells == 8


def test_options_that_were_kept_are_read_as_they_were():
    options = SpaceOptions.model_validate({"space": "group", "group": 2, "ops": "s3"})
    written = options.model_dump(mode="json")
    assert (written["cells"], written["group"], written["ops"]) == (2, 2, "s3")
    assert SpaceOptions.model_validate(written).model_dump(mode="json") == written


# What is refused


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: CellGroup("full", 4, 0), "a group must have 1 to 32 cells, but got 0"),
        (lambda: space_of("group:full:4:0"), "a group must have 1 to 32 cells, but got 0"),
        (lambda: space_of("group:full:4:33"), "1 to 32 cells, but got 33"),
        (lambda: space_of("group:s1:4:4"), "OPS in group:OPS:NODES:GROUP must be"),
        (lambda: CellGroup("s1", 4, 4), "an op set of a group of cells must be a known name"),
        (lambda: space_of("group:full:0:4"), "1 to 32 nodes, but got 0"),
        (
            lambda: space_of("group:full:32:4"),
            "at most 999 edges, but 4 cells of 32 nodes have 2240",
        ),
        (lambda: space_of("group:full:4"), "must look like group:OPS:NODES:GROUP"),
        (
            lambda: CellGroup().network((3, 8, 8), 10, Size(6, 4)),
            "a network of a group of 4 cells must repeat it as a whole, but got 6 cells; "
            "set cells=4, or a multiple",
        ),
        (
            lambda: CellGroup().cost((3, 8, 8), 10, CellGroup().full(), Size(6, 4)),
            "but got 6 cells",
        ),
        (
            lambda: CellGroup().network((3, 3, 8), 10, Size(4, 4)),
            "for 4 cells must be at least 4×4, but these are 3×8",
        ),
        (
            lambda: SpaceOptions.model_validate({"space": "group", "group": 0}),
            "1 to 32 cells, but got 0",
        ),
    ],
)
def test_bad_groups(work, expected):
    assert expected in refusal(work)

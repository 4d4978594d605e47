import csv
import gzip
import io
from pathlib import Path

import pytest
import torch
from torch import fx, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import space_of
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.chosen import EIGHT
from fedloom.spaces.choice import Mixture
from fedloom.spaces.edges import make
from fedloom.spaces.mixed import fresh_alpha
from fedloom.spaces.nasbench201 import NasBench201Cells
from fedloom.spaces.nasbench201.net import BenchNetwork
from fedloom.spaces.nasbench201.space import EDGES, OPS, from_string
from fedloom.spaces.ops import build_op, op_cost
from fedloom.spaces.options import SpaceOptions
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import OpId, Size
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

TABLE = Path(__file__).parents[4] / "shared/data/nas/nasbench201_reduced.csv.gz"
BENCH = NasBench201Cells()
NETS = ("darts:full:4", "darts:s2:2", "darts:s4:3", "nasbench201")


def small(name: str, shape=None, classes: int = 3, **more) -> Supernet:
    """A supernet of a few thousand weights, of the space of this name."""
    torch.manual_seed(0)
    if name == "nasbench201":
        return BENCH.network(shape or (3, 8, 4), classes, Size(1, 2), **{"affine": True, **more})
    space = space_of(name)
    assert isinstance(space, DartsCells)
    return space.network(shape or (3, 9, 11), classes, Size(3, 2), **more)


def batch(net: Supernet, size: int = 3) -> torch.Tensor:
    return torch.randn(size, *net.shape, generator=torch.Generator().manual_seed(1))


def archs(net: Supernet, count: int = 5) -> list[Arch]:
    return [net.space.sample(rng(number, "arch")) for number in range(count)]


def warmed(net: Supernet) -> Supernet:
    """With running statistics that are not 0 and 1."""
    with torch.no_grad():
        net.train()(batch(net, 8), None)
    return net


def noisily(net: nn.Module, *args) -> torch.Tensor:
    """The noise operation draws from torch's own generator."""
    torch.manual_seed(7)
    return net(*args)


# Size


@pytest.mark.parametrize(
    ("ops", "classes", "expected"),
    [("full", 10, 1_930_618), ("s2", 10, 665_466), ("s2", 100, 688_596)],
)
def test_parameters_of_the_published_size(ops, classes, expected):
    """DARTS's own code counts 1,930,618; the other two are FedNAS's and SPIDER's supernets."""
    with torch.device("meta"):
        assert parameters(DartsCells(ops, 4).network((3, 32, 32), classes, Size(8, 16))) == expected


def test_reductions_stand_at_a_third_and_two_thirds():
    assert [sorted(reductions(cells)) for cells in (1, 2, 3, 8, 20)] == [
        [0],
        [0, 1],
        [1, 2],
        [2, 5],
        [6, 13],
    ]
    assert small("darts:s2:2").cell_kinds == ["normal", "reduce", "reduce"]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 8, 4), (4, 12, 16)])
def test_scores_of_any_input(name, shape):
    net = small(name, shape, classes=5).eval()
    for arch in (None, archs(net, 1)[0]):
        assert net(batch(net), arch).shape == (3, 5)


# Path, mask, cut


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_the_cut_is_the_masked_network_bit_for_bit(name, training, memory):
    net = warmed(small(name)).to(memory_format=memory).train(training)
    for arch in [*archs(net), net.arch]:
        cut = net.cut(arch)
        assert cut.training == training
        before = {key: value.clone() for key, value in net.state_dict().items()}
        expected = noisily(net, batch(net), arch)
        output = noisily(cut, batch(net))
        assert torch.equal(expected, output)
        after = net.state_dict()
        assert all(
            torch.equal(value, after[key]) for key, value in cut.state_dict().items()
        )  # the statistics too
        net.load_state_dict(before)


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_the_cut_are_those_of_the_path(name):
    net = warmed(small(name))
    for arch in archs(net, 2):
        cut = net.cut(arch)
        noisily(net, batch(net), arch).square().sum().backward()
        noisily(cut, batch(net)).square().sum().backward()
        theirs = dict(cut.named_parameters())
        for key, parameter in net.named_parameters():
            if key in theirs and theirs[key].grad is not None:
                torch.testing.assert_close(parameter.grad, theirs[key].grad)
            else:
                assert parameter.grad is None, key
        net.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", NETS)
def test_the_cut_is_plain_torch(name):
    net = small(name)
    cut = net.cut(archs(net, 1)[0])
    assert isinstance(cut, fx.GraphModule)
    assert {
        type(module).__module__.split(".")[:2] == ["torch", "nn"]
        for module in list(cut.modules())[1:]
    } == {True}
    assert "fedloom" not in cut.code
    assert cut.architecture == archs(net, 1)[0].to_plain()
    stream = io.BytesIO()
    torch.save(cut, stream)
    stream.seek(0)
    again = torch.load(stream, weights_only=False)
    cut.eval(), again.eval()
    torch.manual_seed(0)
    expected = cut(batch(net))
    torch.manual_seed(0)
    assert torch.equal(again(batch(net)), expected)


def test_the_cut_inherits_or_starts_afresh_and_shares_nothing():
    net = small("darts:s2:2")
    arch = archs(small("darts:s2:2"), 1)[0]
    state = torch.get_rng_state()
    inherited = net.cut(arch)
    assert torch.equal(state, torch.get_rng_state())  # cutting is not a draw
    fresh = net.cut(arch, inherit=False)
    mine = net.state_dict()
    for key, value in inherited.state_dict().items():
        assert torch.equal(value, mine[key])
        assert value.data_ptr() != mine[key].data_ptr()
    assert not torch.equal(
        fresh.get_parameter("classifier.weight"), net.get_parameter("classifier.weight")
    )
    assert list(fresh.state_dict()) == list(inherited.state_dict())
    assert all(parameter.requires_grad for parameter in inherited.parameters())


def test_a_mask_of_several_operations_runs_just_these():
    net = warmed(small("darts:full:4")).eval()
    mask = Arch(
        net.arch.space, tuple(tuple(sorted({number % 8, (3 * number) % 8})) for number in range(28))
    )
    assert torch.equal(net(batch(net), mask), net.cut(mask)(batch(net)))
    assert torch.equal(net(batch(net), None), net(batch(net), net.arch))


def test_a_node_into_which_nothing_leads_is_zero():
    for name in ("darts:full:4", "nasbench201"):
        net = warmed(small(name)).eval()
        nothing = Arch(net.arch.space, ((),) * len(net.space.slots))
        none = Arch(net.arch.space, ((0,),) * len(net.space.slots))
        for arch in (nothing, none):
            expected = net(batch(net), arch)
            assert torch.equal(expected, net.cut(arch)(batch(net)))
            assert torch.equal(expected[0], expected[1])  # the image has no way in


# Who owns what


@pytest.mark.parametrize("name", NETS)
def test_every_key_has_its_owner(name):
    net = small(name)
    owners = {key: net.owner(key) for key in net.state_dict()}
    shared = set()
    shared_in_cells = set()
    owned_operations = set()
    for key, owner in owners.items():
        if owner is not None:
            owned_operations.add(net.space.slots[owner.slot].options[owner.op])
        elif key.startswith("cells."):
            shared_in_cells.add(key.split(".")[2])
        else:
            shared.add(key.split(".")[0])
    assert shared <= {"stem", "classifier", "reduce", "last"}
    assert shared_in_cells <= {"pre0", "pre1"}
    options = set()
    for slot in net.space.slots:
        options.update(slot.options)
    assert owned_operations == options & WEIGHTY[name]
    for arch in archs(net):
        expected = set()
        for key, owner in owners.items():
            if owner is None or owner.op in arch.choice[owner.slot]:
                expected.add(key)
        assert set(net.cut(arch).state_dict()) == expected


WEIGHTY = {
    "darts:full:4": set(EIGHT)
    - {"none"},  # a skip of a reduction cell has weights, pools have BN statistics
    "darts:s2:2": {"skip_connect", "sep_conv_3x3"},
    "darts:s4:3": {"sep_conv_3x3"},
    "nasbench201": {"nor_conv_1x1", "nor_conv_3x3"},
}


def test_owners_by_hand():
    net = small("darts:full:4")  # cells: normal, reduce, reduce
    assert net.owner("cells.0.edges.0.sep_conv_3x3.depth1.weight") == OpId(0, 4)
    assert net.owner("cells.0.edges.13.max_pool_3x3.bn.num_batches_tracked") == OpId(13, 1)
    assert net.owner("cells.1.edges.0.skip_connect.even.weight") == OpId(14, 3)
    assert net.owner("cells.2.edges.13.dil_conv_5x5.bn.running_mean") == OpId(27, 7)
    assert net.owner("cells.2.pre0.bn.running_mean") is net.owner("stem.0.weight") is None
    bench = small("nasbench201")
    assert bench.owner("cells.2.edges.5.nor_conv_3x3.conv.weight") == OpId(5, 3)
    assert bench.owner("reduce.0.first.conv.weight") is None


# Mixtures


def one_hot(net: Supernet, arch: Arch) -> Mixture:
    rows = [torch.zeros(len(slot.options)) for slot in net.space.slots]
    for row, live in zip(rows, arch.choice, strict=True):
        row[list(live)] = 1.0
    return Mixture(tuple(rows))


@pytest.mark.parametrize(
    "name", [name for name in NETS if "s4" not in name]
)  # the noise of 0 weight is drawn too
@pytest.mark.parametrize("training", [False, True])
def test_a_one_hot_mixture_is_the_path(name, training):
    net = warmed(small(name)).train(training)
    for arch in archs(net):
        torch.testing.assert_close(
            net(batch(net), one_hot(net, arch)), net(batch(net), arch), rtol=1e-5, atol=1e-6
        )


class Straightforward(nn.Module):
    """An operation as DARTS writes it: with its own ReLU and pooling, nothing shared."""

    def __init__(
        self, name: str, channels: int, stride: int, affine: bool, *, plain_pool: bool
    ) -> None:
        super().__init__()
        self.name = name
        self.stride = stride
        kernel = int(name[-1]) if name[-1].isdigit() else 0

        def separable(stride: int, dilation: int) -> list[nn.Module]:
            pad = dilation * (kernel // 2)
            depth = nn.Conv2d(
                channels, channels, kernel, stride, pad, dilation, groups=channels, bias=False
            )
            return [nn.ReLU(), depth, nn.Conv2d(channels, channels, 1, bias=False), norm()]

        def norm() -> nn.Module:
            return nn.BatchNorm2d(channels, affine=affine)

        layers: list[nn.Module] = []
        if name.startswith("sep_conv"):
            layers = separable(stride, 1) + separable(1, 1)
        elif name.startswith("dil_conv"):
            layers = separable(stride, 2)
        elif name.startswith("nor_conv"):
            layers = [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, stride, kernel // 2, bias=False),
                norm(),
            ]
        elif name == "max_pool_3x3":
            layers = [nn.MaxPool2d(3, stride, 1), norm()]
        elif name == "avg_pool_3x3":
            pool = nn.AvgPool2d(3, stride, 1, count_include_pad=False)
            layers = [pool] if plain_pool else [pool, norm()]
        self.layers = nn.Sequential(*layers)
        if name == "skip_connect" and stride == 2:
            half = channels // 2
            self.even, self.odd = (nn.Conv2d(channels, half, 1, 2, bias=False) for _ in range(2))
            self.bn = norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.name == "none":
            return x[:, :, :: self.stride, :: self.stride] * 0
        if self.name == "skip_connect" and self.stride == 2:
            x = functional.relu(x)
            return self.bn(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], dim=1))
        return self.layers(x)


class MixedOp(nn.Module):
    """Σ weight × operation."""

    def __init__(
        self, edge: nn.ModuleDict, names: tuple[str, ...], channels: int, stride: int, bench: bool
    ) -> None:
        super().__init__()
        self.ops = nn.ModuleList(
            Straightforward(name, channels, stride, True, plain_pool=bench) for name in names
        )
        for name, op in zip(names, self.ops, strict=True):
            if name in edge:
                theirs = list(edge[name].state_dict().values())
                op.load_state_dict(dict(zip(op.state_dict(), theirs, strict=True)))

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return sum(weight * op(x) for weight, op in zip(weights, self.ops, strict=True))


def mixed_cells(net: Supernet) -> list[list[MixedOp]]:
    cells = []
    for number, cell in enumerate(net.cells):
        edges = cell.edges
        begin = net.first_slot(number)
        bench = isinstance(net, BenchNetwork)
        cell_ops = []
        for edge, stride in enumerate(edges.strides):
            options = net.space.slots[begin + edge].options
            ops = getattr(edges, str(edge))
            cell_ops.append(MixedOp(ops, options, edges.channels, stride, bench))
        cells.append(cell_ops)
    return cells


def straightforward(
    net: Supernet, cells: list[list[MixedOp]], x: torch.Tensor, weights
) -> torch.Tensor:
    """The network's forward, with the cell's written as in the papers."""

    def nodes(number: int, states: list[torch.Tensor]) -> list[torch.Tensor]:
        pairs = EDGES if isinstance(net, BenchNetwork) else net.space.edges
        first = len(states)
        for node in range(first, pairs[-1][1] + 1):
            into = [(edge, source) for edge, (source, target) in enumerate(pairs) if target == node]
            begin = net.first_slot(number)
            states.append(
                sum(
                    cells[number][edge](states[source], weights[begin + edge])
                    for edge, source in into
                )
            )
        return states[first:]

    x = net.stem(x)
    if isinstance(net, BenchNetwork):
        for number in range(3):
            x = nodes(number, [x if number == 0 else net.reduce[number - 1](x)])[-1]
        return net.classifier(functional.relu(net.last(x)).mean((2, 3)))
    s0 = s1 = x
    for number, cell in enumerate(net.cells):
        states = [cell.pre0(functional.relu(s0)), cell.pre1(functional.relu(s1))]
        s0 = s1
        s1 = torch.cat(nodes(number, states), dim=1)
    return net.classifier(s1.mean((2, 3)))


@pytest.mark.parametrize("name", ["darts:full:4", "darts:s1:4", "darts:s3:2", "nasbench201"])
@pytest.mark.parametrize("training", [False, True])
def test_the_mixture_is_the_straightforward_one(name, training):
    net = warmed(small(name, (3, 8, 8), affine=True)).train(training)
    cells = mixed_cells(net)
    for ops in cells:
        nn.ModuleList(ops).train(training)
    generator = torch.Generator().manual_seed(2)
    alpha = []
    for slot in net.space.slots:
        row = torch.randn(len(slot.options), generator=generator)
        alpha.append(row.requires_grad_())
    shared = []
    owned = []
    for key, parameter in net.named_parameters():
        if net.owner(key) is None:
            shared.append(parameter)
        else:
            owned.append(parameter)
    owned_by_separate_operations = []
    for ops in cells:
        owned_by_separate_operations += nn.ModuleList(ops).parameters()
    x = batch(net, 4)
    output = net(x, Mixture.softmax(alpha))
    expected = straightforward(net, cells, x, [torch.softmax(row, dim=0) for row in alpha])
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    ours = gradients_of(output, [*alpha, *shared, *owned])
    theirs = gradients_of(expected, [*alpha, *shared, *owned_by_separate_operations])
    close = {"rtol": 1e-4, "atol": 1e-5}
    rows = len(alpha)
    for gradient, other in zip(ours[:rows], theirs[:rows], strict=True):
        assert (gradient is None) == (other is None or not other.any())
        if gradient is not None:
            torch.testing.assert_close(gradient, other, **close)
    for gradient, other in zip(ours[rows:], theirs[rows:], strict=True):
        torch.testing.assert_close(gradient, other, **close)


def gradients_of(output, inputs):
    return torch.autograd.grad(output.square().mean(), inputs, allow_unused=True)


def test_the_mixture_does_not_depend_on_the_memory_format():
    """torch's channels-last BN once read an operation's weight beyond its only element."""
    for affine in (False, True):
        net = warmed(small("darts:full:4", affine=affine)).eval()
        weights = Mixture.softmax([torch.arange(len(slot.options)) / 8 for slot in net.space.slots])
        expected = net(batch(net), weights)
        output = net.to(memory_format=torch.channels_last)(batch(net), weights)
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


# Costs


@pytest.mark.parametrize("name", sorted({*EIGHT, *OPS, "noise"}))
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(8, 8), (9, 11), (7, 4), (1, 1)])
@pytest.mark.parametrize("affine", [False, True])
def test_the_cost_of_an_operation(name, stride, size, affine):
    channels = 6
    op = build_op(name, channels, stride, size, affine=affine)
    cost = op_cost(name, channels, stride, size, affine=affine)
    if op is None:
        assert cost == (0, 0, 0)
        return
    assert parameters(op) == cost.params
    taken = (
        make(torch.randn(1, channels, *size), op.takes, stride)
        if op.takes != "raw"
        else torch.randn(1, channels, *size)
    )
    assert op.eval()(taken).shape[2:] == (-(-size[0] // stride), -(-size[1] // stride))
    assert macs(op, tuple(taken.shape[1:])) == cost.macs
    with FlopCounterMode(display=False) as oracle:
        op(taken)
    assert oracle.get_total_flops() == 2 * cost.macs


@pytest.mark.skipif(not TABLE.exists(), reason=f"{TABLE} is absent")
def test_nasbench201_agrees_with_the_published_table():
    """Five built and metered; `test_network.py` has the formula for hundreds."""
    with gzip.open(TABLE, "rt") as file:
        rows = list(csv.DictReader(file))
    for number in rng(0, "rows").choice(len(rows), size=5, replace=False):
        row = rows[int(number)]
        net = BENCH.network(
            (3, 32, 32), 10, BENCH.usual, arch=from_string(row["arch_str"]), affine=True
        )
        assert parameters(net) / 1e6 == pytest.approx(float(row["cifar10_params_M"]), rel=1e-4)
        assert macs(net, (3, 32, 32)) / 1e6 == pytest.approx(
            float(row["cifar10_flops_M"]), rel=1e-4
        )


# What is refused


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: DartsCells().network((3, 3, 32), 10, Size(8, 16)),
            "for 8 cells must be at least 4×4, but these are 3×32",
        ),
        (
            lambda: DartsCells().network((3, 1, 1), 10, Size(1, 16)),
            "for 1 cells must be at least 2×2",
        ),
        (
            lambda: DartsCells().network((3, 8, 8), 10, Size(0, 16)),
            "1 to 1000 cells and 1 to 65536 channels, but got 0 and 16",
        ),
        (lambda: DartsCells().network((3, 8, 8), 10, Size(8, 0)), "channels, but got 8 and 0"),
        (
            lambda: BENCH.network((3, 2, 8), 10, BENCH.usual),
            "sides divisible by 4, but these are 2×8",
        ),
        (
            lambda: BENCH.network((1, 30, 30), 10, BENCH.usual),
            "sides divisible by 4, but these are 30×30",
        ),
        (lambda: BENCH.network((3, 8, 8), 10, Size(0, 16)), "1 to 1000 cells"),
        (lambda: BENCH.network((3, 8, 8), 10, Size(5, 0)), "channels, but got 5 and 0"),
        (
            lambda: DartsCells().network((3, 8, 8), 10, Size(8, 16), arch=BENCH.full()),
            "must be of darts:full:4",
        ),
        (
            lambda: BENCH.network((3, 8, 8), 10, BENCH.usual, arch=DartsCells().full()),
            "must be of nasbench201 with 6 slots",
        ),
        (
            lambda: small("darts:s2:2").cut(DartsCells("s2", 3).full()),
            "must be of darts:s2:2 with 10 slots",
        ),
        (
            lambda: small("darts:s2:2").cut(Arch("darts:s2:2", ((2,),) * 10)),
            "slot normal.0-2 must choose among 0 skip",
        ),
    ],
)
def test_refusals(make, expected):
    with pytest.raises(FedloomError) as caught:
        make()
    assert expected in str(caught.value)


def test_the_smallest_networks():
    for cells in (1, 2, 3):
        net = DartsCells("full", 1).network((1, 4, 4), 2, Size(cells, 1))
        assert net.eval()(torch.zeros(1, 1, 4, 4)).shape == (1, 2)


def test_what_was_cut_away_cannot_be_cut_again():
    net = small("darts:s2:2")
    first, second = archs(net, 2)
    with pytest.raises(FedloomError, match="it names operations that were removed before"):
        net.smaller(first).cut(second)
    net.smaller(first).cut(first)


def test_alphas_names_sort_as_the_slots_for_any_number_of_nodes():
    options = SpaceOptions(ops="s2", nodes=9)
    alpha = fresh_alpha(options, 0)
    assert len(alpha) > 100 and list(alpha) == sorted(alpha)

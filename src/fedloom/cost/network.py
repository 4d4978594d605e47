"""The cost of a whole network of cells by formula, in a millisecond or two and without building it.

Activations are the elements of every tensor that one sample's forward pass through the cut network makes: what its
operations make, the ReLU and the pools of each state once however many operations want them, the sums of nodes and
their concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedloom.spaces import Slot, space_of
from fedloom.spaces.cells.space import KINDS, CellSpace
from fedloom.spaces.nasbench201.space import EDGES
from fedloom.spaces.ops import Cost, area, conv_cost, op_cost, reduce_cost
from fedloom.spaces.supernet import STEM_FACTOR, reductions
from fedloom.types import Arch

Size = tuple[int, int]


def network_cost(
    shape: tuple[int, ...], classes: int, arch: Arch, *, cells: int, channels: int, affine: bool
) -> Cost:  # fmt: skip
    """Of what `CellNetwork` or `BenchNetwork` would build with the same arguments."""
    space = space_of(arch.space)
    space.check(arch)
    if isinstance(space, CellSpace):
        return total(darts_parts(shape, classes, space, arch, cells, channels, affine))
    return total(bench_parts(shape, classes, space.slots, arch, cells, channels, affine))


def total(costs: Iterable[Cost]) -> Cost:
    return Cost(*(sum(column) for column in zip(Cost(), *costs, strict=True)))


def darts_parts(
    shape: tuple[int, ...], classes: int, space: CellSpace, arch: Arch, cells: int, channels: int, affine: bool
) -> Iterable[Cost]:
    stem, sizes = STEM_FACTOR * channels, ((shape[1], shape[2]),) * 2
    yield conv_cost(shape[0], stem, 3, 1, sizes[0], True)
    before = (stem, stem)
    for cell in range(cells):
        kind = "reduce" if cell in reductions(cells) else "normal"
        channels = channels * 2 if kind == "reduce" else channels
        yield preprocessing(before, channels, sizes, affine)
        begin, count = KINDS.index(kind) * len(space.edges), len(space.edges)
        strides = [2 if kind == "reduce" and source < 2 else 1 for source, _ in space.edges]
        slots, live = space.slots[begin : begin + count], arch.choice[begin : begin + count]
        edges = Edges(space.edges, slots, live, strides, channels, sizes[1], affine)
        yield edges.cost()
        before, sizes = (before[1], space.nodes * channels), (sizes[1], edges.out)
        yield Cost(activations=before[1] * area(edges.out, 1))
    yield classifier(before[1], classes)


def preprocessing(before: tuple[int, int], channels: int, sizes: tuple[Size, Size], affine: bool) -> Cost:
    """A cell's two inputs, brought to its channels and size."""
    relus = Cost(activations=before[0] * area(sizes[0], 1) + before[1] * area(sizes[1], 1))
    same = sizes[0] == sizes[1]
    first = (
        conv_cost(before[0], channels, 1, 1, sizes[0], affine)
        if same
        else reduce_cost(before[0], channels, sizes[0], affine)
    )
    return total([relus, first, conv_cost(before[1], channels, 1, 1, sizes[1], affine)])


def classifier(channels: int, classes: int) -> Cost:
    """Mean over the map, then a linear layer with a bias."""
    return Cost((channels + 1) * classes, channels * classes, channels + classes)


def bench_parts(
    shape: tuple[int, ...], classes: int, slots: Sequence[Slot], arch: Arch, cells: int, channels: int, affine: bool
) -> Iterable[Cost]:
    size = (shape[1], shape[2])
    yield conv_cost(shape[0], channels, 3, 1, size, True)
    for stage in range(3):
        if stage:
            yield residual(channels, size, affine)
            channels, size = 2 * channels, (size[0] // 2, size[1] // 2)
        cell = Edges(EDGES, slots, arch.choice, [1] * len(EDGES), channels, size, affine, plain_pool=True).cost()
        yield from [cell] * cells
    yield Cost(2 * channels, 0, 2 * channels * area(size, 1))  # the last BN and its ReLU
    yield classifier(channels, classes)


def residual(inputs: int, size: Size, affine: bool) -> Cost:
    """Between NAS-Bench-201's stages: two convolutions, and a pooled 1×1 shortcut."""
    outputs, out = 2 * inputs, area(size, 2)
    shortcut = Cost(inputs * outputs, inputs * outputs * out, inputs * out + outputs * out)
    others = Cost(activations=inputs * area(size, 1) + 2 * outputs * out)  # two ReLUs and the sum
    halved = (size[0] // 2, size[1] // 2)
    first, second = conv_cost(inputs, outputs, 3, 2, size, affine), conv_cost(outputs, outputs, 3, 1, halved, affine)
    return total([first, second, shortcut, others])


@dataclass(frozen=True)
class Edges:
    """The edges of one cell; the arguments of `fedloom.spaces.edges.Edges`."""

    pairs: Sequence[tuple[int, int]]
    slots: Sequence[Slot]
    live: Sequence[Sequence[int]]
    strides: Sequence[int]
    channels: int
    size: Size
    affine: bool
    plain_pool: bool = False  # NAS-Bench-201's pooling has no BN

    @property
    def out(self) -> Size:
        stride = max(self.strides)
        return -(-self.size[0] // stride), -(-self.size[1] // stride)

    def cost(self) -> Cost:
        made: dict[tuple[int, str], int] = {}  # what is taken of a source, once
        terms = dict.fromkeys((target for _, target in self.pairs), 0)
        costs = []
        for edge, (source, target) in enumerate(self.pairs):
            for name in (self.slots[edge].options[number] for number in self.live[edge]):
                if name != "none":
                    terms[target] += 1
                    costs.append(self.op(name, edge, source, made))
        sums = sum(abs(count - 1) for count in terms.values())  # a node into which nothing leads is a map of zeros
        return total([*costs, Cost(activations=sum(made.values()) + sums * self.channels * area(self.out, 1))])

    def op(self, name: str, edge: int, source: int, made: dict[tuple[int, str], int]) -> Cost:
        stride = self.strides[edge]
        size = self.size if stride > 1 or max(self.strides) == 1 else self.out
        cost = op_cost(name, self.channels, stride, size, self.affine)
        pooled = self.channels * area(size, stride)
        if "pool" in name:
            made[source, name] = pooled
            return Cost() if self.plain_pool else cost._replace(activations=cost.activations - pooled)
        if "conv" in name or (name == "skip_connect" and stride > 1):
            made[source, "relu"] = self.channels * area(size, 1)
        return cost

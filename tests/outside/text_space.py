"""A space for text: every layer chooses among operations that mix neighbouring symbols."""

import torch
from torch import nn

from fedloom.spaces.choice import Place, part_of
from fedloom.spaces.edges import add
from fedloom.spaces.ops import scaled
from fedloom.spaces.space import Cost, OpId, Size, Slot, Space, total
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

KERNELS = {"look1": 1, "look3": 3}
OPTIONS = ("none", *KERNELS)


class Look(nn.Module):
    """A convolution over the symbols' vectors [n, channels, symbols]."""

    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel, padding=kernel // 2, bias=False)

    def forward(self, x, scale=None):
        return scaled(torch.tanh(self.conv(x)), scale)


class Reader(Supernet):
    """`size.channels` numbers a symbol, `size.cells` layers, the slots in turns."""

    def __init__(self, space, shape, classes, size, arch, affine):
        super().__init__(space, shape, classes, size, arch, affine)
        self.embedding = nn.Embedding(classes, size.channels)
        self.layers = nn.ModuleList()
        for number in range(size.cells):
            layer = nn.ModuleDict()
            for op in self.arch.choice[number % 2]:
                if OPTIONS[op] in KERNELS:
                    layer[OPTIONS[op]] = Look(size.channels, KERNELS[OPTIONS[op]])
            self.layers.append(layer)
        self.classifier = nn.Linear(size.channels, classes)

    def flow(self, run, x, choice):
        x = run(embedded, self.embedding, x)
        for number, layer in enumerate(self.layers):
            slot = number % 2
            scales, live = part_of(choice, Place(number, range(slot, slot + 1)), (x,))
            terms = [x]
            for op, name in enumerate(OPTIONS):
                if name in layer and (live is None or op in live[0]):
                    terms.append(run(layer[name], x, None if scales is None else scales[0][op]))
            x = run(add, *terms)
        return run(self.classifier, run(last, x))

    def owner(self, key):
        parts = key.split(".")
        if parts[0] != "layers":
            return None
        return OpId(int(parts[1]) % 2, OPTIONS.index(parts[2]))


def embedded(embedding, x):
    return embedding(x.long()).transpose(1, 2)


def last(x):
    return x.mean(2)


class Texts(Space):
    """Layers over symbols. For text."""

    kinds = ("text",)
    usual = Size(cells=2, channels=8)
    slots = (Slot("first", OPTIONS), Slot("second", OPTIONS))

    def bare(self):
        return Arch(self.name, ((), ()))

    def sample(self, rng):
        return Arch(self.name, tuple((int(op),) for op in rng.integers(len(OPTIONS), size=2)))

    def mutate(self, arch, rng):
        slot = int(rng.integers(2))
        step = int(rng.integers(1, len(OPTIONS)))
        choice = list(arch.choice)
        choice[slot] = ((choice[slot][0] + step) % len(OPTIONS),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength):
        return Arch(self.name, tuple((int(row.argmax()),) for row in strength))

    def network(self, shape, classes, size, *, arch=None, affine=False):
        return Reader(self, shape, classes, size, arch, affine)

    def cost(self, shape, classes, arch, size, *, affine=False):
        channels = size.channels
        symbols = shape[0]
        costs = [Cost(params=classes * channels, activations=channels * symbols)]
        for number in range(size.cells):
            for op in arch.choice[number % 2]:
                if OPTIONS[op] in KERNELS:
                    weights = channels * channels * KERNELS[OPTIONS[op]]
                    costs.append(
                        Cost(weights, weights * symbols, 3 * channels * symbols)
                    )  # conv, tanh, sum
        costs.append(Cost((channels + 1) * classes, channels * classes, channels + classes))
        return total(costs)

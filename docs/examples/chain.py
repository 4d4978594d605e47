"""A chain: every layer is one of three operations. A complete search space in one file."""

from dataclasses import dataclass

from pydantic import Field
from torch import nn

from fedloom.options import Options
from fedloom.spaces.choice import Place, part_of
from fedloom.spaces.edges import add, pooled
from fedloom.spaces.ops import Step, scaled
from fedloom.spaces.space import Cost, OpId, Size, Slot, Space, total
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch

KERNELS = {"conv1": 1, "conv3": 3}
OPTIONS = ("skip", *KERNELS)


class Operation(nn.Module):
    """A convolution and a ReLU, or nothing at all, times the weight that a mixture gives it."""

    def __init__(self, name, channels):
        super().__init__()
        self.name = name
        self.layer = nn.Identity()
        if name in KERNELS:
            kernel = KERNELS[name]
            self.layer = nn.Sequential(
                nn.Conv2d(channels, channels, kernel, padding=kernel // 2), nn.ReLU()
            )

    def forward(self, x, scale=None):
        return scaled(self.layer(x), scale)

    def step(self, channels):
        """Its line in a latency table; None: it takes no time."""
        if self.name not in KERNELS:
            return None
        return Step(self.name, stride=1, outputs=channels)


class ChainNetwork(Supernet):
    """The layers of the chain, repeated `size.cells` times; all copies share the space's slots."""

    def __init__(self, space, shape, classes, size, arch, affine):
        super().__init__(space, shape, classes, size, arch, affine)
        self.stem = nn.Conv2d(shape[0], size.channels, 3, padding=1)
        self.layers = nn.ModuleList()
        for number in range(size.cells * space.depth):
            slot = number % space.depth
            names = [OPTIONS[op] for op in self.arch.choice[slot]]
            self.layers.append(
                nn.ModuleDict({name: Operation(name, size.channels) for name in names})
            )
        self.classifier = nn.Linear(size.channels, classes)

    def flow(self, run, x, choice):
        x = run(self.stem, x)
        for number, layer in enumerate(self.layers):
            slot = number % self.space.depth
            scales, live = part_of(choice, Place(number, range(slot, slot + 1)), (x,))
            terms = []
            for op, name in enumerate(OPTIONS):
                if name in layer and (live is None or op in live[0]):
                    terms.append(run(layer[name], x, None if scales is None else scales[0][op]))
            x = run(add, *terms)
        return run(self.classifier, run(pooled, x))

    def owner(self, key):
        parts = key.split(".")  # layers.NUMBER.OPERATION.…
        if parts[0] != "layers":
            return None
        return OpId(int(parts[1]) % self.space.depth, OPTIONS.index(parts[2]))


class ChainParameters(Options):
    depth: int = Field(3, ge=1, le=100, description="layers of the chain")


@dataclass(frozen=True)
class Chain(Space):
    """A chain of layers, each a 1×1 or 3×3 convolution or nothing."""

    depth: int = 3
    schema = ChainParameters
    usual = Size(cells=2, channels=8)

    @property
    def slots(self):
        return tuple(Slot(f"layer.{number}", OPTIONS) for number in range(self.depth))

    def sample(self, rng):
        return Arch(self.name, tuple((int(rng.integers(len(OPTIONS))),) for _ in range(self.depth)))

    def mutate(self, arch, rng):
        slot = int(rng.integers(self.depth))
        others = [op for op in range(len(OPTIONS)) if (op,) != arch.choice[slot]]
        choice = list(arch.choice)
        choice[slot] = (int(rng.choice(others)),)
        return Arch(self.name, tuple(choice))

    def derive(self, strength):
        return Arch(self.name, tuple((int(row.argmax()),) for row in strength))

    def network(self, shape, classes, size, *, arch=None, affine=False):
        return ChainNetwork(self, shape, classes, size, arch, affine)

    def cost(self, shape, classes, arch, size, *, affine=False):
        channels = size.channels
        pixels = shape[1] * shape[2]
        costs = [convolution(shape[0], channels, 3, pixels)]
        for live in size.cells * arch.choice:
            for op in live:
                if OPTIONS[op] in KERNELS:
                    costs.append(convolution(channels, channels, KERNELS[OPTIONS[op]], pixels))
                    costs.append(Cost(activations=channels * pixels))  # its ReLU
            sums = max(0, len(live) - 1)
            costs.append(Cost(activations=sums * channels * pixels))
        costs.append(
            Cost((channels + 1) * classes, channels * classes, channels + classes)
        )  # mean and classifier
        return total(costs)


def convolution(inputs, outputs, kernel, pixels):
    weights = inputs * outputs * kernel**2
    return Cost(params=weights + outputs, macs=weights * pixels, activations=outputs * pixels)

"""What FedorAS asks of a chain beyond what other methods do.

It has a size of its own, every operation has a cost, and its network can be run layer by layer.
"""

from functools import cache

from fedloom.spaces.cost_table import CostTable, OpCost
from fedloom.spaces.edges import add, now, pooled
from fedloom.spaces.paths import Passing, PathNetwork, is_live, scale_of
from fedloom.spaces.space import Size
from fedloom.types import Arch


class Sized:
    """In front of the example's chain, or of a faulty one."""

    has_own_size = True
    usual = Size(cells=1, channels=2)

    def network(self, shape, classes, size, *, arch=None, affine=False):
        net = super().network(shape, classes, size, arch=arch, affine=affine)
        net.__class__ = by_layers(type(net))
        return net

    def cost_table(self, shape, classes, size):
        nothing = ((0,),) * self.depth  # the first option of a layer costs nothing
        fixed = self.cost(shape, classes, Arch(self.name, nothing), size)
        rows = []
        for number, slot in enumerate(self.slots):
            row = []
            for op in range(len(slot.options)):
                choice = (*nothing[:number], (op,), *nothing[number + 1 :])
                row.append(
                    op_cost(self.cost(shape, classes, Arch(self.name, choice), size).minus(fixed))
                )
            rows.append(tuple(row))
        return CostTable(op_cost(fixed), tuple(rows))


def op_cost(cost):
    return OpCost(cost.params, cost.macs, cost.macs, cost.activations)


class ByLayers(PathNetwork):
    """How the example's network is run layer by layer; one turn of its cells is all there is."""

    def begin(self, x, run=now):
        return Passing(run(self.stem, x))

    def through(self, number, part, state, run=now):
        layer = self.layers[number]
        terms = []
        for op, name in enumerate(self.space.slots[number].options):
            if name in layer and is_live(part, op):
                terms.append(run(layer[name], state.entry, scale_of(part, op)))
        return Passing(run(add, *terms))

    def finish(self, state, run=now):
        return run(self.classifier, run(pooled, state.entry))


@cache
def by_layers(network):
    return type(f"{network.__name__}ByLayers", (network, ByLayers), {})

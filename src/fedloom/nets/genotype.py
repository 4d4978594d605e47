"""Published genotypes as fixed networks, to train as they are."""

from fedloom.nets.supernet import CellNetwork
from fedloom.spaces.cells import DARTS_V2, CellSpace, from_genotype

CELLS, CHANNELS = 8, 16


def darts_v2(shape: tuple[int, ...], classes: int, width: float = 1.0) -> CellNetwork:
    """The published DARTS-V2 cells (Liu et al. 2019, found on CIFAR-10): 8 cells, 16 × width channels."""
    space = CellSpace("full", 4)
    arch, channels = from_genotype(DARTS_V2, space), max(1, round(CHANNELS * width))
    return CellNetwork(shape, classes, space, cells=CELLS, channels=channels, arch=arch, affine=True)

"""The complete space of DARTS cells, with its networks that can be trained by name."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.spaces.cells.space import CellSpace
from fedloom.spaces.cells.whole import WholeCells


@dataclass(frozen=True)
class DartsCells(CellSpace, WholeCells):
    __doc__ = CellSpace.__doc__
    networks = {
        "darts-v2": "fedloom.spaces.cells.networks:darts_v2",
        "supernet": "fedloom.spaces.cells.networks:supernet",
    }
    sized_networks = {"supernet": "fedloom.spaces.cells.networks:sized_supernet"}

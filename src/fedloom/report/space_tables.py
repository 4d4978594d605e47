"""A space and the costs of its operations: as a table, a text drawing, or a JSON object."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from fedloom.report.tables import plain_table
from fedloom.spaces.cost_table import CostTable, OpCost
from fedloom.spaces.drawing import as_text
from fedloom.spaces.space import Slot, Space
from fedloom.types import Json


@dataclass(frozen=True)
class ShownSpace:
    """What `fedloom space show` prints: a space, and its costs for samples of this shape."""

    space: Space
    shape: tuple[int, ...]
    classes: int
    costs: CostTable

    def to_json(self) -> Json:
        costs = self.costs
        layers = []
        for slot, row in zip(self.space.slots, costs.rows, strict=True):
            layers.append({"ops": ops_json(slot, row)})
        return {
            "params": costs.everything("params"),
            "fixed_params": costs.fixed.params,
            "macs": {"fixed": costs.fixed.macs, "max": costs.dearest("macs")},
            "macs_paper": {"fixed": costs.fixed.macs_paper, "max": costs.dearest("macs_paper")},
            "layers": layers,
        }

    def table(self) -> None:
        """Print the costs, and a drawing of everything that can be chosen."""
        console = Console(markup=False, highlight=False)
        console.print(self.costs_table())
        console.print(as_text(self.space.full()))

    def costs_table(self) -> Table:
        sides = "×".join(str(side) for side in self.shape)
        title = f"{self.space.title}, samples of {sides}, {self.classes} classes"
        params = f"{self.costs.everything('params'):,} parameters in all"
        paths = f"a path has {self.costs.cheapest('macs'):,} to {self.costs.dearest('macs'):,} MACs"
        caption = f"{params}; {paths}"
        table = plain_table(title, caption, ("layer ", "op ", "params ", "MACs ", "as the paper's"))
        table.add_row("fixed ", "", *figures(self.costs.fixed))
        for slot, row in zip(self.space.slots, self.costs.rows, strict=True):
            name = slot.name
            for option, cost in zip(slot.options, row, strict=True):
                table.add_row(f"{name} ", f"{option} ", *figures(cost))
                name = ""  # only the first operation's row names the layer
        return table


def ops_json(slot: Slot, row: tuple[OpCost, ...]) -> list[Json]:
    ops: list[Json] = []
    for option, cost in zip(slot.options, row, strict=True):
        costs = {"params": cost.params, "macs": cost.macs, "macs_paper": cost.macs_paper}
        ops.append({"op": option, **costs})
    return ops


def figures(cost: OpCost) -> tuple[str, str, str]:
    return f"{cost.params:,} ", f"{cost.macs:,} ", f"{cost.macs_paper:,}"

"""`fedloom run` without a method: a personal search over clients of real digits.

It takes about a minute. Eight clients hold scikit-learn's handwritten digits in very different
shares. FedNAS finds each of them a network of its own; beside it, on the same split, stand the same
search with random decisions (its control) and a plain CNN of as many parameters, trained by each
alone, by all together, and together with a fine-tuned copy for each.

The two learning rates were chosen on validation data (docs/results/fednas.md); the size is what
fits into a minute. SPIDER shows no larger personal gain in it (docs/results/spider.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.config.models import Experiment, validated
from fedloom.records.plan import Plan
from fedloom.runs.comparison import Comparison
from fedloom.runs.results import Run
from fedloom.spaces.drawing import as_text
from fedloom.types import Arch, Json

SIZE = "personal=true,ops=s2,cells=3,channels=8,nodes=2,epochs=1,batch=32,lr=0.025,alpha_lr=0.003"
SEARCH = f"fednas:{SIZE}"
CONTROL = f"fednas:random,{SIZE}"
METHODS = (SEARCH, CONTROL, "local", "fedavg", "local-adaptation")
SETTING = {"name": "digits", "clients": 8, "partition": "dirichlet:0.2"}


@dataclass(frozen=True)
class Demo:
    comparison: Comparison

    def to_json(self) -> Json:
        return self.comparison.to_json()

    def table(self) -> None:
        """Every client's network, the comparison, what it says, and a cell to look at."""
        search = self.comparison.runs[0]
        search.table()
        self.comparison.table()
        print(sentence(self.comparison))
        print(f"\nThe cells of the client with the most samples:\n{largest_clients_cells(search)}")
        page = self.comparison.path / "report.html"
        print(f"\nAll of it on a page to look at, every client's cells drawn: {page}")
        print("next: fedloom run spider --help, or README.md, the next five minutes")


def plan(tree: Mapping[str, Any]) -> Plan:
    """The demo; flags such as --rounds or --seed change it."""
    seed = validated(Experiment, tree).seed
    tree = {**tree, "data": {**SETTING, **tree.get("data", {})}}
    names = {SEARCH: "fednas", CONTROL: "fednas:random"}
    return Plan(METHODS, (seed,), {}, tree, match_params=True, names=names)


def sentence(comparison: Comparison) -> str:
    """What the search gained and what it did not, from the numbers."""
    percents = [100 * (row.figure.mean or 0.0) for row in comparison.rows]
    search, control, alone, shared, adapted = percents  # in the order of METHODS
    return (
        f"The search found networks of {search:.1f} % mean accuracy. "
        f"It {verdict(search, control)} its random control ({control:.1f} %), "
        f"{verdict(search, alone)} a plain CNN of as many parameters trained alone "
        f"({alone:.1f} %), "
        f"{verdict(search, shared)} FedAvg ({shared:.1f} %) "
        f"and {verdict(search, adapted)} FedAvg with fine-tuning ({adapted:.1f} %). "
        "One seed is an example, not evidence: see docs/results/fednas.md."
    )


def verdict(search: float, other: float) -> str:
    gap = round(search - other, 1)
    if gap > 0:
        return f"gained {gap:.1f} points over"
    if gap < 0:
        return f"lost {-gap:.1f} points to"
    return "equalled"


def largest_clients_cells(run: Run) -> str:
    largest = max(run.clients, key=lambda client: client.samples)
    return as_text(Arch.from_plain(largest.architecture))

"""`fedloom run` without a method: a personal search over clients of real digits.

It takes about half a minute on two idle cores. Eight clients hold scikit-learn's handwritten digits
in very different shares. They search a network together (FedNAS), train it together, and each
adapts it at home; beside it, on the same split, stand the same with a network by chance (its
control) and a plain CNN of as many parameters, trained by each alone, by all together, and together
with a fine-tuned copy for each.

How a search finishes, its batches, the rounds and all learning rates were chosen on validation
data (docs/results/demo.md); the size is what fits into the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.config.models import Experiment, validated
from fedloom.records.comparison import MethodRow
from fedloom.records.plan import Plan
from fedloom.runs.comparison import Comparison
from fedloom.runs.results import Run
from fedloom.spaces import SMALL
from fedloom.spaces.drawing import as_text
from fedloom.types import Arch, Json

SIZE = f"space={SMALL},cells=3,channels=8"
TRAINING = "epochs=1,batch=32,lr=0.1,alpha_lr=0.003"
OPTIONS = f"personal=true,finish=adapt,search_share=0.25,{SIZE},{TRAINING}"
SEARCH = f"fednas:{OPTIONS}"
CONTROL = f"fednas:random,{OPTIONS}"
ALONE = "local:lr=0.1"
SHARED = "fedavg:lr=0.1"
ADAPTED = "local-adaptation:lr=0.1"
METHODS = (SEARCH, CONTROL, ALONE, SHARED, ADAPTED)
NAMES = {
    SEARCH: "fednas",
    CONTROL: "fednas:random",
    ALONE: "local",
    SHARED: "fedavg",
    ADAPTED: "local-adaptation",
}
SETTING = {"name": "digits", "clients": 8, "partition": "dirichlet:0.2"}
BUDGET = {"rounds": 12}
RHYTHM = {"every": 2}  # rounds: evaluating takes as long as training a CNN of this size


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
    data = {**SETTING, **tree.get("data", {})}
    budget = {**BUDGET, **tree.get("budget", {})}
    evaluate = {**RHYTHM, **tree.get("evaluate", {})}
    tree = {**tree, "data": data, "budget": budget, "evaluate": evaluate}
    return Plan(METHODS, (seed,), {}, tree, match_params=True, names=NAMES)


def sentence(comparison: Comparison) -> str:
    """What the search gained and what it did not, from the numbers."""
    percents = [100 * (row.figure.mean or 0.0) for row in comparison.rows]
    search, control, alone, shared, adapted = percents  # in the order of METHODS
    beside = [balanced(row) for row in comparison.rows]
    of_search, of_control, of_alone, of_shared, of_adapted = beside
    return (
        f"The clients found and adapted networks of {search:.1f} % mean accuracy{of_search}. "
        f"They {verdict(search, control)} their random control ({control:.1f} %{of_control}), "
        f"{verdict(search, alone)} a plain CNN of as many parameters trained alone "
        f"({alone:.1f} %{of_alone}), "
        f"{verdict(search, shared)} FedAvg ({shared:.1f} %{of_shared}) "
        f"and {verdict(search, adapted)} FedAvg with fine-tuning ({adapted:.1f} %{of_adapted}). "
        "One seed is an example, not evidence: see docs/results/fednas.md."
    )


def balanced(row: MethodRow) -> str:
    """`, balanced 95.4`"""
    if row.balanced_accuracy is None or row.balanced_accuracy.mean is None:
        return ""
    return f", balanced {100 * row.balanced_accuracy.mean:.1f}"


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

"""`fedloom run` without a method: what a federation is worth, on real digits, in under a minute.

Eight clients hold scikit-learn's handwritten digits in very different shares. Three ways to train the same
network on the same split: together (FedAvg), each alone (local), and together with a fine-tuned copy for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.comparison import Comparison, Plan
from fedloom.config import Experiment, validated
from fedloom.types import Json

METHODS = ("fedavg", "local", "local-adaptation")
SETTING = {"name": "digits", "clients": 8, "partition": "dirichlet:0.2"}


@dataclass(frozen=True)
class Demo:
    comparison: Comparison

    def to_json(self) -> Json:
        return self.comparison.to_json()

    def table(self) -> None:
        """The clients of the personal models, the comparison, and what it says in a sentence."""
        self.comparison.runs[-1].table()
        self.comparison.table()
        print(sentence(self.comparison))
        print(f"Everything is in {self.comparison.path}; next: fedloom run fedavg --help")


def plan(tree: Mapping[str, Any]) -> Plan:
    """The demo; flags such as --rounds or --seed change it."""
    seed = validated(Experiment, tree).seed
    return Plan(METHODS, (seed,), {}, {**tree, "data": {**SETTING, **tree.get("data", {})}})


def sentence(comparison: Comparison) -> str:
    shared, alone, adapted = (100 * row["accuracy"]["mean"] for row in comparison.methods)
    verdict = "gained" if shared > alone else "did not gain"
    tuned = "gained" if adapted > shared else "did not gain"
    return (
        f"Training together {verdict}: {shared:.1f} % against {alone:.1f} % alone. Fine-tuning a copy for each client "
        f"{tuned} over the shared model: {adapted:.1f} %. One seed is an example, not evidence."
    )

"""`fedloom run` without a method: the demo, which finds a model for clients with real digits.

It takes less than a minute on two idle cores. Eight clients hold scikit-learn's handwritten digits
in very different shares. `fedloom auto` looks for a network of the right size for them. On the same
split and with the same training MACs it competes with FedAvg with fine-tuning and with one of the
papers' searches (FedNAS in small cells, then adapted locally). Validation samples decide which
model to use.

How the search finishes, its batches and learning rates were chosen on validation data
(docs/results/demo.md); the budget is as large as the time allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.config.models import Experiment, validated
from fedloom.config.variants import labelled
from fedloom.runs.auto import Auto
from fedloom.runs.auto_budget import parse_budget
from fedloom.runs.auto_plan import AutoRequest
from fedloom.runs.results import Run
from fedloom.spaces import SMALL
from fedloom.spaces.drawing import as_text
from fedloom.types import Arch, Json

NAME = "fednas"  # what tables call the search
SIZE = f"space={SMALL},cells=3,channels=8"
TRAINING = "epochs=1,batch=32,lr=0.1,alpha_lr=0.003"
SEARCH = f"fednas:personal=true,finish=adapt,search_share=0.25,{SIZE},{TRAINING}"
SETTING = {"name": "digits", "clients": 8, "partition": "dirichlet:0.2"}
BUDGET = "macs=10G"  # of each contestant: twelve rounds of the search


@dataclass(frozen=True)
class Demo:
    auto: Auto

    def to_json(self) -> Json:
        return self.auto.to_json()

    def table(self) -> None:
        """Print the verdict, the leaderboard, the decisions, and a searched cell as an example."""
        self.auto.table()
        print(f"\nWhat {NAME} found for the client with the most samples:")
        print(largest_clients_cells(self.auto.run_of(NAME)))

    def next_steps(self) -> list[str]:
        steps = self.auto.next_steps()
        return [*steps, "then: fedloom auto --help, or README.md, the next five minutes"]


def demo_request(tree: Mapping[str, Any]) -> AutoRequest:
    """What the demo asks of `fedloom auto`; flags such as --rounds or --seed change it."""
    validated(Experiment, tree)
    data = {**SETTING, **tree.get("data", {})}
    budget = None
    if not tree.get("budget"):
        budget = parse_budget([BUDGET])
    search = labelled([f"{SEARCH}@{NAME}"])
    return AutoRequest({**tree, "data": data}, budget, others=search)


def largest_clients_cells(run: Run) -> str:
    largest = max(run.clients, key=lambda client: client.samples)
    return as_text(Arch.from_plain(largest.architecture))

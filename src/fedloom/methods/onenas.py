"""OneNAS: after Zhu, Jin, "Real-time Federated Evolutionary Neural Architecture Search", IEEE
Transactions on Evolutionary Computation 2021, in the form in which FINCH compares itself with it
(its §1, §5 and Fig. 1a).

In each round, all clients train the same random path through the supernet, with inherited weights.
In the end, of a few random paths the best on validation data is stacked and trained, as in FINCH
(stages/group_training.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.rng import rng
from fedloom.stages.group_options import GroupOptions
from fedloom.stages.group_paths import PathStage, PretrainWeights
from fedloom.stages.group_training import group_stages
from fedloom.stages.groups import CANDIDATES
from fedloom.types import Arch, Json, Meta, Order, Round, Setup, State, Task

PATH = "path"  # key in a state's meta: the path that the last round trained


class OneNasOptions(GroupOptions):
    """Options of OneNAS."""

    candidates: int = Field(
        8,
        ge=1,
        description="random paths; in the end the best of them on validation data is trained",
    )


@dataclass(frozen=True)
class Search(PathStage):
    """In every round, all clients train one random path."""

    options: OneNasOptions

    def init(self, setup: Setup, previous: State | None) -> State:
        begun = self.pretrained(setup, previous)
        candidates = self._candidates()
        meta = {"parameters": begun.meta["parameters"], PATH: candidates[0]}
        return State(begun.tensors, {**meta, CANDIDATES: candidates})

    def _candidates(self) -> list[Json]:
        """Returns the paths that will be judged, each once. They depend on the seed alone."""
        draws = rng(self.task.seed, "candidate paths")
        paths = [self.options.group_space.sample(draws) for _ in range(self.options.candidates)]
        return [arch.to_plain() for arch in dict.fromkeys(paths)]

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        path = self.options.group_space.sample(r.rng("path"))
        state = State(state.tensors, {**state.meta, PATH: path.to_plain()})
        return state, self.path_orders(state, path, r.cohort(), r)

    def served(self, state: State) -> Arch:
        return Arch.from_plain(state.meta[PATH])

    def note(self, state: State, r: Round) -> Meta:
        return {PATH: state.meta[PATH]}


def stages(task: Task) -> tuple[Stage, ...]:
    options = OneNasOptions(**task.options)
    return group_stages(PretrainWeights(options, task), Search(options, task))


onenas = Recipe(
    "OneNAS (after Zhu, Jin 2021): one random path per round for all, the best of a few at the end",
    OneNasOptions,
    stages,
)

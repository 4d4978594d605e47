"""DecNAS: after Xu, Zhao, Bian, Huang, Mei, Liu, "Federated Neural Architecture Search", 2020
(arXiv 2002.06352), in the form in which FINCH compares itself with it (its §5 and Fig. 1b).

Each round has a few candidates, mutations of one parent. Each candidate inherits its weights from
the supernet and is trained by a separate group of clients. Their mean is merged into the supernet.
Then the candidates are judged on validation data, and the best is the next parent. The best of the
last round is stacked and trained, as in FINCH (stages/group_training.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import Field

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.rng import rng
from fedloom.stages.group_options import GroupOptions
from fedloom.stages.group_paths import PathStage, PretrainWeights
from fedloom.stages.group_training import group_stages
from fedloom.stages.groups import CANDIDATES
from fedloom.types import Arch, Meta, Order, Reply, Round, Setup, State, Task

# Keys in a state's meta.
PARENT = "parent"
TRAINED = "trained"  # the candidates that were trained in the last round, each once
JUDGED = "judged"  # the candidates of the round before, with the figures that chose the parent


class DecNasOptions(GroupOptions):
    """Options of DecNAS."""

    candidates: int = Field(
        4,
        ge=1,
        description="mutations of the parent per round, each for its own share of the clients",
    )
    mutations: int = Field(
        1,
        ge=0,
        description="slots in which a candidate differs from the parent (0: in none)",
    )


@dataclass(frozen=True)
class Search(PathStage):
    """Every round, groups of clients train mutations of a parent."""

    options: DecNasOptions

    relays = False  # a cluster would have to train one candidate, and there are few clusters

    def init(self, setup: Setup, previous: State | None) -> State:
        begun = self.pretrained(setup, previous)
        parent = self.options.group_space.sample(rng(self.task.seed, "first parent")).to_plain()
        meta = {"parameters": begun.meta["parameters"], PARENT: parent, TRAINED: [], JUDGED: []}
        return State(begun.tensors, {**meta, CANDIDATES: [parent]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        clients = r.cohort()
        if not clients:
            return state, []
        state = self._with_parent(state, clients, r)
        groups = self._groups(clients, r)
        parent = Arch.from_plain(state.meta[PARENT])
        orders = []
        for arch, group in zip(self._mutations(parent, len(groups), r), groups, strict=True):
            orders += self.path_orders(state, arch, group, r)
        return state, sorted(orders, key=lambda order: order.client)

    def _with_parent(self, state: State, clients: Sequence[int], r: Round) -> State:
        """The best candidate of the round before, with its merged weights, becomes the parent.

        The old parent stays if no candidate was trained, or if no client could judge them.
        """
        archs = [Arch.from_plain(raw) for raw in state.meta[TRAINED]]
        figures: list[float | None] = [None] * len(archs)
        parent = state.meta[PARENT]
        if len(archs) == 1:
            parent = archs[0].to_plain()
        elif archs:
            parts = [self.weights_in(state.tensors, arch) for arch in archs]
            figures = self.accuracies(parts, archs, clients, r)
        judged = []
        best = -1.0
        for arch, figure in zip(archs, figures, strict=True):
            judged.append({"architecture": arch.to_plain(), "validation": figure})
            if figure is not None and figure > best:  # of equals the first wins
                best = figure
                parent = arch.to_plain()
        meta = {**state.meta, PARENT: parent, TRAINED: [], JUDGED: judged, CANDIDATES: [parent]}
        return State(state.tensors, meta)

    def _groups(self, clients: Sequence[int], r: Round) -> list[list[int]]:
        """Divides the clients at random into a group per candidate, at most one per client."""
        count = min(self.options.candidates, len(clients))
        shuffled = r.rng("groups of clients").permutation(clients).tolist()
        return [sorted(shuffled[place::count]) for place in range(count)]

    def _mutations(self, parent: Arch, count: int, r: Round) -> list[Arch]:
        draws = r.rng("mutations")
        archs = []
        for _ in range(count):
            arch = parent
            for _ in range(self.options.mutations):
                arch = self.options.group_space.mutate(arch, draws)
            archs.append(arch)
        return archs

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Merges the means. The trained candidates are judged later.

        That is in the next plan, or before the best is stacked.
        """
        merged = super().merge(state, orders, replies, r)
        by_client = {order.client: order for order in orders}
        archs = [Arch.from_plain(by_client[reply.client].meta["arch"]) for reply in replies]
        trained = [arch.to_plain() for arch in dict.fromkeys(archs)]
        parent = Arch.from_plain(state.meta[PARENT])
        candidates = [arch.to_plain() for arch in dict.fromkeys([parent, *archs])]
        return State(merged.tensors, {**merged.meta, TRAINED: trained, CANDIDATES: candidates})

    def served(self, state: State) -> Arch:
        return Arch.from_plain(state.meta[PARENT])

    def note(self, state: State, r: Round) -> Meta:
        return {PARENT: state.meta[PARENT], JUDGED: state.meta[JUDGED]}


def stages(task: Task) -> tuple[Stage, ...]:
    options = DecNasOptions(**task.options)
    return group_stages(PretrainWeights(options, task), Search(options, task))


decnas = Recipe(
    "DecNAS (after Xu et al. 2020): mutations of a parent on groups of clients",
    DecNasOptions,
    stages,
)

"""The last stage of a search for a group of cells: the best group is stacked and trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Stage, shared
from fedloom.learning.averaging import Averaged
from fedloom.records.result import FinalCandidate, FinalGroup
from fedloom.records.sections import Sections
from fedloom.spaces.mixed import model_of_space
from fedloom.spaces.owners import weightless
from fedloom.spaces.reductions import reductions
from fedloom.spaces.space import Size
from fedloom.stages.group_pretraining import PretrainStage
from fedloom.stages.groups import CANDIDATES, SCORE, SCORING, UPDATED, UPDATES, GroupStage
from fedloom.types import (
    Arch,
    Fields,
    Meta,
    Order,
    Reply,
    Round,
    Setup,
    State,
    Task,
    Tensors,
    Together,
)

PRETRAIN_SHARE = 0.1  # of the budget, at most


@dataclass(frozen=True)
class TrainGroup(GroupStage, Averaged):
    """Trains a stack of the candidate that is best on validation data, from fresh weights."""

    fields = {
        "train": Fields(tensors=("*",), meta=("loss",), writes=True),
        SCORE: SCORING,
    }

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        arch = Arch.from_plain(about["arch"])
        return model_of_space(
            task,
            self.options.group_space,
            self.options.final_size,
            arch=arch,
            weights=weights,
            affine=True,
        )

    def init(self, setup: Setup, previous: State | None) -> State:
        """The stage begins with the search's supernet and its candidates for the best group."""
        assert previous is not None
        return State(previous.tensors, {CANDIDATES: previous.meta[CANDIDATES]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        clients = r.cohort()
        if not clients:
            return state, []
        if "build" not in state.meta:
            state = self._with_best(state, clients, r)
        meta = {**state.meta["build"], **self.order_meta(r)}
        tensors = shared(state)
        orders = [Order(client, "train", tensors, meta) for client in clients]
        if UPDATED not in state.tensors:  # clusters by any other rule are the topology's
            return state, orders
        return state, in_clusters(orders, self.together(state, clients, r), r)

    def serve(self, state: State, client: int) -> Order:
        """Before a candidate is chosen, clients evaluate the first, with the supernet's weights."""
        if "build" in state.meta:
            return Order(client, "evaluate", shared(state), state.meta["build"])
        first = Arch.from_plain(state.meta[CANDIDATES][0])
        weights = self.weights_in(state.tensors, first)
        return Order(client, "evaluate", weights, {"unstacked": first.to_plain()})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        if "unstacked" in order.meta:
            return self.group_model(Arch.from_plain(order.meta["unstacked"]), order.tensors)
        return self.build(run.task, order.meta, order.tensors)

    def _with_best(self, state: State, clients: Sequence[int], r: Round) -> State:
        """Chooses the best candidate, once."""
        archs = [Arch.from_plain(raw) for raw in state.meta[CANDIDATES]]
        figures: list[float | None] = [None] * len(archs)
        if len(archs) > 1:
            parts = [self.weights_in(state.tensors, arch) for arch in archs]
            figures = self.accuracies(parts, archs, clients, r)
        best = max(range(len(archs)), key=lambda place: (figures[place] or 0.0, -place))
        begun = self.begin(self.task, {"arch": archs[best].to_plain()})
        candidates = []
        for place, arch in enumerate(archs):
            candidates.append(
                {
                    "architecture": arch.to_plain(),
                    "validation": figures[place],
                    "chosen": place == best,
                }
            )
        tensors = dict(begun.tensors)
        for name in (UPDATES, UPDATED):
            if name in state.tensors:
                tensors[name] = state.tensors[name]
        return State(tensors, {**begun.meta, "judged": candidates})

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        if order.kind == SCORE:
            return self.scored(order, data, run), None
        net = self.network(order, data, own, run)
        return self.trained(net, order, data, own, run)

    def samples_seen(self, order: Order, samples: int) -> int:
        if order.kind == SCORE:
            return samples
        return self.options.with_steps(order.meta["steps"]).work_of(samples)

    def sections(self, state: State) -> Sections:
        """Returns the final group. There is none until a round of this stage succeeds."""
        if "build" not in state.meta:
            return Sections()
        arch = Arch.from_plain(state.meta["build"]["arch"])
        space = self.options.group_space
        size: Size = self.options.final_size
        classes = len(self.task.labels)
        cost = space.cost(self.task.shape, classes, arch, size, affine=True)
        return Sections(
            final=FinalGroup(
                architecture=arch.to_plain(),
                group=space.usual.cells,
                stack=self.options.stack,
                cells=size.cells,
                reductions=sorted(reductions(size.cells)),
                params=cost.params,
                macs=cost.macs,
                candidates=[FinalCandidate(**candidate) for candidate in state.meta["judged"]],
            )
        )


def group_stages(pretrain: PretrainStage, search: Method) -> tuple[Stage, ...]:
    """Returns the stages: pretraining, a search, and the training of the group that it chose."""
    options = pretrain.options
    task = pretrain.task
    if len(task.shape) == 3:
        # The final network may halve the map more often than the group that is searched. If it
        # does not fit the images, building it says so.
        weightless(options.group_space, task.shape, len(task.labels), options.final_size)
    last = (
        Stage("search", search, options.search_share),
        Stage("train", TrainGroup(options, task)),
    )
    if not options.pretrain:
        return last
    return Stage("pretrain", pretrain, PRETRAIN_SHARE, is_flat=True), *last


def in_clusters(
    orders: Sequence[Order],
    clusters: Sequence[Together],
    r: Round,
) -> list[Order]:
    """Returns the orders with their clusters as groups. Without clusters they do not change."""
    if r.grouping is None:
        return list(orders)
    numbers = {}
    for cluster in clusters:
        for client in cluster.members:
            numbers[client] = cluster.number
    return [replace(order, group=numbers[order.client]) for order in orders]

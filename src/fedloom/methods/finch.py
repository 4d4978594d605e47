"""FINCH: Liu, Yan, Xu, Xu, Liu, Huang, "Finch: Enhancing Federated Learning With Hierarchical
Neural Architecture Search", IEEE Transactions on Mobile Computing 2024.

Clients work in clusters whose labels are distributed like those of all clients (Algorithm 2, which
the topology implements). Each cluster searches a sub-space of the supernet: a few operations of
every edge, which Algorithm 3 chooses for it (finch_spaces.py). Clients take steps of Eq. 4 on its
weights and α, aggregators average them λ₂ times (Eq. 5), then the server merges the clusters'
means. The best group of cells is stacked and trained in the same clusters
(stages/group_training.py).

`search = "random"` is the control: the same stages and cost, but a random group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Hierarchy, Recipe, Stage, shared
from fedloom.learning.averaging import server_step
from fedloom.methods.finch_options import FLAT, FinchOptions
from fedloom.methods.finch_spaces import ALLOTTED, DRAWN, SubSpaceStage, notes_in
from fedloom.records.rows import ClusterNote
from fedloom.rng import rng
from fedloom.searchers.subspaces import check_subspaces
from fedloom.spaces.choice import Mixture
from fedloom.spaces.mixed import alpha_in
from fedloom.stages.group_pretraining import Pretrain
from fedloom.stages.group_training import group_stages
from fedloom.stages.groups import (
    BY_UPDATES,
    CANDIDATES,
    SCORE,
    SCORING,
    SEARCH,
    region_of,
    right_answers,
)
from fedloom.types import Arch, Fields, Json, Meta, Order, Reply, Round, Setup, State, Task


@dataclass(frozen=True)
class Search(SubSpaceStage):
    """Every cluster searches its sub-space."""

    fields = {
        SEARCH: Fields(tensors=("*",), meta=("loss", "accuracy"), writes=True),
        SCORE: SCORING,
    }

    def init(self, setup: Setup, previous: State | None) -> State:
        begun = previous
        if begun is None:
            begun = Pretrain(self.options, self.task).init(setup, None)
        meta = {"parameters": begun.meta["parameters"], ALLOTTED: {}, DRAWN: 0}
        return State(begun.tensors, {**meta, CANDIDATES: self._best_groups(begun, [])})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        """Algorithm 1, lines 7 to 10."""
        clients = r.cohort()
        if not clients:
            return state, []
        clusters = self.together(state, clients, r)
        state = self.allot(state, clusters, clients, r)
        notes = notes_in(state)
        alpha = alpha_in(state.tensors)
        orders = []
        for cluster in clusters:
            arch = Arch.from_plain(notes[cluster.number].space)
            tensors = self.part(state.tensors, arch)
            region = region_of(arch, alpha)
            meta = {**self.order_meta(r), "arch": arch.to_plain()}
            if self.options.resample > 1:
                meta["tells_accuracy"] = True  # this accuracy is c, if the sub-space stays
            group = None
            if r.grouping is not None:
                group = cluster.number
            for client in cluster.members:
                if client in clients:
                    orders.append(Order(client, SEARCH, tensors, meta, region, group))
        return state, sorted(orders, key=lambda order: order.client)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Lines 20 to 25."""
        if order.kind == SCORE:
            return self.scored(order, data, run), None
        searched, memory = self.searched(order, data, own, run)
        meta = {"loss": searched.loss}
        if order.meta.get("tells_accuracy"):
            _, validation = data.split(self.options.train_share)
            net = self.mixed(searched.tensors, order.meta).to(run.device)
            right = right_answers(net, validation, run.device, self.options.bn)
            meta["accuracy"] = right / len(validation)
        return Reply(order.client, searched.tensors, float(len(data)), meta), memory

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages every tensor, and every entry of α, over the clusters that held it.

        Clusters are weighted by their samples. What no cluster held stays as it was.
        """
        merged = server_step(self.options, state, orders, replies)
        by_client = {order.client: order for order in orders}
        notes = dict(state.meta[ALLOTTED])
        groups = []
        for reply in replies:
            order = by_client[reply.client]
            if order.group is None:  # there are no clusters, so none has a group of its own
                continue
            groups.append(self._derived(reply, Arch.from_plain(order.meta["arch"])))
            if reply.meta.get("accuracy") is not None:
                name = str(order.group)
                notes[name] = {**notes[name], "c": reply.meta["accuracy"]}
        candidates = self._best_groups(merged, groups)
        return State(merged.tensors, {**merged.meta, ALLOTTED: notes, CANDIDATES: candidates})

    def _derived(self, reply: Reply, arch: Arch) -> Arch:
        """Returns the group of a cluster's own α. Operations that it did not have weigh 0."""
        space = self.options.group_space
        alpha = list(alpha_in(reply.tensors).values())
        mixture = Mixture.softmax_of_live(alpha, arch, space.slots)
        return space.derive([row.numpy() for row in mixture.weights])

    def _best_groups(self, state: State, groups: Sequence[Arch]) -> list[Json]:
        """Returns the group of the merged α and those of the clusters, each once.

        For the control it is one random group.
        """
        space = self.options.group_space
        if self.options.search == "random":
            return [space.sample(rng(self.task.seed, "by chance")).to_plain()]
        mixture = Mixture.softmax(list(alpha_in(state.tensors).values()))
        merged = space.derive([row.numpy() for row in mixture.weights])
        return [arch.to_plain() for arch in dict.fromkeys([merged, *groups])]

    def most_work(self, order: Order) -> float:
        return self.most_macs / self.table.of(Arch.from_plain(order.meta["arch"]))

    def note_clusters(self, state: State) -> Mapping[int, ClusterNote]:
        return notes_in(state)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.mixed(order.tensors, {})


def stages(task: Task) -> tuple[Stage, ...]:
    options = FinchOptions(**task.options)
    search = Search(options, task)
    check_subspaces(options.group_space, search.table, options.ops_per_edge, search.flops_max)
    return group_stages(Pretrain(options, task), search)


def hierarchy(chosen: Meta) -> Hierarchy | None:
    options = FinchOptions(**chosen)
    if options.clustering == FLAT:
        return None
    clusters = options.hierarchy(options.clusters, is_chosen=options.clustering is not None)
    return replace(clusters, by_option=(BY_UPDATES,))  # the updates are those of pretraining


finch = Recipe(
    "FINCH (Liu et al. 2024): a search space for every cluster of clients, one network for all",
    FinchOptions,
    stages,
    short="search",
    hierarchy=hierarchy,
)

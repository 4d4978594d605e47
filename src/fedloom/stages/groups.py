"""What FINCH shares with the searches that it is compared with.

They search one group of cells. They begin with a supernet that all clients pretrain, judge networks
in the same way, and end by training a stack of the best group.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import SERVER, ClientRun, Method, Stage, shared
from fedloom.learning.averaging import (
    Averaged,
    AveragingOptions,
    received_statistics,
    server_step,
)
from fedloom.learning.clusters import ClusterOptions
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import (
    BN_POLICIES,
    MOMENTUM,
    RECEIVED,
    BnPolicy,
    IterationOptions,
    final_weights,
    least_samples,
    train,
    training_mode,
    weights_of,
)
from fedloom.nets.model import Model
from fedloom.records.result import FinalCandidate, FinalGroup
from fedloom.records.sections import Sections
from fedloom.rng import rng
from fedloom.searchers.local_search import Searched, SearchingOptions, local_search
from fedloom.spaces import GROUP, chosen_space, family_in
from fedloom.spaces.mixed import Mixed, MixedPart, alpha_in, fresh_alpha, live_alpha, model_of_space
from fedloom.spaces.options import MOST_CHANNELS, SpaceChoice
from fedloom.spaces.owners import NET, owners_in, weightless
from fedloom.spaces.reductions import reductions
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.space import Size, Space
from fedloom.types import (
    ALPHA,
    Arch,
    Fields,
    Json,
    Meta,
    Order,
    Region,
    Reply,
    Round,
    Setup,
    State,
    Task,
    Tensors,
    Together,
)

BY_UPDATES = "updates"  # a value of `clusters`
SEARCH = "search"  # kinds of orders
SCORE = "score"
CANDIDATES = "candidates"  # key in the meta that a search hands on: architectures
CLASSIFIER = f"{NET}classifier."
# Names in the server's state: classifier updates of clients in pretraining, and the clients' ids.
UPDATES = f"{SERVER}updates"
UPDATED = f"{SERVER}updated"
PROJECTED = 64  # dimensions that a classifier's update is projected to
SCORED_AT_ONCE = 256  # samples in a batch, at most
SCORING = Fields(meta=("right", "samples"), writes=False, beforehand=True)


class GroupOptions(IterationOptions, AveragingOptions, SpaceChoice):
    """Options of a search for a group of cells, which is then stacked and trained."""

    space: str = Field(GROUP, description="which space is searched: a group of cells")
    channels: int = Field(16, ge=1, le=MOST_CHANNELS, description="channels of the first cell")
    stack: int = Field(5, ge=1, le=100, description="how often the final network repeats the group")
    batch: int = Field(50, ge=1, description="samples per step")
    weight_decay: float = Field(4e-5, ge=0, description="L2 decay of the weights")
    bn: BnPolicy = Field(RECEIVED, description=BN_POLICIES)
    lambda2: int = Field(
        2,
        ge=1,
        description="how often a round repeats λ₁ iterations; in clusters a mean follows each time",
    )
    train_share: float = Field(
        0.5,
        ge=0.05,
        le=0.95,
        description="share of a client's data for w; the rest decides on the architecture",
    )
    pretrain: int = Field(
        100,
        ge=0,
        description="local iterations on the whole supernet at first, without clusters; at most "
        "a tenth of the budget (0: none)",
    )
    search_share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of the budget after pretraining for the search; the rest trains the "
        "final network",
    )
    score_clients: int = Field(
        5,
        ge=1,
        description="clients that score networks if the server has no samples",
    )

    @field_validator("space")
    @classmethod
    def _repeats_cells(cls, name: str) -> str:
        if not family_in(name).searches_usual_cells:
            raise ValueError(f"a space whose few cells are repeated, such as {GROUP}")
        return name

    @property
    def least_samples(self) -> int:
        return least_samples(self.train_share)

    @property
    def group_space(self) -> Space:
        return chosen_space(self)

    @property
    def searched_size(self) -> Size:
        return Size(self.group_space.usual.cells, self.channels, self.head)

    @property
    def final_size(self) -> Size:
        return self.searched_size._replace(cells=self.stack * self.group_space.usual.cells)

    def searched(self, task: Task) -> SearchedSpace:
        return SearchedSpace(self.group_space, self.searched_size, self.final_size)

    def with_steps(self, steps: int) -> Self:
        """Returns the same options for an order of so many local iterations."""
        return self.model_copy(update={"lambda1": steps})


class ClusteredGroupOptions(GroupOptions, ClusterOptions, SearchingOptions):
    """Options of a search for a group of cells by α, in clusters of clients."""

    @property
    def clusters(self) -> str:
        """How clients are clustered."""
        return self.usual_clusters


@dataclass(frozen=True)
class GroupStage(Method):
    """A stage whose networks are made of the group of cells."""

    options: GroupOptions
    task: Task

    relays = True

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def samples_seen(self, order: Order, samples: int) -> int:
        if order.kind == SCORE:
            return samples
        to_train_on = max(1, round(self.options.train_share * samples))
        return self.options.with_steps(order.meta["steps"]).samples_seen(to_train_on)

    # Its networks

    def group_model(self, arch: Arch | None = None, weights: Tensors | None = None) -> Model:
        """Returns the supernet, or the part of it that `arch` names."""
        space = self.options.group_space
        size = self.options.searched_size
        return model_of_space(self.task, space, size, arch=arch, weights=weights)

    def mixed(self, tensors: Tensors, about: Meta) -> Mixed:
        """Returns the network of an order: the supernet with its α, or a part of both."""
        if "arch" not in about:
            return Mixed(self.group_model(weights=tensors), alpha_in(tensors))
        arch = Arch.from_plain(about["arch"])
        return MixedPart(self.group_model(arch, tensors), alpha_in(tensors))

    def part(self, tensors: Tensors, arch: Arch) -> dict[str, torch.Tensor]:
        """Returns the weights, BN statistics and entries of α of a part of the supernet."""
        part = self.weights_in(tensors, arch)
        for name, row in live_alpha(alpha_in(tensors), arch).items():
            part[f"{ALPHA}{name}"] = row
        return part

    def weights_in(self, tensors: Tensors, arch: Arch) -> dict[str, torch.Tensor]:
        """Returns the weights and BN statistics of a part of the supernet."""
        space = self.options.group_space
        size = self.options.searched_size
        owners = owners_in(space, self.task.shape, len(self.task.labels), size)
        part = {}
        for name, owner in owners.items():
            if owner is None or owner.op in arch.choice[owner.slot]:
                part[name] = tensors[name]
        return part

    # A round

    def order_meta(self, r: Round) -> dict[str, float | int]:
        """Returns what an order says about the work.

        If the round has one hop only, that hop does the work of all λ₂.
        """
        steps = self.options.lambda1
        if r.hops == 1:
            steps *= self.options.lambda2
        return {"lr": self.options.rate(r.progress), "steps": steps, "hops": r.hops}

    def together(self, state: State, clients: Sequence[int], r: Round) -> tuple[Together, ...]:
        """Returns the clusters of these clients. Without clusters, each client is one by itself."""
        updates = None
        if UPDATED in state.tensors:
            updates = self._updates_of(state, clients)
        clusters = r.clusters(clients, updates)
        if clusters is None:
            return tuple(Together(client, (client,)) for client in clients)
        return clusters

    def _updates_of(self, state: State, clients: Sequence[int]) -> dict[int, np.ndarray]:
        """Returns every client's update in pretraining.

        A client that took no part in it gets the mean of the others' updates.
        """
        rows = state.tensors[UPDATES].numpy()
        updates = dict(zip(state.tensors[UPDATED].tolist(), rows, strict=True))
        mean = rows.mean(axis=0)
        return {client: updates.get(client, mean) for client in clients}

    def trained(
        self,
        net: nn.Module,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Takes λ₁ steps on w alone. The momentum is kept until the round's next hop."""
        momentum = without_prefix(MOMENTUM, memory_of_round(own, run))
        options = self.options.with_steps(order.meta["steps"])
        with received_statistics(net, data, options, run):
            trained = train(net, data, options, order.meta["lr"], run, momentum=momentum)
        reply = Reply(order.client, final_weights(net), float(len(data)), {"loss": trained.loss})
        return reply, kept_for_next_hop(with_prefix(MOMENTUM, trained.momentum), order, run)

    # Judging networks

    def accuracies(
        self,
        parts: Sequence[Tensors],
        archs: Sequence[Arch],
        clients: Sequence[int],
        r: Round,
    ) -> list[float | None]:
        """Returns accuracies on the server's samples, or on those that a few clients search with.

        An accuracy is None if no client answered.
        """
        figures: list[float | None] = []
        if r.server_data is not None:
            for tensors, arch in zip(parts, archs, strict=True):
                net = self.judged(tensors, arch)
                right = right_answers(net, r.server_data, "cpu", self.options.bn)
                figures.append(right / len(r.server_data))
            return figures
        count = min(self.options.score_clients, len(clients))
        draw = r.rng("score clients").choice(clients, size=count, replace=False)
        scoring = sorted(draw.tolist())
        for tensors, arch in zip(parts, archs, strict=True):
            figures.append(self._accuracy_at(scoring, tensors, arch, r))
        return figures

    def _accuracy_at(
        self,
        clients: Sequence[int],
        tensors: Tensors,
        arch: Arch,
        r: Round,
    ) -> float | None:
        """Returns the accuracy on all samples of these clients, or None if none answered."""
        orders = []
        for client in clients:
            orders.append(Order(client, SCORE, tensors, {"arch": arch.to_plain()}))
        right = 0
        samples = 0
        for reply in r.ask(orders):
            right += reply.meta["right"]
            samples += reply.meta["samples"]
        if not samples:
            return None
        return right / samples

    def judged(self, tensors: Tensors, arch: Arch) -> nn.Module:
        """Returns the network to judge: a mixture if there is an α, else the plain network."""
        if alpha_in(tensors):
            return self.mixed(tensors, {"arch": arch.to_plain()})
        return self.group_model(arch, tensors)

    def scored(self, order: Order, data: Samples, run: ClientRun) -> Reply:
        """Returns a client's reply to an order of `accuracies`, on the samples that α trains on."""
        net = self.judged(order.tensors, Arch.from_plain(order.meta["arch"]))
        _, validation = data.split(self.options.train_share)
        right = right_answers(net.to(run.device), validation, run.device, self.options.bn)
        return Reply(order.client, meta={"right": right, "samples": len(validation)})

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        if order.kind != SCORE:
            return refuse_accuracy(reply.meta.get("accuracy"))
        if not 0 <= reply.meta["right"] <= reply.meta["samples"] <= samples:
            counts = f"{reply.meta['right']} right answers of {reply.meta['samples']}"
            return f"it counts {counts}, and has {samples} samples"
        return None


def memory_of_round(own: State | None, run: ClientRun) -> Tensors:
    """Returns the optimisers' memory of this round's earlier hops.

    A client whose reply to the first hop was refused still has the memory of an earlier round. That
    belongs to another sub-space, so it is not used.
    """
    if own is None or own.meta["round"] != run.round:
        return {}
    return own.tensors


def kept_for_next_hop(memory: Tensors, order: Order, run: ClientRun) -> State | None:
    """Returns the state that a client keeps, or None if the round has no further hop."""
    if run.hop + 1 < order.meta["hops"]:
        return State(memory, {"round": run.round})
    return None


@torch.no_grad()
def right_answers(net: nn.Module, data: Samples, device: str, bn: str = "averaged") -> int:
    """Returns how many samples the network classifies correctly.

    BN uses the statistics of these samples, unless they are frozen. The running statistics are
    those of other networks: every round trains the same operations behind other operations. `net`
    is not used again, so its running statistics may change.
    """
    training_mode(net, bn)
    if len(data) == 1:  # one sample has no variance
        net.eval()
    right = 0
    batches = math.ceil(len(data) / SCORED_AT_ONCE)  # of equal size, so that none has one sample
    for x, y in zip(data.x.tensor_split(batches), data.y.tensor_split(batches), strict=True):
        answers = net(x.to(device)).argmax(dim=1).cpu()
        right += int((answers == y).sum())
    return right


def refuse_accuracy(accuracy: Json) -> str | None:
    """Returns why a client cannot have this accuracy, or None if it can or does not say one."""
    if accuracy is None or 0 <= accuracy <= 1:
        return None
    return f"its accuracy must be from 0 to 1, and it says {accuracy}"


# The beginning: all clients train the whole supernet


@dataclass(frozen=True)
class PretrainStage(GroupStage):
    """All clients train the whole supernet, without clusters. A subclass says how."""

    def begun(self, alpha: Tensors) -> State:
        """Returns the first state: the supernet with weights that the seed draws, and this α."""
        net = self.group_model()
        parameters = [name for name, _ in net.named_parameters()]
        meta = {"parameters": [*parameters, *alpha], "iterations": 0}
        return State({**weights_of(net), **alpha}, meta)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        remaining = self.options.pretrain - state.meta["iterations"]
        if remaining <= 0:
            return None
        meta = self.order_meta(r)
        meta["steps"] = min(meta["steps"], remaining)
        tensors = shared(state)
        return state, [Order(client, SEARCH, tensors, meta) for client in r.cohort()]

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        merged = server_step(self.options, state, orders, replies)
        iterations = state.meta["iterations"] + int(orders[0].meta["steps"])
        return State(merged.tensors, {**merged.meta, "iterations": iterations})

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state))


@dataclass(frozen=True)
class MixtureStage(GroupStage):
    """A stage whose clients search by α."""

    options: ClusteredGroupOptions

    def searched(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Searched, State | None]:
        """Takes λ₁ steps of Eq. 4. The optimisers' memory is kept until the round's next hop."""
        memory = memory_of_round(own, run)
        options = self.options.with_steps(order.meta["steps"])
        mixed = self.mixed(order.tensors, order.meta)
        searched = local_search(mixed, memory, data, options, order.meta["lr"], run)
        return searched, kept_for_next_hop(searched.memory, order, run)


@dataclass(frozen=True)
class Pretrain(PretrainStage, MixtureStage):
    """All clients take steps of Eq. 4 on the whole supernet, without clusters."""

    options: ClusteredGroupOptions

    fields = {SEARCH: Fields(tensors=("*",), meta=("loss",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begun(fresh_alpha(self.options, self.task.seed))

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        searched, _ = self.searched(order, data, None, run)
        meta = {"loss": searched.loss}
        return Reply(order.client, searched.tensors, float(len(data)), meta), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        merged = super().merge(state, orders, replies, r)
        if self.options.clusters != BY_UPDATES:
            return merged
        return State({**merged.tensors, **self._with_updates(state, replies)}, merged.meta)

    def _with_updates(self, state: State, replies: Collection[Reply]) -> dict[str, torch.Tensor]:
        """Returns the latest update of every client's classifier, by a random projection."""
        updates: dict[int, torch.Tensor] = {}
        if UPDATED in state.tensors:
            rows = state.tensors[UPDATES].unbind()
            updates = dict(zip(state.tensors[UPDATED].tolist(), rows, strict=True))
        for reply in replies:
            differences = []
            for name in sorted(reply.tensors):
                if name.startswith(CLASSIFIER):
                    difference = reply.tensors[name].double() - state.tensors[name].double()
                    differences.append(difference.flatten())
            updates[reply.client] = projected(torch.cat(differences), self.task.seed)
        clients = sorted(updates)
        return {
            UPDATES: torch.stack([updates[client] for client in clients]),
            UPDATED: torch.tensor(clients, dtype=torch.int64),
        }

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.mixed(order.tensors, {})


def projected(vector: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns a vector's random projection to a few dimensions. The seed draws the projection."""
    draws = rng(seed, "projection").standard_normal((len(vector), PROJECTED))
    numbers: torch.Tensor = vector @ torch.from_numpy(draws) / PROJECTED**0.5
    return numbers


def region_of(arch: Arch, alpha: Mapping[str, torch.Tensor]) -> dict[str, Region]:
    """Returns where a part's entries of α lie in the server's α."""
    return {f"{ALPHA}{name}": (live,) for name, live in zip(alpha, arch.choice, strict=True)}


# The end: the best group, stacked


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


PRETRAIN_SHARE = 0.1  # of the budget, at most


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

"""What FINCH shares with the searches that it is compared with.

They search one group of cells. They begin with a supernet that all clients pretrain, judge networks
in the same way, and end by training a stack of the best group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import SERVER, ClientRun, Method
from fedloom.learning.averaging import received_statistics
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import MOMENTUM, final_weights, train, training_mode
from fedloom.nets.model import Model
from fedloom.spaces.mixed import Mixed, MixedPart, alpha_in, live_alpha, model_of_space
from fedloom.spaces.owners import NET, owners_in
from fedloom.stages.group_options import GroupOptions
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
SCORED_AT_ONCE = 256  # samples in a batch, at most
SCORING = Fields(meta=("right", "samples"), writes=False, beforehand=True)


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


def region_of(arch: Arch, alpha: Mapping[str, torch.Tensor]) -> dict[str, Region]:
    """Returns where a part's entries of α lie in the server's α."""
    return {f"{ALPHA}{name}": (live,) for name, live in zip(alpha, arch.choice, strict=True)}

"""FedNAS: He, Mushtaq, Ding, Avestimehr, "FedNAS: Federated Deep Learning via Neural Architecture
Search", 2021.

Each client searches locally by MiLeNAS (Eq. 4), and the server averages weights *and* architecture
parameters (Eq. 5). Then, in the global mode, one genotype is derived and trained by FedAvg. In the
personal mode (§2.5) every client fine-tunes (w, α) by Eq. 4, cuts its own network out of the
supernet and trains it: accuracy, parameters and export are those of the cut network.

`finish = "adapt"` is our own: a personal mode with one genotype. It is derived and trained by
FedAvg as in the global mode, and then every client adapts the trained network locally.

`search = "random"` is the control: the same stages and the same cost, but the genotype is drawn at
random. `search = "perturbation"` is SPIDER's variant of the global mode: see
fednas_perturbation.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Predictor, Recipe, Stage, shared
from fedloom.learning.averaging import Averaged, server_step
from fedloom.learning.personal import FineTuned, Personal
from fedloom.learning.private_state import momentum_in, own_state, weights_in, weights_or
from fedloom.learning.training import train, weights_of
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.methods.fednas_perturbation import ServerSearch
from fedloom.nets.model import Model
from fedloom.rng import rng
from fedloom.searchers.local_search import Searched, local_search
from fedloom.spaces import space_for
from fedloom.spaces.mixed import Mixed, alpha_in, fresh_alpha, plain, supernet_model
from fedloom.types import Arch, Fields, Meta, Order, Reply, Round, Setup, State, Task, Tensors

# The federated search: Algorithm 1


@dataclass(frozen=True)
class Search(Method):
    """Clients search (w, α) by Eq. 4, the server averages both by Eq. 5."""

    options: FedNASOptions

    fields = {"search": Fields(tensors=("*",), meta=("loss",), writes=True)}
    relays = True

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def init(self, setup: Setup, previous: State | None) -> State:
        net = supernet_model(setup.task, self.options)
        alpha = fresh_alpha(self.options, setup.task.seed)
        parameters = [name for name, _ in net.named_parameters()]
        return State({**weights_of(net), **alpha}, {"parameters": [*parameters, *alpha]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors = shared(state)
        meta = {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "search", tensors, meta) for client in r.cohort()]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        memory: Tensors = {}
        if own is not None:
            memory = own.tensors
        searched = searched_from(order.tensors, memory, data, self.options, order.meta["lr"], run)
        reply = Reply(order.client, searched.tensors, len(data), {"loss": searched.loss})
        if self.options.keeps_optimizer:
            return reply, State(searched.memory)
        return reply, None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages w and α alike (Eq. 5), or lets the server's optimiser use their means."""
        return server_step(self.options, state, orders, replies)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return Mixed.of(run.task, self.options, order.tensors)


def searched_from(
    tensors: Tensors,
    memory: Tensors,
    data: Samples,
    options: FedNASOptions,
    lr: float,
    run: ClientRun,
) -> Searched:
    """Runs a client's search from these w and α."""
    mixed = Mixed.of(run.task, options, tensors)
    return local_search(mixed, memory, data, options, lr, run)


def genotype_of(tensors: Tensors, options: FedNASOptions, seed: int, *who: int) -> Arch:
    """Returns the genotype of an α or, for the control, one that is drawn at random."""
    space = space_for(options)
    if options.search == "random":
        return space.sample(rng(seed, "random genotype", *who))
    strength = [torch.softmax(row, dim=0).numpy() for row in alpha_in(tensors).values()]
    return space.derive(strength)


# The global mode: one network for all


@dataclass(frozen=True)
class TrainDerived(Averaged):
    """The evaluation stage: FedAvg trains the genotype of the averaged α."""

    options: FedNASOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        return derived_model(task, self.options, about, weights)

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows the search
        arch = genotype_of(previous.tensors, self.options, setup.task.seed)
        state = self.begin(setup.task, {"arch": arch.to_plain()})
        if not self.options.inherit:
            return state
        inherited = {name: previous.tensors[name] for name in state.tensors}
        return State(inherited, state.meta)


def derived_model(
    task: Task,
    options: FedNASOptions,
    about: Meta,
    weights: Tensors | None,
) -> Model:
    """Returns the network of the genotype that was derived for all clients."""
    arch = Arch.from_plain(about["arch"])
    affine = not options.inherit
    return supernet_model(task, options, arch=arch, weights=weights, affine=affine)


@dataclass(frozen=True)
class AdaptDerived(FineTuned):
    """`finish = "adapt"`: every client adapts locally the network that all have trained."""

    options: FedNASOptions

    def rate(self, r: Round) -> float:
        return self.options.adapting_rate

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows the training of the derived network
        state = super().init(setup, previous)
        return State(state.tensors, {**state.meta, "build": previous.meta["build"]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        planned = super().plan(state, r)
        assert planned is not None
        _, orders = planned
        build = state.meta["build"]
        complete_orders = []
        for order in orders:
            complete_orders.append(replace(order, meta={**order.meta, **build}))
        return state, complete_orders

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", state.tensors, state.meta["build"])

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        weights = weights_or(own, order.tensors)
        return derived_model(run.task, self.options, order.meta, weights)


# The personal mode, §2.5: one network for each client


@dataclass(frozen=True)
class Tune(Personal):
    """Every client fine-tunes the received (w, α) by Eq. 4."""

    options: FedNASOptions

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def rate(self, r: Round) -> float:
        return self.options.rate(r.progress)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        tensors = weights_or(own, order.tensors)
        memory = self._memory(own)
        searched = searched_from(tensors, memory, data, self.options, order.meta["lr"], run)
        return State({**searched.tensors, **searched.memory})

    def _memory(self, own: State | None) -> Tensors:
        """Returns the memory of the optimisers from this client's last round."""
        if own is None or not self.options.keeps_optimizer:
            return {}
        return own.tensors

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return Mixed.of(run.task, self.options, weights_or(own, order.tensors))


@dataclass(frozen=True)
class TrainCut(Personal):
    """In the end every client cuts its own network out of its supernet and trains it."""

    options: FedNASOptions

    def rate(self, r: Round) -> float:
        return self.options.rate(r.progress)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        if own is None or "arch" not in own.meta:
            own = self._cut(weights_or(own, order.tensors), run)
        net = self._cut_model(own, run)
        lr = order.meta["lr"]
        if not self.options.keeps_optimizer:
            train(net, data, self.options, lr, run)
            return State(weights_of(net), own.meta)
        trained = train(net, data, self.options, lr, run, momentum=momentum_in(own))
        return State(own_state(net, trained.momentum).tensors, own.meta)

    def _cut(self, tensors: Tensors, run: ClientRun) -> State:
        arch = genotype_of(tensors, self.options, run.task.seed, run.identity)
        weights = None if self.options.inherit is False else tensors
        net = supernet_model(run.task, self.options, arch=arch, weights=weights)
        return State(weights_of(net), {"arch": arch.to_plain()})

    def _cut_model(self, own: State, run: ClientRun) -> Model:
        arch = Arch.from_plain(own.meta["arch"])
        return supernet_model(run.task, self.options, arch=arch, weights=weights_in(own))

    def predictor(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> Predictor:
        """Returns the cut network as it was trained.

        To convert it into plain torch takes longer than a round's evaluation.
        """
        if own is None or "arch" not in own.meta:
            return super().predictor(order, data, own, run)
        return self._cut_model(own, run).to(run.device).eval()

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """Returns the cut network in plain torch. A client without one uses its supernet."""
        if own is None or "arch" not in own.meta:
            return Mixed.of(run.task, self.options, weights_or(own, order.tensors))
        return plain(self._cut_model(own, run))


def stages(task: Task) -> tuple[Stage, ...]:
    options = FedNASOptions(**task.options)
    if options.search == "perturbation":
        return (Stage("train", ServerSearch(options)),)
    search = Stage("search", Search(options), options.search_share)
    if not options.personal:
        return search, Stage("train", TrainDerived(options))
    if options.finish == "adapt":
        train_shared = Stage("train", TrainDerived(options), 1 - options.adapt_share)
        return search, train_shared, Stage("adapt", AdaptDerived(options))
    tune = Stage("tune", Tune(options), options.tune_share)
    return search, tune, Stage("cut", TrainCut(options), keeps_own=True)


MODES = "one network for all or, personal=true, one per client"
fednas = Recipe(
    f"FedNAS (He et al. 2021): federated MiLeNAS, {MODES}",
    FedNASOptions,
    stages,
    short="search",
)

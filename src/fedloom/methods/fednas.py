"""FedNAS: He, Mushtaq, Ding, Avestimehr, "FedNAS: Federated Deep Learning via Neural Architecture Search", 2021.

Each client searches locally by MiLeNAS (Eq. 4); the server averages weights *and* architecture parameters (Eq. 5).
Then, globally, the genotype is derived and trained by FedAvg; or, personally (§2.5), every client fine-tunes (w, α)
by Eq. 4, cuts its own network out and trains that: accuracy, parameters and export are of the cut network.

`search = "random"` is the control: the same stages and the same cost, but the genotype is drawn at random.
`search = "perturbation"` is SPIDER's variant of the global mode: see fednas_perturbation.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Predictor, Recipe, Stage, shared
from fedloom.learning.averaging import Averaged, server_step
from fedloom.learning.optimizers import Adam, Optimizer, Sgd, remembered
from fedloom.learning.personal import Personal
from fedloom.learning.private_state import momentum_in, own_state, weights_in
from fedloom.learning.training import (
    ADAM,
    MOMENTUM,
    converging,
    sgd,
    train,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.methods.fednas_perturbation import ServerSearch
from fedloom.nets.model import Model
from fedloom.rng import rng
from fedloom.searchers.milenas import MiLeNAS, endless
from fedloom.spaces import space_for
from fedloom.spaces.mixed import Mixed, alpha_in, fresh_alpha, plain, supernet_model
from fedloom.types import ALPHA, Arch, Fields, Meta, Order, Reply, Round, Setup, State, Task, Tensors


class Searched(NamedTuple):
    tensors: dict[str, torch.Tensor]  # w and α
    memory: dict[str, torch.Tensor]  # of both optimisers
    loss: float


def local_search(
    tensors: Tensors, memory: Tensors, data: Samples, options: FedNASOptions, lr: float, run: ClientRun
) -> Searched:
    """Lines 9–15 of Algorithm 1 on one client."""
    net = supernet_model(run.task, options, weights=tensors)
    net.to(run.device)
    alpha = {name: row.to(run.device, copy=True).requires_grad_() for name, row in alpha_in(tensors).items()}
    mixed = Mixed(net, alpha)
    w_optimizer = sgd(net, options, lr, momentum_in(State(memory)))
    alpha_optimizer = optimizer_of(alpha, options, memory)
    searcher = MiLeNAS(
        net, alpha, mixed.mix, w_optimizer, alpha_optimizer, lam=options.lam, clip=options.clip, order=options.order
    )
    training_mode(net, options.bn)
    train_part, validation_part = (part.to(run.device) for part in data.split(options.train_share))
    validation = endless(validation_part, options.batch, run.rng("validation batches"))
    losses = [searcher.step(batch, next(validation)) for batch in training_batches(train_part, options, run)]
    found = {**weights_of(net), **{f"{ALPHA}{name}": row.detach().cpu().clone() for name, row in alpha.items()}}
    kept = {f"{MOMENTUM}{name}": buffer for name, buffer in remembered(w_optimizer).items()}
    loss = converging(sum(losses) / max(1, len(losses)), found)
    return Searched(found, {**kept, **of_adam(remembered(alpha_optimizer))}, loss)


def optimizer_of(alpha: Mapping[str, torch.Tensor], options: FedNASOptions, memory: Tensors) -> Optimizer:
    """α's optimiser; Adam's moments go on from `memory`, by slot name."""
    rate, decay = options.alpha_lr, options.alpha_weight_decay
    if options.alpha_optimizer == "sgd":
        return Sgd(alpha, rate, weight_decay=decay)
    moments = {name.removeprefix(ADAM): value for name, value in memory.items() if name.startswith(ADAM)}
    return Adam(alpha, rate, betas=(0.5, 0.999), weight_decay=decay, memory=moments)


def of_adam(memory: Tensors) -> dict[str, torch.Tensor]:
    return {f"{ADAM}{name}": value for name, value in memory.items()}


def choose(tensors: Tensors, options: FedNASOptions, seed: int, *who: int) -> Arch:
    """The genotype of an α, or, for the control, one drawn at random."""
    space = space_for(options)
    if options.search == "random":
        return space.sample(rng(seed, "random genotype", *who))
    return space.derive([torch.softmax(row, dim=0).numpy() for row in alpha_in(tensors).values()])


@dataclass(frozen=True)
class Search(Method):
    """The federated search: Algorithm 1."""

    options: FedNASOptions

    fields = {"search": Fields(tensors=("*",), meta=("loss",), writes=True)}
    relays = True

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def init(self, setup: Setup, previous: State | None) -> State:
        net, alpha = supernet_model(setup.task, self.options), fresh_alpha(self.options, setup.task.seed)
        trained = [*(name for name, _ in net.named_parameters()), *alpha]
        return State({**weights_of(net), **alpha}, {"parameters": trained})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors, meta = shared(state), {"lr": self.options.rate(r.progress)}
        return state, [Order(client, "search", tensors, meta) for client in r.cohort()]

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        memory = {} if own is None else own.tensors
        found = local_search(order.tensors, memory, data, self.options, order.meta["lr"], run)
        kept = State(found.memory) if self.options.optimizer_state == "keep" else None
        return Reply(order.client, found.tensors, len(data), {"loss": found.loss}), kept

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        """Eq. 5: the mean of w and of α alike, by whichever server optimiser."""
        return server_step(self.options, state, orders, replies)

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return Mixed.of(run.task, self.options, order.tensors)


@dataclass(frozen=True)
class TrainDerived(Averaged):
    """The evaluation stage: the genotype of the averaged α, trained by FedAvg."""

    options: FedNASOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        arch = Arch.from_plain(about["arch"])
        return supernet_model(task, self.options, arch=arch, weights=weights, affine=not self.options.inherit)

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows the search
        arch = choose(previous.tensors, self.options, setup.task.seed)
        state = self.begin(setup.task, {"arch": arch.to_plain()})
        if not self.options.inherit:
            return state
        return State({name: previous.tensors[name] for name in state.tensors}, state.meta)


@dataclass(frozen=True)
class Tune(Personal):
    """§2.5: every client fine-tunes the received (w, α) by Eq. 4."""

    options: FedNASOptions

    @property
    def least_samples(self) -> int:
        return self.options.least_samples

    def rate(self, r: Round) -> float:
        return self.options.rate(r.progress)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        start = order.tensors if own is None else weights_in(own)
        memory = {} if own is None or self.options.optimizer_state == "reset" else own.tensors
        found = local_search({**start}, memory, data, self.options, order.meta["lr"], run)
        return State({**found.tensors, **found.memory})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return Mixed.of(run.task, self.options, order.tensors if own is None else weights_in(own))


@dataclass(frozen=True)
class TrainCut(Personal):
    """The end of the personal mode: every client cuts its network out of its supernet and trains it."""

    options: FedNASOptions

    def rate(self, r: Round) -> float:
        return self.options.rate(r.progress)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        if own is None or "arch" not in own.meta:
            own = self._cut(order.tensors if own is None else weights_in(own), run)
        net = self._cut_model(own, run)
        keeps = self.options.optimizer_state == "keep"
        momentum = momentum_in(own) if keeps else {}
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum)
        return State(own_state(net, trained.momentum if keeps else {}).tensors, own.meta)

    def _cut(self, tensors: Tensors, run: ClientRun) -> State:
        arch = choose(tensors, self.options, run.task.seed, run.identity)
        inherits = self.options.inherit is not False
        net = supernet_model(run.task, self.options, arch=arch, weights=tensors if inherits else None)
        return State(weights_of(net), {"arch": arch.to_plain()})

    def _cut_model(self, own: State, run: ClientRun) -> Model:
        arch = Arch.from_plain(own.meta["arch"])
        return supernet_model(run.task, self.options, arch=arch, weights=weights_in(own))

    def predictor(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Predictor:
        """The cut as it was trained: making plain torch of it takes longer than a round's evaluation."""
        if own is None or "arch" not in own.meta:
            return super().predictor(order, data, own, run)
        return self._cut_model(own, run).to(run.device).eval()

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """The cut as plain torch; a client without one answers with the shared supernet."""
        if own is None or "arch" not in own.meta:
            return Mixed.of(run.task, self.options, order.tensors if own is None else weights_in(own))
        return plain(self._cut_model(own, run))


def stages(task: Task) -> tuple[Stage, ...]:
    o = FedNASOptions(**task.options)
    if o.search == "perturbation":
        return (Stage("train", ServerSearch(o)),)
    search = Stage("search", Search(o), o.search_share)
    if not o.personal:
        return search, Stage("train", TrainDerived(o))
    return search, Stage("tune", Tune(o), o.tune_share), Stage("cut", TrainCut(o), keeps_own=True)


fednas = Recipe(
    "FedNAS (He et al. 2021): federated MiLeNAS, one network for all or, personal=true, one a client",
    FedNASOptions,
    stages,
    short="search",
)

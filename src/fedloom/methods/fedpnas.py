"""FedPNAS: Hoang, Kingsford, "Personalized Neural Architecture Search for Federated
Learning", 2021.

A network of two stacks of cells, a base that is shared and a personal part behind it. Every edge
takes one operation, drawn by the straight-through Gumbel-softmax (Eq. 3): from Π, or by samplers
that look at each sample (§3.4, "CA-"). Clients train weights and architecture together (Alg. 1);
FedPNAS's update expects a step of fine-tuning of the personal part (Eq. 5). The server takes the
plain mean of all clients (Alg. 1, line 6). Then every client tunes its personal part alone.

Four variants by name, one implementation: feddsnas and ca-feddsnas take plain gradients and do not
tune, fedpnas and ca-fedpnas do both. Without a sampler the most likely path is cut out in the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import (
    ClientRun,
    Method,
    Recipe,
    Stage,
    shared,
)
from fedloom.learning.averaging import server_step
from fedloom.learning.personal import Personal
from fedloom.learning.training import converging, training_mode, weights_of
from fedloom.methods.fedpnas_options import (
    Anticipating,
    CaFedDSNASOptions,
    CaFedPNASOptions,
    ContextOptions,
    FedDSNASOptions,
    FedPNASOptions,
    VariantOptions,
)
from fedloom.nets.model import Model, seeded
from fedloom.records.result import SupernetFacts
from fedloom.records.sections import Sections
from fedloom.rng import key, rng
from fedloom.searchers.guides import (
    ContextGuide,
    Draws,
    Guide,
    Guided,
    PathGuide,
    Watched,
)
from fedloom.searchers.gumbel import annealed
from fedloom.searchers.routed_search import Inner, RoutedTraining, train_routed
from fedloom.searchers.routes_taken import routes_taken
from fedloom.spaces.choice import Place
from fedloom.spaces.mixed import alpha_key, model_of_space
from fedloom.types import (
    Arch,
    Fields,
    Json,
    Meta,
    Order,
    Reply,
    Round,
    Setup,
    State,
    Task,
    Tensors,
)

SAMPLER = "sampler."
GUIDE = "guide.samplers."  # the same in a guided network
PERSONAL = ("net.personal.", "net.classifier.", "sampler.personal-")
WIDE = 4.0  # of random logits: wide enough that one operation is clearly the most likely
TUNED = 0.1  # of the learning rates, in tuning


def is_personal(name: str) -> bool:
    """θ_p: the personal cells, the classifier, and what chooses in the personal cells."""
    return name.startswith(PERSONAL) or (name.startswith("alpha/") and ".personal." in name)


@dataclass(frozen=True)
class RoutedStage(Method):
    """A stage whose network is the two stacks with their guide."""

    options: VariantOptions
    task: Task

    @property
    def has_context(self) -> bool:
        return isinstance(self.options, ContextOptions)

    # Its networks

    def model(self, tensors: Tensors | None = None, arch: Arch | None = None) -> Model:
        """The supernet, or the one path that `arch` names."""
        return model_of_space(
            self.task,
            self.options.stack_space,
            self.options.size,
            arch=arch,
            weights=tensors,
            affine=True,
        )

    def guide(self, tensors: Tensors | None = None) -> Guide:
        """Π or samplers, with these tensors or as the seed makes them."""
        space = self.options.stack_space
        if not isinstance(self.options, ContextOptions):
            rows = {}
            for name, row in (tensors or self._first_rows()).items():
                if name.startswith("alpha/"):
                    rows[name] = row.clone()
            return PathGuide(space, rows)
        with seeded(key(self.task.seed, "samplers")):
            guide = ContextGuide(
                space,
                self.options.channels,
                self.task.shape,
                self._places(),
                self.options.logit_bound,
                average=self.options.context == "batch",
            )
        if tensors is None:
            self._widen(guide)
        else:
            with torch.no_grad():
                for name, parameter in guide.named_tensors().items():
                    parameter.copy_(tensors[name])
        return guide

    def _first_rows(self) -> dict[str, torch.Tensor]:
        """Zeros, so that all operations are equally likely; for the control, wide draws."""
        rows = {}
        draws = rng(self.task.seed, "by chance")
        for number, slot in enumerate(self.options.stack_space.slots):
            row = torch.zeros(len(slot.options))
            if self.options.search == "random":
                row = torch.tensor(WIDE * draws.standard_normal(len(slot.options))).float()
            rows[alpha_key(number, slot)] = row
        return rows

    def _widen(self, guide: ContextGuide) -> None:
        """The control's samplers are never trained: their logits must differ by themselves."""
        if self.options.search != "random":
            return
        with torch.no_grad():
            for name, parameter in guide.named_tensors().items():
                if name.endswith("output.weight"):
                    parameter.mul_(WIDE * parameter.shape[1] ** 0.5)

    def _places(self) -> list[Place]:
        cells = self.options.stack_space.slots_by_cell()
        return [Place(number, slots) for number, slots in enumerate(cells)]

    def likely_path(self, tensors: Tensors) -> Arch:
        guide = self.guide(tensors)
        strength = [row.numpy() for row in guide.named_tensors().values()]
        return self.options.stack_space.derive(strength)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """What a client deploys: the most likely path, or with context the guided network."""
        tensors = with_own(order.tensors, own)
        if not self.has_context and not self.options.draws:
            return self.model(tensors, self.likely_path(tensors))
        draws = None
        if self.options.draws:
            draws = Draws(self.options.draws, self.options.tau_end, self.task.seed)
        return Guided(self.model(tensors), self.guide(tensors), draws)

    def routes(self, net: nn.Module, part: Samples, task: Task) -> dict[str, Json] | None:
        if not isinstance(net, Guided):
            return None
        return routes_taken(net, part, task.labels)

    def sections(self, state: State) -> Sections:
        space = self.options.stack_space
        cost = space.cost(
            self.task.shape, len(self.task.labels), space.full(), self.options.size, affine=True
        )
        sampler_params = 0
        for name, tensor in state.tensors.items():
            if name.startswith(SAMPLER):
                sampler_params += tensor.numel()
        return Sections(
            supernet=SupernetFacts(
                space=space.name,
                edges=len(space.slots),
                params=cost.params,
                sampler_params=sampler_params,
            )
        )

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        return frozenset(key for key in net.state_dict() if is_personal(state_name(key)))

    def frozen_names(self, net: nn.Module) -> frozenset[str]:
        """A guided network's samplers: what is adapted is what they choose from (Table 2)."""
        return frozenset(key for key in net.state_dict() if key.startswith(GUIDE))

    # How it trains

    def training(self, tau: float, lr: float, share: float = 1.0) -> RoutedTraining:
        """`share`: of all learning rates."""
        options = self.options
        balance = 0.0
        if isinstance(options, ContextOptions):
            balance = options.balance
        inner = None
        if isinstance(options, Anticipating):
            inner = Inner(options.inner_lr, options.hessian)
        return RoutedTraining(
            steps=options,
            lr=share * lr,
            guide_lr=share * options.alpha_lr,
            guide_decay=options.alpha_weight_decay,
            tau=tau,
            draw=options.draw,
            balance=balance,
            trains_guide=options.search == "gradient",
            inner=inner,
        )


def state_name(key: str) -> str:
    """What a state calls a tensor of a deployed network, guided or not."""
    if key.startswith(GUIDE):
        return SAMPLER + key.removeprefix(GUIDE)
    return key.removeprefix("model.")


def with_own(received: Tensors, own: State | None) -> Tensors:
    """The shared tensors, the personal ones a client's own where it has them."""
    if own is None:
        return received
    return {**received, **own.tensors}


# The federated phase: Algorithm 1


@dataclass(frozen=True)
class Search(RoutedStage):
    """Clients train weights and architecture, the server takes the plain mean."""

    fields = {
        "search": Fields(
            tensors=("*",), meta=("loss", "entropy", "free", "bend", "align"), writes=False
        )
    }
    relays = True
    privacy_notes = (
        "entropy and free are means over a client's samples of how sure its samplers are, and how "
        "often they take an operation without weights",
    )

    def init(self, setup: Setup, previous: State | None) -> State:
        net = self.model()
        parameters = [name for name, _ in net.named_parameters()]
        guide = {name: row.detach() for name, row in self.guide().named_tensors().items()}
        return State({**weights_of(net), **guide}, {"parameters": [*parameters, *guide]})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tensors = shared(state)
        meta = {"lr": self.options.rate(r.progress), "tau": self._tau(r)}
        return state, [Order(client, "search", tensors, meta) for client in r.cohort()]

    def _tau(self, r: Round) -> float:
        return annealed(self.options.tau, self.options.tau_end, r.progress)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """Lines 7 to 15."""
        model = self.model(order.tensors).to(run.device)
        guide = self.guide(order.tensors).to(run.device)
        for tensor in guide.named_tensors().values():
            tensor.requires_grad_(self.options.search == "gradient")
        training_mode(model, self.options.bn)
        how = self.training(order.meta["tau"], order.meta["lr"])
        progress = train_routed(model, guide, data, how, is_personal, run)
        tensors = {**weights_of(model), **learnt(guide)}
        meta: dict[str, float | None] = {"loss": converging(progress.loss, tensors)}
        meta["entropy"] = progress.watched.mean_entropy
        meta["free"] = progress.watched.share_free
        meta["bend"] = None
        meta["align"] = None
        if isinstance(self.options, Anticipating):
            meta["bend"] = progress.bend
            meta["align"] = progress.align
        return Reply(order.client, tensors, 1.0, meta), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Line 6: every client counts the same, whatever its size."""
        merged = server_step(self.options, state, orders, replies)
        noted = dict(merged.meta)
        for name in ("entropy", "free"):
            noted[name] = mean_of(reply.meta[name] for reply in replies)
        # An aggregator's reply leaves out what its clients did not tell.
        bends = [reply.meta["bend"] for reply in replies if reply.meta.get("bend") is not None]
        noted["bend"] = max(bends, default=None)
        noted["align"] = mean_of(reply.meta.get("align") for reply in replies)
        return State(merged.tensors, noted)

    def note_after(self, state: State, r: Round) -> Meta:
        """The temperature, and whether the search has chosen."""
        note: dict[str, float | None] = {"tau": self._tau(r)}
        for name in ("entropy", "free", "bend", "align"):
            note[name] = state.meta.get(name)
        if not self.has_context:
            watched = self._watched(state.tensors)
            note["entropy"] = watched.mean_entropy
            note["free"] = watched.share_free
        return note

    def _watched(self, tensors: Tensors) -> Watched:
        """Of Π, as the server has it."""
        guide = self.guide(tensors)
        watched = Watched()
        for place in self._places():
            log_pi = torch.log_softmax(guide.logits(place, [torch.zeros(1)]), dim=-1)
            watched.add(log_pi, guide.free_options(place))
        return watched


def learnt(guide: Guide) -> dict[str, torch.Tensor]:
    return {name: row.detach().cpu().clone() for name, row in guide.named_tensors().items()}


def mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) / len(known)


# The fine-tuning phase


@dataclass(frozen=True)
class Tune(RoutedStage, Personal):
    """Every client trains θ_p alone; the base keeps its bits, its BN statistics too."""

    fields = {"adapt": Fields(writes=True)}

    def rate(self, r: Round) -> float:
        return TUNED * self.options.lr

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        """A client keeps its personal part and nothing else, so the base is sent every time."""
        meta = {"lr": self.rate(r)}
        started = set(state.meta["started"])
        base = {name: row for name, row in state.tensors.items() if not is_personal(name)}
        orders = []
        for client in r.clients:
            tensors = state.tensors
            if client in started:
                tensors = base
            orders.append(Order(client, "adapt", tensors, meta))
        return state, orders

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        has_personal_part = any(map(is_personal, order.tensors))
        if own is None and not has_personal_part:  # its state was lost
            return Reply(order.client), None
        return Personal.client(self, order, data, own, run)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        tensors = with_own(order.tensors, own)
        model = self.model(tensors).to(run.device)
        guide = self.guide(tensors).to(run.device)
        fix_base(model, guide, self.options.bn)
        how = replace(self.training(self.options.tau_end, self.options.lr, TUNED), inner=None)
        progress = train_routed(model, guide, data, how, is_personal, run)
        trained = {**weights_of(model), **learnt(guide)}
        converging(progress.loss, trained)
        return State({name: row for name, row in trained.items() if is_personal(name)})


def fix_base(model: Model, guide: Guide, bn: str) -> None:
    """The personal part trains; everything else stays, BN's statistics included."""
    training_mode(model, bn)
    for name, part in model.net.named_children():
        if not is_personal(f"net.{name}."):
            part.eval()
    tensors: Mapping[str, torch.Tensor] = {
        **dict(model.named_parameters()),
        **guide.named_tensors(),
    }
    for name, tensor in tensors.items():
        tensor.requires_grad_(is_personal(name))


# The variants


def stages_of(options: VariantOptions, task: Task) -> tuple[Stage, ...]:
    if not options.tune:
        return (Stage("search", Search(options, task)),)
    search = Stage("search", Search(options, task), 1 - options.tune_share)
    return search, Stage("tune", Tune(options, task))


feddsnas = Recipe(
    "FedDSNAS (Hoang, Kingsford 2021): one path drawn a minibatch, its distribution averaged",
    FedDSNASOptions,
    lambda task: stages_of(FedDSNASOptions(**task.options), task),
    short="search",
)
ca_feddsnas = Recipe(
    "CA-FedDSNAS (Hoang, Kingsford 2021): every sample takes its own way, by what it looks like",
    CaFedDSNASOptions,
    lambda task: stages_of(CaFedDSNASOptions(**task.options), task),
    short="search",
)
fedpnas = Recipe(
    "FedPNAS (Hoang, Kingsford 2021): a shared base and a personal part that expects tuning",
    FedPNASOptions,
    lambda task: stages_of(FedPNASOptions(**task.options), task),
    short="search",
)
ca_fedpnas = Recipe(
    "CA-FedPNAS (Hoang, Kingsford 2021): FedPNAS whose samples take their own ways",
    CaFedPNASOptions,
    lambda task: stages_of(CaFedPNASOptions(**task.options), task),
    short="search",
)

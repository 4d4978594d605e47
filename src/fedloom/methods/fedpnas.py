"""FedPNAS: Hoang, Kingsford, "Personalized Neural Architecture Search for Federated
Learning", 2021.

The network has two stacks of cells: a shared base, and a personal part behind it. On every edge one
operation is drawn by the straight-through Gumbel-softmax (Eq. 3): from Π, or by samplers that look
at each sample (§3.4, "CA-"). Clients train weights and architecture together (Alg. 1). FedPNAS's
update anticipates a step of fine-tuning of the personal part (Eq. 5). The server takes the plain
mean over all clients (Alg. 1, line 6). Then every client tunes its personal part only.

There are four variants by name and one implementation: feddsnas and ca-feddsnas use plain gradients
and do not tune, fedpnas and ca-fedpnas anticipate and tune. Without samplers, the most likely path
is cut out in the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.training import converging, training_mode, weights_of
from fedloom.methods.fedpnas_options import (
    Anticipating,
    CaFedDSNASOptions,
    CaFedPNASOptions,
    FedDSNASOptions,
    FedPNASOptions,
    VariantOptions,
)
from fedloom.methods.fedpnas_stage import RoutedStage, guide_tensors, is_personal
from fedloom.methods.fedpnas_tune import Tune
from fedloom.searchers.guides import GuideFigures
from fedloom.searchers.gumbel import annealed
from fedloom.searchers.routed_search import train_routed
from fedloom.types import Fields, Meta, Order, Reply, Round, Setup, State, Task, Tensors


@dataclass(frozen=True)
class Search(RoutedStage):
    """Clients train weights and architecture, and the server takes the plain mean."""

    fields = {
        "search": Fields(
            tensors=("*",),
            meta=("loss", "entropy", "free", "bend", "align"),
            largest=("bend",),
            writes=False,
        )
    }
    relays = True
    privacy_notes = (
        "entropy and free are means over a client's samples: how sure its samplers are, and how "
        "often they choose an operation without a convolution",
        "with context (ca-), a sample's path reveals something about the sample, and the time of "
        "a prediction reveals something about the path: in a federation paths stay at the site, "
        "and so should timings of single predictions; a simulation writes down which paths each "
        "client's test samples take",
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
        """Trains weights and architecture (lines 7 to 15)."""
        model = self.model(order.tensors).to(run.device)
        guide = self.guide(order.tensors).to(run.device)
        for tensor in guide.named_tensors().values():
            tensor.requires_grad_(self.options.search == "gradient")
        training_mode(model, self.options.bn)
        how = self.training(order.meta["tau"], order.meta["lr"])
        progress = train_routed(model, guide, data, how, is_personal, run)
        tensors = {**weights_of(model), **guide_tensors(guide)}
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
        """Takes the plain mean (line 6): all clients count the same, whatever their samples."""
        merged = server_step(self.options, state, orders, replies)
        meta = dict(merged.meta)
        for name in ("entropy", "free", "align"):
            meta[name] = mean_over_clients(replies, name)
        bends = []
        for reply in replies:
            # An aggregator's reply does not have figures that its clients did not report.
            if reply.meta.get("bend") is not None:
                bends.append(reply.meta["bend"])
        meta["bend"] = max(bends, default=None)
        return State(merged.tensors, meta)

    def note_after(self, state: State, r: Round) -> Meta:
        """Returns the temperature, and how far the search has decided."""
        note: dict[str, float | None] = {"tau": self._tau(r)}
        for name in ("entropy", "free", "bend", "align"):
            note[name] = state.meta.get(name)
        if not self.has_context:
            watched = self._watched(state.tensors)
            note["entropy"] = watched.mean_entropy
            note["free"] = watched.share_free
        return note

    def _watched(self, tensors: Tensors) -> GuideFigures:
        """Returns what there is to watch of the server's Π."""
        guide = self.guide(tensors)
        watched = GuideFigures()
        for place in self.places():
            log_pi = torch.log_softmax(guide.logits(place, [torch.zeros(1)]), dim=-1)
            watched.add(log_pi, guide.free_options(place))
        return watched


def mean_over_clients(replies: Iterable[Reply], name: str) -> float | None:
    """Returns the mean of a figure over the clients that report it.

    An aggregator's reply has the mean over its clients.
    """
    total = 0.0
    clients = 0.0
    for reply in replies:
        value = reply.meta.get(name)
        if value is not None:
            count = clients_behind(reply)
            total += count * value
            clients += count
    if not clients:
        return None
    return total / clients


def clients_behind(reply: Reply) -> float:
    """Returns how many clients a reply stands for.

    A client's weight is 1. An aggregator has the number of its clients, for each tensor.
    """
    if isinstance(reply.weight, Mapping):
        return max(reply.weight.values(), default=0.0)
    return reply.weight


# The variants


def stages_of(options: VariantOptions, task: Task) -> tuple[Stage, ...]:
    if not options.tune:
        return (Stage("search", Search(options, task)),)
    search = Stage("search", Search(options, task), 1 - options.tune_share)
    return search, Stage("tune", Tune(options, task))


feddsnas = Recipe(
    "FedDSNAS (Hoang, Kingsford 2021): one path drawn per minibatch, its distribution averaged",
    FedDSNASOptions,
    lambda task: stages_of(FedDSNASOptions(**task.options), task),
    short="search",
)
ca_feddsnas = Recipe(
    "CA-FedDSNAS (Hoang, Kingsford 2021): every sample takes its own path, by what it looks like",
    CaFedDSNASOptions,
    lambda task: stages_of(CaFedDSNASOptions(**task.options), task),
    short="search",
)
fedpnas = Recipe(
    "FedPNAS (Hoang, Kingsford 2021): a shared base and a personal part that anticipates tuning",
    FedPNASOptions,
    lambda task: stages_of(FedPNASOptions(**task.options), task),
    short="search",
)
ca_fedpnas = Recipe(
    "CA-FedPNAS (Hoang, Kingsford 2021): FedPNAS in which every sample takes its own path",
    CaFedPNASOptions,
    lambda task: stages_of(CaFedPNASOptions(**task.options), task),
    short="search",
)

"""The models of a finished run: the shared one, and each client's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from fedloom.config.models import Fit
from fedloom.data.partition import parse
from fedloom.data.samples import Samples
from fedloom.data.source import Source
from fedloom.data.tables.encoding import Encoding
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import LostState
from fedloom.federation.protocol.method import ClientRun, Method, Predictor, Stage
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.records.opening import FinishedRun
from fedloom.types import Order, State, Task


@dataclass(frozen=True)
class Served:
    """One model of a run, with everything that its method needs to build it."""

    method: Method
    order: Order
    data: Samples  # the client's training samples
    own: State | None
    run: ClientRun

    def network(self) -> nn.Module:
        return self.method.network(self.order, self.data, self.own, self.run)

    def predictor(self) -> Predictor:
        return self.method.predictor(self.order, self.data, self.own, self.run)


@dataclass(frozen=True)
class NamedModel:
    """A model of a run that belongs to no client: a tier's network, or the result of a search."""

    name: str  # used for its folder
    title: str  # as it is called in a sentence
    order: Order  # from which the last stage's method builds it
    figures: str  # a sentence about its results


def served(at: Checkpoint, task: Task, site: Site, client: int) -> Served:
    """The model of a client as it was last evaluated; the shared one, if it has no own model."""
    stage = site.resolve(task)[at.stage]
    version = at.versions.get(client)
    own = None
    if version is not None:
        try:
            own = site.store.read(client, version)
        except LostState as error:
            rule = "a client's state must still be there"
            raise FedloomError(rule, str(error), "run it again") from None
    run = ClientRun(
        task=task,
        stage=stage.name,
        round=at.round,
        hop=0,
        identity=site.identity(client),
        device=site.device,
        secret=site.secret_source(site.identity(client)),
    )
    order = stage.method.serve(at.state, client)
    return Served(stage.method, order, site.data(client).train, own, run)


@dataclass(frozen=True)
class EarlierRun:
    """A run whose weights another run started from, directly by --init or through other runs."""

    path: Path
    training: Iterable[torch.Tensor] | None  # its training samples, part by part; None: unknown


def no_earlier_runs() -> Iterable[EarlierRun]:
    return ()


@dataclass(frozen=True)
class Finished:
    """All models of a finished run. `fedloom.runs.finished` opens one."""

    run: FinishedRun
    task: Task
    stages: Sequence[Stage]
    source: Source  # without samples, if the run is a federation's
    clients: int
    at: Checkpoint
    site: Site | None  # where the clients' states and samples are; None: at a federation's sites
    here: int | None = None  # at a site of a federation, its client: only its state is here
    named: NamedModel | None = None  # used in place of the shared model
    # Opens the runs that this one started from, and their data.
    earlier: Callable[[], Iterable[EarlierRun]] = no_earlier_runs

    @property
    def stage(self) -> Stage:
        return self.stages[self.at.stage]

    @property
    def clients_here(self) -> range:
        """The clients whose samples are here; at a site of a federation only its own client."""
        if self.here is not None:
            return range(self.here, self.here + 1)
        return range(self.clients)

    def whose(self, client: int | None) -> str:
        """How a model is called in a sentence."""
        if client is not None:
            return f"the model of client {client}"
        if self.named is not None:
            return self.named.title
        return "the shared model"

    @property
    def resize(self) -> int | None:
        """The side to which images were resized; None: they were not."""
        network_input = self.run.record.input
        if network_input is None:
            return None
        return network_input.resize

    @property
    def fit(self) -> Fit:
        """What was done with images that were not square, if images were resized."""
        network_input = self.run.record.input
        if network_input is None:
            return "stretch"
        return network_input.fit

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of its table were encoded; None: the data is not a table."""
        network_input = self.run.record.input
        if network_input is None:
            return None
        return network_input.encoding

    @property
    def is_tinted(self) -> bool:
        """Whether its grey images were given a colour before they went into the network."""
        return parse(self.run.record.data.partition).has_tint

    def served(self, client: int | None) -> Served:
        """A client's model, or the shared one: `named`, where a tier's or a search's was asked."""
        if client is None:
            return self._shared()
        if self.named is not None:
            rule = "one of client, tier and search must be given"
            raise FedloomError(rule, f"got client {client} and {self.named.name}", "leave one out")
        if client not in range(self.clients):
            advice = f"choose from 0 to {self.clients - 1}"
            raise FedloomError("--client must be one of the run's clients", f"got {client}", advice)
        if self.site is None or self.here not in (None, client):
            copy = f"copy {self.run.path} to that site and add --kit and --kit-data there"
            raise FedloomError(
                f"the model of client {client} must be on this machine",
                f"in a federation it never left {self._name(client)}",
                f"{copy}, or use --shared here",
            )
        return served(self.at, self.task, self.site, client)

    def _shared(self) -> Served:
        method = self.stage.method
        if self.named is None and not method.shares:
            raise FedloomError(
                "--shared must be used with a method that has one model for all clients",
                f"{self.task.method} gives every client its own model",
                "choose a client with --client",
            )
        no_samples = Samples(torch.zeros(0, *self.task.shape), torch.zeros(0, dtype=torch.int64))
        run = ClientRun(
            task=self.task,
            stage=self.stage.name,
            round=self.at.round,
            hop=0,
            identity=0,
            device="cpu",
            secret=bytes,
        )
        if self.named is not None:
            return Served(method, self.named.order, no_samples, None, run)
        return Served(method, method.serve(self.at.state, 0), no_samples, None, run)

    def _name(self, client: int) -> str:
        names = self.source.group_names
        if client < len(names):
            return names[client]
        return "its site"

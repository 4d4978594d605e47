"""A finished run, opened again: the state it reports, and each client's network as its method makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.samples import Samples
from fedloom.data.split import ARRAYS
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore, LostState
from fedloom.federation.protocol.method import ClientRun, Method, Predictor, Stage
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.methods import stages
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun, tell_damage
from fedloom.runs.experiment import Prepared, reopen
from fedloom.types import Order, Setup, State, Task

AtSite = tuple[Path, str, Path | None]  # a start kit, the site's --data and --data-dir


@dataclass(frozen=True)
class Served:
    """One model of a run, with all that its method needs to make it."""

    method: Method
    order: Order
    data: Samples  # the client's, without its test part
    own: State | None
    run: ClientRun

    def network(self) -> nn.Module:
        return self.method.network(self.order, self.data, self.own, self.run)

    def predictor(self) -> Predictor:
        return self.method.predictor(self.order, self.data, self.own, self.run)


def served(at: Checkpoint, task: Task, site: Site, client: int) -> Served:
    """A client's own model, as it was evaluated last; the shared one, if it has none."""
    stage, version = site.resolve(task)[at.stage], at.versions.get(client)
    try:
        own = None if version is None else site.store.read(client, version)
    except LostState as error:
        raise FedloomError("a client's state must still be there", str(error), "run it again") from None
    run = ClientRun(task, stage.name, at.round, 0, site.identity(client), site.device, site.store.secret)
    return Served(stage.method, stage.method.serve(at.state, client), site.data(client).train, own, run)


def at_the_end(at: Checkpoint, prepared: Prepared) -> Checkpoint:
    """The last stage's state also where nothing was left of the budget for it: then it is what it began with."""
    for number in range(at.stage + 1, len(prepared.stages)):
        stage = prepared.stages[number]
        state = stage.method.init(Setup(prepared.task, len(prepared.split), at.described), at.state)
        at = replace(at, stage=number, state=state, versions=at.versions if stage.keeps_own else {})
    return at


@dataclass(frozen=True)
class Finished:
    """All of a run's models."""

    run: FinishedRun
    prepared: Prepared
    at: Checkpoint
    site: Site | None  # where the clients' own states and samples are; None: at sites of a federation, not here
    here: int | None = None  # at a site of a federation: the only client whose own state is here

    @classmethod
    def open(cls, path: Path | str, at_site: AtSite | None = None) -> Finished:
        run = FinishedRun.open(path)
        folder = RunFolder(run.path)
        tell_damage(folder)
        if not folder.config().is_federated:
            if at_site is not None:
                must, todo = "--kit must be for a run of a federation", "leave --kit out: all of it is here"
                raise FedloomError(must, f"{path} is a simulation", todo)
            prepared = reopen(folder)
            site: Site | None = embedded_site(folder, prepared)
            here = None
        else:
            from fedloom.deploy.settled import prepared_from, site_of

            prepared = prepared_from(folder)
            site, here = (None, None) if at_site is None else site_of(*at_site, prepared)
        return cls(run, prepared, at_the_end(Archive(folder.path).final(), prepared), site, here)

    @property
    def task(self) -> Task:
        return self.prepared.task

    @property
    def stage(self) -> Stage:
        return self.prepared.stages[self.at.stage]

    def served(self, client: int | None) -> Served:
        """A client's model, or the shared one."""
        if client is None:
            return self._shared()
        if client not in range(len(self.prepared.split)):
            count = len(self.prepared.split)
            raise FedloomError("--client must be one of the run's", f"got {client}", f"choose from 0 to {count - 1}")
        if self.site is None or self.here not in (None, client):
            todo = f"give that site a copy of {self.run.path} and add --kit and --kit-data there, or take --shared here"
            found = f"in a federation it never left {self._name(client)}"
            raise FedloomError(f"the model of client {client} must be at hand", found, todo)
        return served(self.at, self.task, self.site, client)

    def _shared(self) -> Served:
        if not self.stage.method.shares:
            must = "--shared must be of a method with one model for all"
            raise FedloomError(must, f"{self.task.method} gives every client its own", "name one with --client")
        nobody = Samples(torch.zeros(0, *self.task.shape), torch.zeros(0, dtype=torch.int64))
        run = ClientRun(self.task, self.stage.name, self.at.round, 0, 0, "cpu", bytes)
        return Served(self.stage.method, self.stage.method.serve(self.at.state, 0), nobody, None, run)

    def _name(self, client: int) -> str:
        names: Sequence[str] = self.prepared.source.group_names
        return names[client] if client < len(names) else "its site"


def embedded_site(folder: RunFolder, prepared: Prepared) -> Site:
    """The one process's view of all clients of an embedded run; nothing is copied or written."""
    source, split = prepared.source, prepared.split
    split.check(source)
    arrays: dict[str, np.ndarray] = {name: getattr(split, name) for name in ARRAYS}
    clients_data = MappedClients({"x": source.x, "y": source.y, **arrays}, split.partition)
    return Site(
        lambda client: clients_data.client(client, prepared.hold), ClientStore(folder.path / "clients"), stages,
        prepared.task.shape, prepared.task.labels, prepared.config.engine.device,
    )  # fmt: skip

"""Wrappers of methods that record how a method is called and what it does."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Predictor
from fedloom.types import Json, Order, Reply, Round, Setup, State

M = TypeVar("M", bound=Method)


def watched(method: M, watcher: type[Method], **attributes: Any) -> M:
    """A copy of `method` whose class inherits from the watcher first, then from its own class.

    `attributes` are attributes of the new class.
    """
    twin = copy(method)
    kind = type(method)
    watched_kind = type(kind.__name__, (watcher, kind), attributes)
    object.__setattr__(twin, "__class__", watched_kind)  # the method may be frozen
    return twin


@dataclass(frozen=True)
class Merge:
    """One call of merge.

    The replies' tensors are memory-mapped; they stay readable even if the files are gone.
    """

    method: Method
    state: State
    orders: tuple[Order, ...]
    replies: tuple[Reply, ...]
    round: Round


@dataclass
class ServerLog:
    merges: list[Merge] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)  # calls that touched a global generator
    methods: list[Method] = field(default_factory=list)  # one per stage

    def watch(self, method: Method) -> Method:
        twin = watched(method, WatchedServer, log=self, origin=method)
        self.methods.append(twin)
        return twin


class WatchedServer(Method):
    log: ClassVar[ServerLog]
    origin: ClassVar[Method]

    def init(self, setup: Setup, previous: State | None) -> State:
        with self._no_draws("init"):
            return super().init(setup, previous)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        with self._no_draws("plan"):
            return super().plan(state, r)

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        self.log.merges.append(Merge(self.origin, state, tuple(orders), tuple(replies), r))
        with self._no_draws("merge"):
            return super().merge(state, orders, replies, r)

    def serve(self, state: State, client: int) -> Order:
        with self._no_draws("serve"):
            return super().serve(state, client)

    def _no_draws(self, call: str) -> AbstractContextManager[None]:
        return noting_draws(call, self.log.draws, ("torch", "numpy", "random"))


@contextmanager
def noting_draws(call: str, draws: list[str], libraries: Sequence[str]) -> Iterator[None]:
    """Add to `draws` which of these libraries' global generators the call inside has used."""
    before = generators()
    yield
    after = generators()
    for library in libraries:
        if before[library] != after[library]:
            draws.append(f"{call} drew from the global generator of {library}")


def generators() -> dict[str, Any]:
    """The states of the global random generators, as values that can be compared."""
    kind, keys, *position = np.random.get_state()
    return {
        "torch": bytes(torch.random.get_rng_state().numpy()),
        "numpy": (kind, bytes(np.asarray(keys)), *position),
        "random": random.getstate(),
    }


@contextmanager
def stirred(seed: int) -> Iterator[None]:
    """Seed the global random generators inside the block; afterwards they are as before."""
    torch_state = torch.random.get_rng_state()
    numpy_state = np.random.get_state()
    python_state = random.getstate()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.random.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)


@dataclass(frozen=True)
class DataCall:
    """A call of a method's client side that was given samples."""

    name: str  # of the method's function
    client: int
    samples: Samples


@dataclass
class ClientLog:
    """What a method's client side was given, and the networks that it built."""

    data: list[DataCall] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)  # calls that touched a global generator
    networks: dict[str, nn.Module] = field(default_factory=dict)  # the first one of each stage

    def watch(self, method: Method) -> Method:
        return watched(method, WatchedClient, log=self, origin=method)


class WatchedClient(Method):
    log: ClassVar[ClientLog]
    origin: ClassVar[Method]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        self.log.data.append(DataCall("client", order.client, data))
        if run.stage not in self.log.networks:
            self.log.networks[run.stage] = self.origin.network(order, data, own, run)
        with noting_draws("client", self.log.draws, ("numpy", "random")):
            return super().client(order, data, own, run)

    def predictor(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> Predictor:
        self.log.data.append(DataCall("predictor", order.client, data))
        return super().predictor(order, data, own, run)

    def network(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> nn.Module:
        self.log.data.append(DataCall("network", order.client, data))
        return super().network(order, data, own, run)

    def describe_client(self, ask: Json, data: Samples, run: ClientRun) -> dict[str, Json]:
        self.log.data.append(DataCall("describe_client", run.identity, data))
        return super().describe_client(ask, data, run)

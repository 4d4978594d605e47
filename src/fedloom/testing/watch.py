"""Methods that do what another does, and take down how."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
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


def watched(method: M, watcher: type[Method], **known: Any) -> M:
    """A twin of `method` of a class of its own: the watcher stands before it, `known` is the class's."""
    twin = copy(method)
    kind = type(method)
    object.__setattr__(twin, "__class__", type(kind.__name__, (watcher, kind), known))  # it may be frozen
    return twin


@dataclass(frozen=True)
class Merge:
    """One call of merge. Reply tensors are maps of files that may be gone; they stay readable."""

    method: Method
    state: State
    orders: tuple[Order, ...]
    replies: tuple[Reply, ...]
    round: Round


@dataclass
class ServerLog:
    merges: list[Merge] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)  # calls that touched a global generator
    methods: list[Method] = field(default_factory=list)  # a stage each

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

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        self.log.merges.append(Merge(self.origin, state, tuple(orders), tuple(replies), r))
        with self._no_draws("merge"):
            return super().merge(state, orders, replies, r)

    def serve(self, state: State, client: int) -> Order:
        with self._no_draws("serve"):
            return super().serve(state, client)

    @contextmanager
    def _no_draws(self, call: str) -> Iterator[None]:
        before = generators()
        yield
        after = generators()
        self.log.draws += [f"{call} drew from {name}" for name in before if before[name] != after[name]]


def generators() -> dict[str, Any]:
    """The global generators' states, as something to compare."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": bytes(torch.random.get_rng_state().numpy()),
        "numpy": (kind, bytes(np.asarray(keys)), *rest),
        "random": random.getstate(),
    }


@contextmanager
def stirred(seed: int) -> Iterator[None]:
    """With other global generators than before; they are put back."""
    states = torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.random.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@dataclass
class ClientLog:
    """What a method's client side was given, and the networks it makes of its orders."""

    data: list[tuple[str, int, Samples]] = field(default_factory=list)  # (call, client, samples)
    networks: dict[str, nn.Module] = field(default_factory=dict)  # the first of each stage

    def watch(self, method: Method) -> Method:
        return watched(method, WatchedClient, log=self, origin=method)


class WatchedClient(Method):
    log: ClassVar[ClientLog]
    origin: ClassVar[Method]

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        self.log.data.append(("client", order.client, data))
        if run.stage not in self.log.networks:
            self.log.networks[run.stage] = self.origin.network(order, data, own, run)
        return super().client(order, data, own, run)

    def predictor(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Predictor:
        self.log.data.append(("predictor", order.client, data))
        return super().predictor(order, data, own, run)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        self.log.data.append(("network", order.client, data))
        return super().network(order, data, own, run)

    def describe_client(self, ask: Json, data: Samples, run: ClientRun) -> dict[str, Json]:
        self.log.data.append(("describe_client", run.identity, data))
        return super().describe_client(ask, data, run)

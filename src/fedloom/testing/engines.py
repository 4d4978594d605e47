"""Engines that wrap another engine to record, reorder, stop, spoil or drop its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.admission import matches
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Engine, Parcel
from fedloom.federation.protocol.wire import read_order, read_reply, reply_chunks
from fedloom.rng import rng, torch_rng
from fedloom.threads import one_thread
from fedloom.types import Order, Reply, Stamp, State

V = TypeVar("V")
Answers = Iterator[tuple[Parcel, Envelope]]


class Stop(Exception):
    """Stands for the end of a run's process."""


def order_of(parcel: Parcel) -> Order:
    return read_order(parcel.head, b"".join(parcel.body.chunks))


def stamp_of(order: Order) -> Stamp:
    assert order.stamp is not None  # the loop stamps every order
    return order.stamp


@dataclass(frozen=True)
class Exchange:
    """One order and its reply, as bytes."""

    head: bytes
    body: bytes
    answer: bytes | None  # None: there was a fault
    envelope: Envelope

    @property
    def order(self) -> Order:
        return read_order(self.head, self.body)

    @property
    def reply(self) -> Reply:
        assert self.answer is not None
        return read_reply(self.answer)


@dataclass(frozen=True)
class Passing:
    """Passes everything on; the subclasses below change something."""

    inner: Engine

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        return self.inner.ask(parcels, deadline)


@dataclass(frozen=True)
class Recorder(Passing):
    """Records every exchange."""

    exchanges: list[Exchange] = field(default_factory=list)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        for parcel, envelope in self.inner.ask(parcels, deadline):
            answer = None
            if envelope.fault is None:
                answer = parcel.reply.read_bytes()
            body = b"".join(parcel.body.chunks)
            self.exchanges.append(Exchange(parcel.head, body, answer, envelope))
            yield parcel, envelope


@dataclass(frozen=True)
class Shuffled(Passing):
    """Asks clients in one random order, and returns their answers in another.

    Answers of several clients never arrive in the order of the parcels.
    """

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        name = ""
        if parcels:
            name = parcels[0].reply.name
        generator = rng(0, "shuffled", len(parcels), name)
        answers = list(self.inner.ask(permuted(parcels, generator), deadline))
        order = list(parcels)
        while len(answers) > 1 and order == list(parcels):
            answers = permuted(answers, generator)
            order = [parcel for parcel, _ in answers]
        yield from answers


def permuted(items: Sequence[V], generator: np.random.Generator) -> list[V]:
    """The same items in a random order."""
    places = generator.permutation(len(items))
    return [items[place] for place in places]


@dataclass(frozen=True)
class Stopping(Passing):
    """Stops the run once at every order.

    At that moment the client has done its work and saved its state, but its reply is not recorded.
    """

    stops: set[tuple[int, int, int]] = field(default_factory=set)  # (round, hop, client)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        for parcel, envelope in self.inner.ask(parcels, deadline):
            stamp = stamp_of(order_of(parcel))
            place = (stamp.round, stamp.hop, parcel.client)
            if stamp.write is not None and place not in self.stops:
                self.stops.add(place)
                raise Stop
            yield parcel, envelope


@dataclass(frozen=True)
class Victim:
    """The order of a round that shall fail."""

    parcel: Parcel
    round: int


def victim(parcels: Sequence[Parcel]) -> Victim | None:
    """The order of a round that shall fail, another one each round.

    None: these are not orders for work, or there is only one.
    """
    if len(parcels) < 2:
        return None
    stamp = stamp_of(order_of(parcels[0]))
    if stamp.write is None:
        return None
    return Victim(parcels[stamp.round % len(parcels)], stamp.round)


@dataclass(frozen=True)
class Absent(Passing):
    """One client per round cannot be reached."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        lost = victim(parcels)
        if lost is None:
            yield from self.inner.ask(parcels, deadline)
            return
        reachable = [parcel for parcel in parcels if parcel is not lost.parcel]
        yield from self.inner.ask(reachable, deadline)
        yield lost.parcel, Envelope(fault=Fault("died", "out of reach"))


@dataclass(frozen=True)
class Spoiling(Passing):
    """The same client works and saves its state, but its reply arrives damaged and is refused."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        spoiled = victim(parcels)
        for parcel, envelope in self.inner.ask(parcels, deadline):
            if spoiled is not None and parcel is spoiled.parcel and envelope.fault is None:
                spoil = SPOILS[spoiled.round % len(SPOILS)]
                parcel.reply.put([spoil(parcel.reply.read_bytes())])
            yield parcel, envelope


@dataclass(frozen=True)
class Exploding(Passing):
    """The same client sends weights that are finite but so large that training would diverge."""

    # The client of each round. It is passed on to the next attempt when a run is stopped.
    chosen: dict[int, int] = field(default_factory=dict)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        exploding = victim(parcels)
        if exploding is not None:
            self.chosen.setdefault(exploding.round, exploding.parcel.client)
        for parcel, envelope in self.inner.ask(parcels, deadline):
            stamp = stamp_of(order_of(parcel))
            did_work = stamp.write is not None and envelope.fault is None
            if did_work and parcel.client == self.chosen.get(stamp.round):
                parcel.reply.put([exploded(parcel.reply.read_bytes())])
            yield parcel, envelope


def filled(reply: Reply, value: float) -> Reply:
    """A reply with this value in all its floating-point tensors."""
    tensors = dict(reply.tensors)
    for name, tensor in reply.tensors.items():
        if tensor.is_floating_point():
            tensors[name] = torch.full_like(tensor, value)
    return replace(reply, tensors=tensors)


def exploded(answer: bytes) -> bytes:
    return encoded(filled(read_reply(answer), 1e30))


def torn(answer: bytes) -> bytes:
    return answer[:-1]


def overweight(answer: bytes) -> bytes:
    return encoded(replace(read_reply(answer), weight=1e300))


def not_finite(answer: bytes) -> bytes:
    """A reply full of NaN; if it has no tensors, a reply with an undeclared field."""
    reply = read_reply(answer)
    if any(tensor.is_floating_point() for tensor in reply.tensors.values()):
        return encoded(filled(reply, torch.nan))
    return encoded(replace(reply, meta={**reply.meta, "contraband": 1}))


def foreign(answer: bytes) -> bytes:
    reply = read_reply(answer)
    return encoded(replace(reply, client=reply.client + 1))


SPOILS: tuple[Callable[[bytes], bytes], ...] = (torn, overweight, not_finite, foreign)


def encoded(reply: Reply) -> bytes:
    return b"".join(reply_chunks(reply))


@dataclass(frozen=True)
class Forging(Passing):
    """Before each order that reads a client's state, asks a copy of the site whose state is forged.

    Only the sealed part of the state is forged: the replies must not change.
    """

    site: Site
    folder: Path  # of the copy's states
    forgeries: list[str] = field(default_factory=list)  # descriptions of all forgeries
    leaks: list[str] = field(default_factory=list)  # those that changed the reply

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        stamps = {parcel.client: stamp_of(order_of(parcel)) for parcel in parcels}
        owns = {}
        for client, stamp in stamps.items():
            if stamp.read is not None and stamp.write is not None:
                owns[client] = self.site.store.read(client, stamp.read)
        answers = {}
        for parcel in parcels:
            if parcel.client in owns:
                answers[parcel.client] = self._forged(parcel, stamps[parcel.client], owns)
        for parcel, envelope in self.inner.ask(parcels, deadline):
            for name, answer in answers.get(parcel.client, {}).items():
                self.forgeries.append(name)
                if envelope.fault is None and parcel.reply.read_bytes() != answer:
                    self.leaks.append(name)
            yield parcel, envelope

    def _forged(self, parcel: Parcel, stamp: Stamp, owns: Mapping[int, State]) -> dict[str, bytes]:
        """The client's replies with forged states, by the description of the forgery."""
        seals = self._seals(stamp)
        if not seals:
            return {}
        own = owns[parcel.client]
        place = f"round {stamp.round}, client {parcel.client}"
        states = {f"{place}: noise": noisy(own, seals)}
        other_clients = sorted(owns.keys() - {parcel.client})
        if other_clients:
            other = owns[other_clients[0]]
            states[f"{place}: another client's state"] = swapped(own, other, seals)
        answers = {}
        for name, state in states.items():
            answers[name] = self._answer_with(parcel, str(stamp.read), state)
        return answers

    def _seals(self, stamp: Stamp) -> tuple[str, ...]:
        """The patterns of what the stage of an order seals."""
        stages = self.site.resolve(stamp.task)
        return next(stage.method.seals for stage in stages if stage.name == stamp.stage)

    def _answer_with(self, parcel: Parcel, version: str, state: State) -> bytes:
        """What a copy of the site replies if the client has this state."""
        store = ClientStore(self.folder)
        store.write(parcel.client, version, state)
        copied_site = replace(self.site, store=store)
        with one_thread():
            chunks, envelope = copied_site.handle(parcel.head, b"".join(parcel.body.chunks))
        if envelope.fault is not None:
            return envelope.fault.text.encode()
        return b"".join(chunks)


def noisy(own: State, seals: tuple[str, ...]) -> State:
    """A state whose sealed tensors are noise of the same shape and type."""
    tensors = dict(own.tensors)
    for name, tensor in own.tensors.items():
        if not matches(name, seals):
            continue
        noise = torch.randn(tensor.shape, generator=torch_rng(0, "noise", name))
        if not tensor.is_floating_point():
            noise = 10 * noise.abs()
        tensors[name] = noise.to(tensor.dtype)
    return State(tensors, own.meta)


def swapped(own: State, other: State, seals: tuple[str, ...]) -> State:
    """A state whose sealed tensors and meta are those of another client."""
    return State(mixed(own.tensors, other.tensors, seals), mixed(own.meta, other.meta, seals))


def mixed(own: Mapping[str, V], other: Mapping[str, V], seals: tuple[str, ...]) -> dict[str, V]:
    """The unsealed values of the one, and the sealed values of the other."""
    values = {}
    for name, value in own.items():
        if not matches(name, seals):
            values[name] = value
    for name, value in other.items():
        if matches(name, seals):
            values[name] = value
    return values

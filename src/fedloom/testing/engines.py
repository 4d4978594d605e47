"""Engines around an engine: they take down, mix up, stop, spoil or drop what passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import torch

from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.wire import read_order, read_reply, reply_chunks
from fedloom.federation.server.parcels import Engine, Parcel
from fedloom.rng import rng, torch_rng
from fedloom.threads import one_thread
from fedloom.types import Order, Reply, Stamp, State

V = TypeVar("V")
Answers = Iterator[tuple[Parcel, Envelope]]


class Stop(Exception):
    """A run's process is gone."""


def order_of(parcel: Parcel) -> Order:
    return read_order(parcel.head, b"".join(parcel.body.chunks))


def stamp_of(order: Order) -> Stamp:
    assert order.stamp is not None  # the loop stamps every order
    return order.stamp


@dataclass(frozen=True)
class Exchange:
    """One order and what came back, as bytes."""

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
    """Hands everything on; the ones below change something."""

    inner: Engine

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        return self.inner.ask(parcels, deadline)


@dataclass(frozen=True)
class Recorder(Passing):
    exchanges: list[Exchange] = field(default_factory=list)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        for parcel, envelope in self.inner.ask(parcels, deadline):
            answer = parcel.reply.read_bytes() if envelope.fault is None else None
            self.exchanges.append(Exchange(parcel.head, b"".join(parcel.body.chunks), answer, envelope))
            yield parcel, envelope


@dataclass(frozen=True)
class Reversed(Passing):
    """The last asked answers first."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        yield from reversed(list(self.inner.ask(parcels, deadline)))


@dataclass(frozen=True)
class Shuffled(Passing):
    """Asks in one random order, and answers in another."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        generator = rng(0, "shuffled", len(parcels), parcels[0].reply.name if parcels else "")
        answers = list(self.inner.ask([parcels[i] for i in generator.permutation(len(parcels))], deadline))
        yield from (answers[i] for i in generator.permutation(len(answers)))


@dataclass(frozen=True)
class Stopping(Passing):
    """Stops once at every order: the client has done its work and saved its state, but nobody noted its reply."""

    stops: set[tuple[int, int, int]] = field(default_factory=set)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        for parcel, envelope in self.inner.ask(parcels, deadline):
            stamp = stamp_of(order_of(parcel))
            place = (stamp.round, stamp.hop, parcel.client)
            if stamp.write is not None and place not in self.stops:
                self.stops.add(place)
                raise Stop
            yield parcel, envelope


def victim(parcels: Sequence[Parcel]) -> tuple[Parcel | None, int]:
    """Of a round's work, the one order that is to fail, another one each round; never the only one."""
    if len(parcels) < 2:
        return None, 0
    stamp = stamp_of(order_of(parcels[0]))
    return (parcels[stamp.round % len(parcels)] if stamp.write is not None else None), stamp.round


@dataclass(frozen=True)
class Absent(Passing):
    """One client a round cannot be reached."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        lost, _ = victim(parcels)
        yield from self.inner.ask([parcel for parcel in parcels if parcel is not lost], deadline)
        if lost is not None:
            yield lost, Envelope(fault=Fault("died", "out of reach"))


@dataclass(frozen=True)
class Spoiling(Passing):
    """The same client works and saves its state, but its reply arrives in a way that must be refused."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        bad, number = victim(parcels)
        for parcel, envelope in self.inner.ask(parcels, deadline):
            if parcel is bad and envelope.fault is None:
                parcel.reply.put([SPOILS[number % len(SPOILS)](parcel.reply.read_bytes())])
            yield parcel, envelope


@dataclass(frozen=True)
class Exploding(Passing):
    """The same client sends weights that are finite, and so large that everybody would diverge with them.

    `chosen` is who, by round: it outlives a try that is stopped.
    """

    chosen: dict[int, int] = field(default_factory=dict)

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        bad, number = victim(parcels)
        if bad is not None:
            self.chosen.setdefault(number, bad.client)
        for parcel, envelope in self.inner.ask(parcels, deadline):
            stamp = stamp_of(order_of(parcel))
            works = stamp.write is not None and envelope.fault is None
            if works and parcel.client == self.chosen.get(stamp.round):
                parcel.reply.put([exploded(parcel.reply.read_bytes())])
            yield parcel, envelope


def exploded(answer: bytes) -> bytes:
    reply = read_reply(answer)
    floats = {name: tensor for name, tensor in reply.tensors.items() if tensor.is_floating_point()}
    huge = {name: torch.full_like(tensor, 1e30) for name, tensor in floats.items()}
    return encoded(replace(reply, tensors={**reply.tensors, **huge}))


def torn(answer: bytes) -> bytes:
    return answer[:-1]


def overweight(answer: bytes) -> bytes:
    return encoded(replace(read_reply(answer), weight=1e300))


def not_finite(answer: bytes) -> bytes:
    """A NaN among the tensors; where there are none, a field that nobody declared."""
    reply = read_reply(answer)
    floats = {name: tensor for name, tensor in reply.tensors.items() if tensor.is_floating_point()}
    poisoned = {name: torch.full_like(tensor, torch.nan) for name, tensor in floats.items()}
    if not poisoned:
        return encoded(replace(reply, meta={**reply.meta, "contraband": 1}))
    return encoded(replace(reply, tensors={**reply.tensors, **poisoned}))


def foreign(answer: bytes) -> bytes:
    reply = read_reply(answer)
    return encoded(replace(reply, client=reply.client + 1))


SPOILS: tuple[Callable[[bytes], bytes], ...] = (torn, overweight, not_finite, foreign)


def encoded(reply: Reply) -> bytes:
    return b"".join(reply_chunks(reply))


@dataclass(frozen=True)
class Forging(Passing):
    """Before each order that reads a client's state, asks a twin of the site whose sealed part is forged."""

    site: Site
    folder: Path  # of the twin's states
    tried: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)  # replies that the forgery changed

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Answers:
        stamps = {parcel.client: stamp_of(order_of(parcel)) for parcel in parcels}
        owns = {
            client: self.site.store.read(client, stamp.read)
            for client, stamp in stamps.items()
            if stamp.read is not None and stamp.write is not None
        }
        answers = {p.client: self._forged(p, stamps[p.client], owns) for p in parcels if p.client in owns}
        for parcel, envelope in self.inner.ask(parcels, deadline):
            for name, answer in answers.get(parcel.client, {}).items():
                self.tried.append(name)
                if envelope.fault is None and parcel.reply.read_bytes() != answer:
                    self.leaks.append(name)
            yield parcel, envelope

    def _forged(self, parcel: Parcel, stamp: Stamp, owns: Mapping[int, State]) -> dict[str, bytes]:
        """What the client replies with forged states, by the way of forging."""
        seals = next(s.method.seals for s in self.site.resolve(stamp.task) if s.name == stamp.stage)
        own, place = owns[parcel.client], f"round {stamp.round}, client {parcel.client}"
        others = [state for client, state in sorted(owns.items()) if client != parcel.client]
        states = {f"{place}: noise": noisy(own, seals)} if seals else {}
        if seals and others:
            states[f"{place}: another client's state"] = swapped(own, others[0], seals)
        return {name: self._twin(parcel, str(stamp.read), state) for name, state in states.items()}

    def _twin(self, parcel: Parcel, version: str, state: State) -> bytes:
        store = ClientStore(self.folder)
        store.write(parcel.client, version, state)
        with one_thread():
            chunks, envelope = replace(self.site, store=store).handle(parcel.head, b"".join(parcel.body.chunks))
        return b"".join(chunks) if envelope.fault is None else envelope.fault.text.encode()


def sealed(name: str, seals: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in seals)


def noisy(own: State, seals: tuple[str, ...]) -> State:
    """Every sealed tensor as noise of its shape and type."""
    forged = {}
    for name, tensor in own.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch_rng(0, "noise", name))
        forged[name] = (noise if tensor.is_floating_point() else 10 * noise.abs()).to(tensor.dtype)
    return State({name: forged[name] if sealed(name, seals) else own.tensors[name] for name in own.tensors}, own.meta)


def swapped(own: State, other: State, seals: tuple[str, ...]) -> State:
    """What is sealed comes from another client, tensors and meta."""
    return State(mixed(own.tensors, other.tensors, seals), mixed(own.meta, other.meta, seals))


def mixed(mine: Mapping[str, V], its: Mapping[str, V], seals: tuple[str, ...]) -> dict[str, V]:
    unsealed = {name: value for name, value in mine.items() if not sealed(name, seals)}
    return unsealed | {name: value for name, value in its.items() if sealed(name, seals)}

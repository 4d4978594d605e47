"""The values that everything else passes around: frozen, plain, without torch.nn.

A federation is a conversation: a server's `State`, `Order`s that go down, `Reply`s that come up,
and a `State` of its own that each client keeps to itself. Nothing else crosses.
"""

from __future__ import annotations

import json
import operator
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from fedloom.errors import FedloomError
from fedloom.rng import key, rng

if TYPE_CHECKING:
    import numpy as np
    import torch

    from fedloom.data.samples import Samples

Json: TypeAlias = Any  # None, bool, int, finite float, str, list or dict of these
Meta: TypeAlias = Mapping[str, Json]
Tensors: TypeAlias = "Mapping[str, torch.Tensor]"
# The indices that it covers in each dimension; None: all.
Region: TypeAlias = tuple[tuple[int, ...] | None, ...]
Weight: TypeAlias = float | Mapping[str, float]  # one for all keys, or one a key

# Prefix of architecture parameters in states and messages: a float32 vector a slot.
ALPHA = "alpha/"


@dataclass(frozen=True)
class Arch:
    """A choice in a space: the live operations of every slot. No weights."""

    space: str
    choice: tuple[tuple[int, ...], ...]

    def to_plain(self) -> Json:
        """As a value that messages and files can hold."""
        return {"space": self.space, "choice": [list(slot) for slot in self.choice]}

    @classmethod
    def from_plain(cls, raw: Json) -> Arch:
        """Whether its space has such slots is the space's to say."""
        try:
            slots = [tuple(map(operator.index, slot)) for slot in raw["choice"]]
            return cls(str(raw["space"]), tuple(slots))
        except (LookupError, TypeError):
            choice = "a `choice` of whole numbers for every slot"
            rule = f"an architecture must have a `space` and {choice}"
            raise FedloomError(
                rule,
                f"it is {reprlib.repr(raw)}",
                "take it from a backup",
            ) from None

    def to_json(self) -> str:
        return json.dumps(self.to_plain())

    @classmethod
    def from_json(cls, text: str) -> Arch:
        return cls.from_plain(json.loads(text))


@dataclass(frozen=True)
class State:
    """What the server, or a client, remembers between rounds. Checkpoints hold exactly this."""

    tensors: Tensors = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """All a client needs to build its network."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # the wire's schema is closed

    method: str  # a registered name or path/file.py:Name
    options: Meta
    kind: str  # "image", "speech", "text", "table" or "regression"
    shape: tuple[int, ...]  # of one sample, channels first
    labels: tuple[str, ...]  # a network has a score for each; of a regression the label's column
    seed: int
    mean: tuple[float, ...]  # per channel, in raw units: the data set's fixed normalisation
    std: tuple[float, ...]
    # Mean and standard deviation of a label that is a number. Networks are trained on, and answer
    # in, standard deviations from the mean. None: labels are classes.
    target: tuple[float, float] | None = None

    @property
    def is_regression(self) -> bool:
        return self.target is not None


@dataclass(frozen=True)
class Stamp:
    """Where an order stands in the run, and which versions of client state it touches.

    The loop's alone.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    experiment: str
    task: Task
    stage: str
    round: int
    hop: int
    read: str | None = None  # the version of the client's state to start from
    write: str | None = None  # the version to write; None: read-only
    keep: tuple[str, ...] = ()  # versions that checkpoints still need


@dataclass(frozen=True)
class Order:
    """What goes down to one client. `kind` is "describe", "evaluate" or the method's own."""

    client: int
    kind: str
    tensors: Tensors = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)
    # Where a client's smaller tensors lie in the server's.
    region: Mapping[str, Region] | None = None
    group: int | None = None  # the cluster, in a clustered topology
    stamp: Stamp | None = None


@dataclass(frozen=True)
class Reply:
    """What comes up from one client. Its weight is the number of samples it trained on."""

    client: int
    tensors: Tensors = field(default_factory=dict)
    weight: Weight = 0.0
    meta: Meta = field(default_factory=dict)
    # Clients behind each key; set by cluster aggregators only.
    count: Mapping[str, int] | None = None
    wrote: bool = False  # whether the client's state has a new version; set by the site only


@dataclass(frozen=True)
class Fields:
    """What one kind of reply may hold: the policy, the privacy section and the refusals read this.

    `tensors` are patterns of keys the order brought and the reply must bring back in the same
    shape, `optional` patterns of those that it may bring back, then in the same shape too (a key of
    both must come back), `extra` patterns of further keys.

    `meta` names the plain values: a bare name stands for a finite number, true or false, a string
    of at most 1,000 characters, or null; a mapping gives each name the type that its value must
    have, as an annotation that pydantic can check (a value that is missing counts as null;
    `typing.Any`: whatever it is).
    """

    tensors: tuple[str, ...] = ()
    meta: tuple[str, ...] | Mapping[str, Any] = ()
    extra: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    # Of `meta`, numbers of which a cluster tells the largest; of all others it tells the mean.
    largest: tuple[str, ...] = ()
    # Whether such an order may leave a client with a new state; None: not declared.
    writes: bool | None = None
    # Whether the server asks before it plans a round (`Round.ask`). In clusters, too, each answer
    # goes straight to it.
    beforehand: bool = False


@dataclass(frozen=True)
class SampleCounts:
    """How many samples a client has in each part of its data."""

    train: int
    validation: int
    test: int

    @property
    def total(self) -> int:
        return self.train + self.validation + self.test

    def to_json(self) -> dict[str, Json]:
        return dict(vars(self))


@dataclass(frozen=True)
class ClientDescription:
    """What a client says of itself before its first work."""

    samples: SampleCounts
    extra: dict[str, Json]  # what the method asked for beside them
    # Samples a label as the client tells them, perhaps with noise; None: the run did not ask.
    histogram: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Json]:
        raw: dict[str, Json] = {"samples": self.samples.to_json(), "extra": self.extra}
        if self.histogram is not None:
            raw["histogram"] = list(self.histogram)
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> ClientDescription:
        """Of a describe reply that was accepted, or of a checkpoint."""
        histogram = None
        if raw.get("histogram") is not None:
            histogram = tuple(raw["histogram"])
        return cls(SampleCounts(**raw["samples"]), raw["extra"], histogram)


@dataclass(frozen=True)
class UnitCosts:
    """What a path costs in one unit: a fixed part, and one entry of every row."""

    fixed: float
    rows: tuple[tuple[float, ...], ...]  # by layer and operation

    def cheapest(self) -> float:
        return self.fixed + sum(min(row) for row in self.rows)

    def dearest(self) -> float:
        return self.fixed + sum(max(row) for row in self.rows)

    def of(self, path: Sequence[int]) -> float:
        return self.fixed + sum(row[op] for row, op in zip(self.rows, path, strict=True))

    def to_plain(self) -> Json:
        return {"fixed": self.fixed, "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_plain(cls, raw: Meta) -> UnitCosts:
        return cls(raw["fixed"], tuple(tuple(row) for row in raw["rows"]))


@dataclass(frozen=True)
class Tier:
    """One kind of device. All of its limits hold at once."""

    number: int  # from 1, from the smallest devices on
    limit: Mapping[str, float]  # the most that a network may cost, by unit
    share: float  # of the clients
    name: str = ""
    unsupported: tuple[str, ...] = ()  # operations that its devices do not have
    latency: UnitCosts | None = None  # milliseconds on its devices, where a limit is in them

    def to_plain(self) -> Json:
        plain = {
            "tier": self.number,
            "limit": dict(self.limit),
            "share": self.share,
            "name": self.name,
            "unsupported": list(self.unsupported),
        }
        if self.latency is not None:
            plain["latency"] = self.latency.to_plain()
        return plain

    @classmethod
    def from_plain(cls, raw: Meta) -> Tier:
        return cls(
            number=raw["tier"],
            limit=dict(raw["limit"]),
            share=raw["share"],
            name=raw["name"],
            unsupported=tuple(raw["unsupported"]),
            latency=latency_in(raw),
        )


def latency_in(raw: Meta) -> UnitCosts | None:
    """The milliseconds of operations that a tier, or an order, comes with."""
    if "latency" not in raw:
        return None
    return UnitCosts.from_plain(raw["latency"])


@dataclass(frozen=True)
class TierDeal:
    """The tiers of a run, and the tier of every client."""

    tiers: tuple[Tier, ...]
    of_client: tuple[int, ...]  # a tier's number, by client


@dataclass(frozen=True)
class Setup:
    """What the server knows before the first round of a stage."""

    task: Task
    population: int  # how many clients are registered
    # What the describe replies say, if the method asks all clients.
    clients: Mapping[int, ClientDescription] = field(default_factory=dict)
    server_data: Samples | None = None  # a central validation set, carved out before partitioning
    tiers: TierDeal | None = None  # for methods that know tiers of devices


def active_of(clients: int, share: float) -> int:
    """So many of these clients, and at least one."""
    return max(1, round(share * clients))


@dataclass(frozen=True)
class Draw:
    """Clients that a round drew from a pool. Nobody: all of the pool are away."""

    pool: Sequence[int]
    clients: tuple[int, ...]
    wanted: int  # replies that are waited for; the others are spare


@dataclass(frozen=True)
class Together:
    """Clients that work in one cluster."""

    number: int
    members: tuple[int, ...]  # in the order in which they joined
    level: float | None = None  # distance of its labels to the population's; None: nobody knows


class Grouping(Protocol):
    """Puts clients into clusters."""

    def of(
        self,
        clients: Sequence[int],
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> tuple[Together, ...]:
        """`updates`: a vector a client, where these decide."""
        ...


# Asks clients something that changes none of them; those that do not answer are left out.
Asking: TypeAlias = Callable[[Sequence[Order]], Sequence[Reply]]


@dataclass(frozen=True)
class Round:
    """One round, as a method's server side sees it."""

    number: int
    # Of this stage's budget, in its unit; where more of a limit is spent, that share of it.
    spent: float
    budget: float
    clients: Sequence[int]  # everybody registered; a range, so that those at rest cost nothing
    participation: float
    seed: int
    server_data: Samples | None = None
    now: float = 0.0  # by the simulated clock
    present: Collection[int] | None = None  # who is there now; None: everybody
    # Clients in clusters stay until the next clustering; None: a cohort is drawn.
    kept: tuple[int, ...] | None = None
    overselect: float = 1.0  # how many times as many are drawn as the round waits for
    hops: int = 1  # of work; more than one in clusters
    # What the run's limits allow a round on average, by unit: `bytes`, `wan`, …
    allowance: Mapping[str, float] = field(default_factory=dict)
    # None: everybody talks with the server.
    grouping: Grouping | None = field(default=None, compare=False, repr=False)
    asking: Asking | None = field(default=None, compare=False, repr=False)
    # What `cohort` drew, for the loop.
    draws: list[Draw] = field(default_factory=list, compare=False, repr=False)

    @property
    def progress(self) -> float:
        """From 0 to 1 through the stage's budget; schedules follow this, never number/total."""
        if self.budget <= 0:
            return 1.0
        return min(1.0, self.spent / self.budget)

    @property
    def active(self) -> int:
        """How many clients work in a round, if all are there."""
        return active_of(len(self.clients), self.participation)

    def rng(self, purpose: str) -> np.random.Generator:
        return rng(self.seed, self.number, purpose)

    def key(self, purpose: str) -> int:
        return key(self.seed, self.number, purpose)

    def clusters(
        self,
        clients: Sequence[int],
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> tuple[Together, ...] | None:
        """Who of these will work together, for a plan that depends on it; None: nobody will.

        Orders must then name these clusters as their groups. The clusters stay until the next
        clustering, and may have members that are away.
        """
        if self.grouping is None:
            return None
        return self.grouping.of(clients, updates)

    def ask(self, orders: Sequence[Order]) -> Sequence[Reply]:
        """What clients answer before the round is planned, booked as evaluation.

        It changes no client's state and takes no simulated time. Who does not answer, or is
        refused, is left out.
        """
        assert self.asking is not None, "nobody can be asked here"
        return self.asking(orders)

    def cohort(
        self,
        pool: Sequence[int] | None = None,
        share: float | None = None,
    ) -> tuple[int, ...]:
        """Who takes part this round: a share of the pool (at least one), sorted.

        They are drawn from those of the pool who are there; nobody, if all are away. Of all clients
        it is the cohort of their clusters, where there are some.
        """
        if pool is None and self.kept is not None:
            clients = tuple(self._there(self.kept))
            self.draws.append(Draw(self.kept, clients, len(clients)))
            return clients
        if pool is None:
            pool = self.clients
        if share is None:
            share = self.participation
        if not pool:
            return ()
        wanted = active_of(len(pool), share)
        asked = ceil(round(wanted * self.overselect, 9))  # 10 · 1.1 is a little more than 11
        clients = self._drawn(self._there(pool), asked)
        self.draws.append(Draw(pool, clients, min(wanted, len(clients))))
        return clients

    def _there(self, pool: Sequence[int]) -> Sequence[int]:
        if self.present is None:
            return pool
        return [client for client in pool if client in self.present]

    def _drawn(self, pool: Sequence[int], count: int) -> tuple[int, ...]:
        if count >= len(pool):
            return tuple(sorted(pool))
        chosen = self.rng("cohort").choice(len(pool), size=count, replace=False)
        return tuple(sorted(pool[int(index)] for index in chosen))

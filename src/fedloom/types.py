"""The value types that all other modules exchange: frozen, plain, without torch.nn.

A federation is a conversation. The server has a `State`, sends `Order`s down and receives `Reply`s.
Each client has a `State` of its own, which it keeps to itself. Nothing else is exchanged.
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
# The indices that a part of a tensor covers in each dimension; None: all of them.
Region: TypeAlias = tuple[tuple[int, ...] | None, ...]
Weight: TypeAlias = float | Mapping[str, float]  # one for all keys, or one per key

# Prefix of architecture parameters in states and messages: one float32 vector per slot.
ALPHA = "alpha/"


@dataclass(frozen=True)
class Arch:
    """A choice in a space: the operations that every slot has. It holds no weights."""

    space: str
    choice: tuple[tuple[int, ...], ...]

    def to_plain(self) -> Json:
        """This architecture as a value that messages and files can hold."""
        return {"space": self.space, "choice": [list(slot) for slot in self.choice]}

    @classmethod
    def from_plain(cls, raw: Json) -> Arch:
        """Whether the space has such slots is not checked here: the space itself does that."""
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
    """What the server or a client remembers between rounds. Checkpoints hold exactly this."""

    tensors: Tensors = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Everything that a client needs to build its network."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # the wire's schema is closed

    method: str  # a registered name or path/file.py:Name
    options: Meta
    kind: str  # "image", "speech", "text", "table" or "regression"
    shape: tuple[int, ...]  # of one sample, channels first
    labels: tuple[str, ...]  # one score for each; in a regression, the name of the label's column
    seed: int
    mean: tuple[float, ...]  # per channel, in raw units: the data set's fixed normalisation
    std: tuple[float, ...]
    # Mean and standard deviation of a numerical label. Networks are trained on, and predict,
    # standard deviations from the mean. None: labels are classes.
    target: tuple[float, float] | None = None

    @property
    def is_regression(self) -> bool:
        return self.target is not None


@dataclass(frozen=True)
class Stamp:
    """Where an order stands in the run, and which versions of client state it touches.

    Only the server's loop sets it.
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
    """A message from the server to one client.

    `kind` is "describe", "evaluate" or a kind that the method defines.
    """

    client: int
    kind: str
    tensors: Tensors = field(default_factory=dict)
    meta: Meta = field(default_factory=dict)
    # Where a client's smaller tensors are located in the server's.
    region: Mapping[str, Region] | None = None
    group: int | None = None  # the cluster, in a clustered topology
    stamp: Stamp | None = None


@dataclass(frozen=True)
class Reply:
    """A message from one client to the server. Its weight is the number of samples trained on."""

    client: int
    tensors: Tensors = field(default_factory=dict)
    weight: Weight = 0.0
    meta: Meta = field(default_factory=dict)
    # How many clients contributed to each key; set by cluster aggregators only.
    count: Mapping[str, int] | None = None
    wrote: bool = False  # whether the client's state has a new version; set by the site only


@dataclass(frozen=True)
class Fields:
    """What one kind of reply may contain. Policies, privacy sections and refusals are based on it.

    `tensors` are patterns of keys that the order has and the reply must return with the same shape.
    `optional` are patterns of keys that the reply may return, also with the same shape; a key that
    matches both must be returned. `extra` are patterns of further keys.

    `meta` names the plain values. A bare name stands for a finite number, true or false, a string
    of at most 1,000 characters, or null. A mapping gives each name the type that its value must
    have, as an annotation that pydantic can check; a missing value counts as null, and `typing.Any`
    accepts any value.
    """

    tensors: tuple[str, ...] = ()
    meta: tuple[str, ...] | Mapping[str, Any] = ()
    extra: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    # Numbers in `meta` of which a cluster reports the largest; of all others it reports the mean.
    largest: tuple[str, ...] = ()
    # Whether such an order may give a client a new state; None: not declared.
    writes: bool | None = None
    # Whether the server asks before it plans a round (`Round.ask`). Even with clusters, each of
    # these replies goes straight to the server.
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
    """What a client reports about itself before its first order."""

    samples: SampleCounts
    extra: dict[str, Json]  # further values that the method asked for
    # Samples per label as the client reports them, perhaps with noise; None: the run did not ask.
    histogram: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Json]:
        raw: dict[str, Json] = {"samples": self.samples.to_json(), "extra": self.extra}
        if self.histogram is not None:
            raw["histogram"] = list(self.histogram)
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> ClientDescription:
        """Read the meta of an accepted describe reply, or an entry of a checkpoint."""
        histogram = None
        if raw.get("histogram") is not None:
            histogram = tuple(raw["histogram"])
        return cls(SampleCounts(**raw["samples"]), raw["extra"], histogram)


@dataclass(frozen=True)
class UnitCosts:
    """What a path costs in one unit: a fixed part, plus one entry of each row."""

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
    """One kind of device. All of its limits apply at the same time."""

    number: int  # counted from 1, the tier of the smallest devices
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
    """The latencies of operations, in milliseconds, that a stored tier or an order may have."""
    if "latency" not in raw:
        return None
    return UnitCosts.from_plain(raw["latency"])


@dataclass(frozen=True)
class TierDeal:
    """The tiers of a run, and the tier of every client."""

    tiers: tuple[Tier, ...]
    of_client: tuple[int, ...]  # the number of the client's tier, by client


@dataclass(frozen=True)
class Setup:
    """What the server knows before the first round of a stage."""

    task: Task
    population: int  # how many clients are registered
    # The clients' describe replies, if the method asks all clients for them.
    clients: Mapping[int, ClientDescription] = field(default_factory=dict)
    server_data: Samples | None = None  # a central validation set, carved out before partitioning
    tiers: TierDeal | None = None  # for methods that support tiers of devices


def active_of(clients: int, share: float) -> int:
    """How many clients are active, given their number and the share of them: at least one."""
    return max(1, round(share * clients))


@dataclass(frozen=True)
class Draw:
    """The clients that a round drew from a pool."""

    pool: Sequence[int]
    clients: tuple[int, ...]  # empty: all clients of the pool are unavailable
    wanted: int  # replies that the round waits for; further ones are spare


@dataclass(frozen=True)
class Together:
    """Clients that work in one cluster."""

    number: int
    members: tuple[int, ...]  # in the order in which they joined
    level: float | None = None  # distance of its labels to the population's; None: unknown


class Grouping(Protocol):
    """Puts clients into clusters."""

    def of(
        self,
        clients: Sequence[int],
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> tuple[Together, ...]:
        """The clusters of these clients; `updates` has a vector per client, where these decide."""
        ...


# Sends orders that change no client's state; clients that do not answer are left out.
Asking: TypeAlias = Callable[[Sequence[Order]], Sequence[Reply]]


@dataclass(frozen=True)
class Round:
    """One round, as a method's server side sees it."""

    number: int
    # The part of this stage's budget that is spent, in its unit. Where a larger share of a limit is
    # spent, it is that share of the budget.
    spent: float
    budget: float
    clients: Sequence[int]  # all registered ones; a range, so that inactive clients cost nothing
    participation: float
    seed: int
    server_data: Samples | None = None
    now: float = 0.0  # by the simulated clock
    present: Collection[int] | None = None  # clients that are available now; None: all
    # The cohort of existing clusters, which stays until the next clustering; None: one is drawn.
    kept: tuple[int, ...] | None = None
    overselect: float = 1.0  # the ratio of clients drawn to replies waited for
    hops: int = 1  # of work; more than one in clusters
    # What the run's limits allow per round on average, by unit: `bytes`, `wan`, …
    allowance: Mapping[str, float] = field(default_factory=dict)
    # None: there are no clusters, and all clients talk to the server.
    grouping: Grouping | None = field(default=None, compare=False, repr=False)
    asking: Asking | None = field(default=None, compare=False, repr=False)
    unit: str = "macs"  # of `spent` and `budget`: rounds, macs, bytes, wan or seconds
    # Everything that `cohort` drew; the server's loop reads it.
    draws: list[Draw] = field(default_factory=list, compare=False, repr=False)

    @property
    def progress(self) -> float:
        """The share of the stage's budget that is spent, from 0 to 1.

        Schedules follow this, never the round's number divided by a total.
        """
        if self.budget <= 0:
            return 1.0
        return min(1.0, self.spent / self.budget)

    @property
    def active(self) -> int:
        """How many clients work in a round, if all are available."""
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
        """The clusters in which these clients will work, for a plan that depends on them.

        None: the run has no clusters. Otherwise orders must name these clusters as their groups.
        The clusters stay until the next clustering, and may have members that are unavailable.
        """
        if self.grouping is None:
            return None
        return self.grouping.of(clients, updates)

    def ask(self, orders: Sequence[Order]) -> Sequence[Reply]:
        """Ask clients before the round is planned; the cost is booked as evaluation.

        It changes no client's state and takes no simulated time. Clients that do not answer, or
        whose reply is refused, are left out.
        """
        assert self.asking is not None, "nobody can be asked here"
        return self.asking(orders)

    def cohort(
        self,
        pool: Sequence[int] | None = None,
        share: float | None = None,
    ) -> tuple[int, ...]:
        """Draw the clients that take part in this round: a share of the pool, sorted.

        At least one is drawn, from the available clients of the pool; none, if all of the pool are
        unavailable. Without a `pool`, and where clusters exist, it is the cohort of the clusters.
        """
        if pool is None and self.kept is not None:
            clients = tuple(self._available(self.kept))
            self.draws.append(Draw(self.kept, clients, len(clients)))
            return clients
        if pool is None:
            pool = self.clients
        if share is None:
            share = self.participation
        if not pool:
            return ()
        active = active_of(len(pool), share)
        # Rounded before `ceil`, because 10 · 1.1 is a little more than 11 in floating point.
        with_spares = ceil(round(active * self.overselect, 9))
        clients = self._draw_from(self._available(pool), with_spares)
        self.draws.append(Draw(pool, clients, min(active, len(clients))))
        return clients

    def _available(self, pool: Sequence[int]) -> Sequence[int]:
        if self.present is None:
            return pool
        return [client for client in pool if client in self.present]

    def _draw_from(self, pool: Sequence[int], count: int) -> tuple[int, ...]:
        if count >= len(pool):
            return tuple(sorted(pool))
        chosen = self.rng("cohort").choice(len(pool), size=count, replace=False)
        return tuple(sorted(pool[int(index)] for index in chosen))

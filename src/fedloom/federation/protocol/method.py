"""What a method is: a server side, a client side, and what may pass between them.

A method is one file. It has options (frozen) and no memory: all memory is in the two states. A
recipe names its options and its stages; the loop runs them one after the other under one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import nn

from fedloom.cost.limits import DeviceLimit
from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.options import Options
from fedloom.records.rows import ClusterNote
from fedloom.records.scores import ScoredPath
from fedloom.records.sections import Sections
from fedloom.rng import key, torch_rng
from fedloom.spaces.cost_table import CostTable
from fedloom.spaces.options import SpaceChoice
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, Setup, State, Task, Tensors

PASSES = 10_000  # forward passes a sample and epoch: no method comes near it
Predictor = Callable[[torch.Tensor], torch.Tensor]  # raw inputs → one row of scores a sample
SERVER = "server/"  # state under this prefix never goes down to a client


def shared(state: State) -> dict[str, torch.Tensor]:
    """What of a server's state clients may be sent."""
    return {key: tensor for key, tensor in state.tensors.items() if not key.startswith(SERVER)}


@dataclass(frozen=True)
class ClientRun:
    """What a client's code knows of the order it works on, and where its random draws come from."""

    task: Task
    stage: str
    round: int
    hop: int
    identity: int  # names its draws; the client's id
    device: str
    secret: Callable[[], bytes]  # of the site; draws from it cannot be repeated by the server
    part: str = ""  # of the work, if its draws have names of their own
    # What the client's device may spend now, by its owner's word.
    limit: DeviceLimit = field(default_factory=DeviceLimit)

    def key(self, purpose: str) -> int:
        return key(self.task.seed, self.round, self.hop, self.identity, self.part + purpose)

    def rng(self, purpose: str) -> torch.Generator:
        return torch_rng(self.task.seed, self.round, self.hop, self.identity, self.part + purpose)

    def limit_for(self, order: Order) -> DeviceLimit:
        """The tighter of the device's own and what the order says under `limit`, if it does."""
        return self.limit.tighter(DeviceLimit.from_plain(order.meta.get("limit", {})))

    def with_stream(self, part: str) -> ClientRun:
        """The same for a part of the work that has a random stream of its own.

        That stream is independent of the rest's.
        """
        return replace(self, part=f"{self.part}{part}/")


class Declined(Exception):
    """Raised by a method's client side for work that this device may not do.

    Nothing of what the order offers fits `ClientRun.limit_for`. It is no mistake: the reply is
    refused with this reason.
    """


class Method:
    """The base of every method: override what the paper says, inherit the rest."""

    fields: ClassVar[Mapping[str, Fields]]  # per kind of order, what its reply may hold
    # This is asked of every client before the start; None: at first contact.
    describe: ClassVar[Json | None] = None
    relays: ClassVar[bool] = False  # a weighted mean makes sense inside a cluster
    seals: ClassVar[tuple[str, ...]] = ()  # patterns of client state that may not influence a reply
    # What the fields that leave a client may tell of it, in sentences.
    privacy_notes: ClassVar[tuple[str, ...]] = ()
    # Whether there is a model of everybody, which a client without a state uses.
    shares: ClassVar[bool] = True

    @property
    def least_samples(self) -> int:
        """How many a client must have to train on: BN needs two."""
        return 2

    def check_rounds(self, rounds: float | None) -> None:
        """Refuses a stage of so many rounds that the method cannot use.

        None: the budget is not counted in rounds.
        """

    def init(self, setup: Setup, previous: State | None) -> State:
        """The server's state before the first round; `previous` is what the stage before left."""
        raise NotImplementedError

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        """Who does what this round, at most one order a client. None: this stage is finished.

        No orders: a round of the server's own, which asks nobody. It costs no round of the budget,
        but the MACs that `plan` and `merge` compute, and it must change the state.
        """
        raise NotImplementedError

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """A client's work: what it replies, and its new state (None: the old one stays)."""
        raise NotImplementedError

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """The server's state after a round; by default the weighted mean of the replies."""
        means = aggregate(shared(state), replies, orders)
        return State({**state.tensors, **means}, state.meta)

    def serve(self, state: State, client: int) -> Order:
        """What a client needs to evaluate."""
        return Order(client, "evaluate", shared(state))

    def models(self, state: State) -> tuple[str, ...]:
        """Names of models that every client is asked for in the end, beside its own."""
        return ()

    def serve_model(self, state: State, name: str, client: int) -> Order:
        """What a client needs to evaluate one of `models`."""
        raise NotImplementedError

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """The network that is counted, drawn and exported; `own` None: the shared one."""
        raise NotImplementedError

    def routes(self, net: nn.Module, part: Samples, task: Task) -> dict[str, Json] | None:
        """Which ways these samples take through a network that `network` made, and their costs.

        None: all samples take the same one.
        """
        return None

    def assumptions(self, task: Task) -> tuple[str, ...]:
        """What must hold where the exported network is used, in sentences for its card."""
        return ()

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        """Of a network that `network` made, the tensors that are a client's own.

        They are names in its `state_dict`: parameters, and statistics of BN. `fedloom adapt --train
        personal` trains these alone. None: no part of it is personal.
        """
        return frozenset()

    def frozen_names(self, net: nn.Module) -> frozenset[str]:
        """The tensors that `fedloom adapt` leaves as they are, such as those that choose a path."""
        return frozenset()

    def predictor(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> Predictor:
        """How a client answers for new inputs."""
        return self.network(order, data, own, run).to(run.device).eval()

    def samples_seen(self, order: Order, samples: int) -> int:
        """How many a client that has so many to train on goes through in an order.

        Its work is proportional to it, as a dry run sees it: an epoch more or less is in the cost
        of a sample. By default all that it has.
        """
        return samples

    def most_work(self, order: Order) -> float:
        """How many times the work of this order another of its kind may be.

        It bounds how long a cluster's round may take, before anybody works.
        """
        return 1.0

    def foresee(self, state: State, r: Round, samples: float) -> Sequence[ForeseenRound] | None:
        """The rounds of a stage, for a dry run, where going through them would take too long.

        A client has so many samples to train on, on average. None: they are gone through.
        """
        return None

    def note(self, state: State, r: Round) -> Meta:
        """What metrics.jsonl says of a round beside its figures, such as a schedule's phase.

        It can only say what the server knows. It is asked before the merge, with the planned state.
        """
        return {}

    def note_after(self, state: State, r: Round) -> Meta:
        """The same, asked after the merge, with the state that it made."""
        return {}

    def note_clusters(self, state: State) -> Mapping[int, ClusterNote]:
        """What metrics.jsonl says of clusters beside their costs, by number.

        It is asked of the planned state.
        """
        return {}

    def scores(self, state: State) -> Sequence[ScoredPath] | None:
        """The rows of scores.jsonl, which are asked for after every round and at a resume.

        A later state of the stage has the same and perhaps more. None: the stage scores no paths,
        and what a stage before it wrote stays.
        """
        return None

    def sections(self, state: State) -> Sections:
        """What result.json says of the last stage's state beside what it says of every method."""
        return Sections()

    @property
    def phases(self) -> Mapping[str, float]:
        """The phases that `note` names, with their shares of the budget in the paper.

        Tables print both.
        """
        return {}

    def observe(self, own: State, number: int) -> Json:
        """What the observer of a simulation notes of a client's state after a round; None: nothing.

        It never crosses: a deployment has no observer.
        """
        return None

    def describe_client(self, ask: Json, data: Samples, run: ClientRun) -> dict[str, Json]:
        """What the describe reply holds beyond shape, labels and counts."""
        return {}

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """Why this reply cannot be an honest one, or None.

        Admission asks it of every reply that is what `fields` declare, before anything else of the
        method sees it: whether a list of scores is as long as the order's, or a sum at most what
        the client's `samples` (those it trains on, as it described them) allow. What it raises is a
        reason too: a reply may hold anything.
        """
        return None

    def update_of(self, order: Order, reply: Reply) -> Tensors:
        """What a reply brings, by the names and in the shapes of what was sent.

        How far it moves the model is measured on this. It is asked of accepted replies alone.
        """
        return reply.tensors

    def most_weight(self, order: Order, samples: int) -> float:
        """The largest weight an honest reply can claim."""
        return float(samples)

    def most_steps(self, order: Order, samples: int) -> int | None:
        """By how much an honest reply may raise an integer tensor of its order.

        Such a tensor is BN's count of batches. By default this is far more than any training needs:
        `PASSES` forward passes over single samples an epoch. None: integers are no counters here,
        and are not looked at.
        """
        return PASSES * epochs_in(getattr(self, "options", None)) * max(1, samples)


def epochs_in(options: object) -> int:
    """How many a method's options ask for; where they do not say it as a number, one."""
    epochs = getattr(options, "epochs", None)
    if not isinstance(epochs, int | float) or not isfinite(epochs):
        return 1
    return max(1, ceil(epochs))


def fields_of(method: Method, kind: str) -> Fields:
    """What a reply to this kind of order may hold.

    `writes` is believed only of the client side that it was declared beside: a subclass that
    overrides `client` and inherits `fields` has not said whether its clients keep a state.
    """
    declared = method.fields[kind]
    for part in type(method).__mro__:
        if "fields" in vars(part):
            return declared
        if "client" in vars(part):
            return replace(declared, writes=None)
    return declared


@dataclass(frozen=True)
class ForeseenRound:
    """What one round of a search will cost, as far as that can be told before it."""

    clients: int  # that are asked; 0: the server works alone
    macs: float  # of all of these clients, or of the server
    down: float = 0.0  # bytes, of all clients
    up: float = 0.0
    is_generation: bool = True


class Stage(NamedTuple):
    """One part of a run, with its share of the budget that is left when it begins."""

    name: str
    method: Method
    share: float | None = 1.0  # None: until its plan says None
    # What goes on: the last round, or the best on validation.
    select: Literal["last", "best"] = "last"
    keeps_own: bool = False  # whether clients bring their state along from the stage before
    # The name under which the state that it hands on is kept, as NAME.state in the run's folder.
    leaves: str | None = None
    # Whether its clients talk to the server alone, though the run is in clusters.
    is_flat: bool = False


class Tiered(NamedTuple):
    """What the networks of a method with tiers may cost, and where limits usually lie."""

    table: CostTable
    rule: TierRule
    names: tuple[tuple[str, ...], ...]  # of the operations, by layer
    # What a limit must leave: a path of a space, or a width of a fixed network.
    choice: Literal["path", "width"] = "path"

    @property
    def operations(self) -> set[str]:
        return {name for layer in self.names for name in layer}


@dataclass(frozen=True)
class Hierarchy:
    """The clusters in which a method works, unless --topology says otherwise."""

    clusters: str  # who is together, unless --clusters says otherwise
    lambda1: int | None  # local iterations before each mean in a cluster; None: epochs
    lambda2: int  # means in a cluster, one a hop, before each of the server
    settings: Meta  # what the method's options say of section [topology]; None: its default
    is_chosen: bool = False  # whether an option of the method says who is together
    by_option: tuple[str, ...] = ()  # ways to cluster that --clusters may not ask for by itself


@dataclass(frozen=True)
class Recipe:
    """What a method's file registers under a name. `summary` is one line with the citation."""

    summary: str
    options: type[Options]
    stages: Callable[[Task], tuple[Stage, ...]]
    short: str | None = None  # in NAME:word, the option that a bare word sets
    # What the limits of device tiers are about; None: the method knows no tiers.
    tiered: Callable[[Task], Tiered] | None = None
    # The clusters that the method names with these options; None: it works with any topology, and
    # flat by itself.
    hierarchy: Callable[[Meta], Hierarchy | None] | None = None
    # Whether labels may be numbers: it never counts or compares labels, and its clients train with
    # `training_loss` alone.
    foretells_numbers: bool = False

    def searched(self, task: Task) -> SearchedSpace | None:
        """The space that a task of this method searches, and how large; None: it searches none.

        A method that searches has options on the base of `SpaceChoice`, which answer.
        """
        if not issubclass(self.options, SpaceChoice):
            return None
        return self.options.model_validate(task.options).searched(task)

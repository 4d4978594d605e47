"""What a method is: a server side, a client side, and the messages that may pass between them.

A method is one file. It has frozen options and no memory of its own: all memory is in the states of
the server and the clients. A recipe names its options and its stages. The loop runs the stages one
after the other under one budget.
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
from fedloom.errors import FedloomError
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

PASSES = 10_000  # forward passes per sample and epoch, far more than any method needs
Predictor = Callable[[torch.Tensor], torch.Tensor]  # raw inputs → one row of scores per sample
SERVER = "server/"  # tensors with this prefix are never sent to a client


def shared(state: State) -> dict[str, torch.Tensor]:
    """The part of a server's state that clients may be sent."""
    return {key: tensor for key, tensor in state.tensors.items() if not key.startswith(SERVER)}


@dataclass(frozen=True)
class ClientRun:
    """What a client's code knows about the order that it works on, and its random streams."""

    task: Task
    stage: str
    round: int
    hop: int
    identity: int  # names its random streams; it is the client's id
    device: str
    secret: Callable[[], bytes]  # of the site; the server cannot repeat draws from it
    part: str = ""  # the part of the work, if that part has random streams of its own
    # What the owner of the client's device currently allows a network to cost.
    limit: DeviceLimit = field(default_factory=DeviceLimit)

    def key(self, purpose: str) -> int:
        return key(self.task.seed, self.round, self.hop, self.identity, self.part + purpose)

    def rng(self, purpose: str) -> torch.Generator:
        return torch_rng(self.task.seed, self.round, self.hop, self.identity, self.part + purpose)

    def limit_for(self, order: Order) -> DeviceLimit:
        """The tighter of the device's own limit and the order's `limit`, if it has one."""
        return self.limit.tighter(DeviceLimit.from_plain(order.meta.get("limit", {})))

    def with_stream(self, part: str) -> ClientRun:
        """The same run for a part of the work with its own random streams.

        These streams are independent of those of the other parts.
        """
        return replace(self, part=f"{self.part}{part}/")


class Declined(Exception):
    """Raised by a method's client side for work that exceeds this device's limit.

    Nothing that the order offers fits `ClientRun.limit_for`. This is not an error: the reply is
    refused with this reason.
    """


class Method:
    """The base of every method: override what the paper defines, inherit the rest."""

    fields: ClassVar[Mapping[str, Fields]]  # what the reply to each kind of order may hold
    # A question for every client before the stage. None: clients are described at first contact.
    describe: ClassVar[Json | None] = None
    relays: ClassVar[bool] = False  # whether a weighted mean makes sense inside a cluster
    seals: ClassVar[tuple[str, ...]] = ()  # patterns of client state that must not affect a reply
    # What the fields that leave a client may reveal about it, in sentences.
    privacy_notes: ClassVar[tuple[str, ...]] = ()
    # Whether there is a shared model, which clients without a private state use.
    shares: ClassVar[bool] = True

    @property
    def least_samples(self) -> int:
        """The smallest number of training samples that a client must have. BN needs two."""
        return 2

    def check_rounds(self, rounds: float | None) -> None:
        """Raise an error if the method cannot use a stage of this many rounds.

        None: the budget is not counted in rounds.
        """

    def least_work(
        self,
        task: Task,
        unit: str,
        times_the_clients: float,
        budget_in_rounds: bool = False,
    ) -> float | None:
        """The smallest budget that this stage and the later ones can use; None: any budget.

        It is counted in multiples of the first round's cost, in the budget's unit, which is not
        rounds. Stages that ask all clients ask `times_the_clients` times as many as a round does.
        With `budget_in_rounds`, the unit is that of a limit in addition to a budget in rounds.
        """
        return None

    def init(self, setup: Setup, previous: State | None) -> State:
        """The server's state before the first round. `previous` is that of the stage before."""
        raise self._undefined("init")

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        """The orders of this round, at most one per client. None: this stage is finished.

        If there are no orders, the server works alone in this round. Such a round costs no round of
        the budget, only the MACs that `plan` and `merge` compute, and it must change the state.
        """
        raise self._undefined("plan")

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        """A client's work: its reply, and its new private state (None: the old one stays)."""
        raise self._undefined("client")

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """The server's state after a round. By default it is the weighted mean of the replies."""
        means = aggregate(shared(state), replies, orders)
        return State({**state.tensors, **means}, state.meta)

    def serve(self, state: State, client: int) -> Order:
        """The order with all that a client needs to evaluate its model."""
        return Order(client, "evaluate", shared(state))

    def models(self, state: State) -> tuple[str, ...]:
        """The names of models that all clients evaluate at the end in addition to their own."""
        return ()

    def serve_model(self, state: State, name: str, client: int) -> Order:
        """The order with all that a client needs to evaluate one of `models`."""
        raise self._undefined("serve_model")

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """The network whose cost is counted and which is drawn and exported.

        If `own` is None, it is the shared network.
        """
        raise self._undefined("network")

    def routes(self, net: nn.Module, part: Samples, task: Task) -> dict[str, Json] | None:
        """The routes that these samples take through a network from `network`, and their costs.

        None: all samples take the same route.
        """
        return None

    def assumptions(self, task: Task) -> tuple[str, ...]:
        """What must be true where the exported network is used, in sentences for its card."""
        return ()

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        """The personal tensors of a network from `network`, which each client has for itself.

        They are names in its `state_dict`: parameters and BN statistics. `fedloom adapt --train
        personal` trains only these. Empty: no part of the network is personal.
        """
        return frozenset()

    def frozen_names(self, net: nn.Module) -> frozenset[str]:
        """The tensors that `fedloom adapt` does not change, such as those that choose a path."""
        return frozenset()

    def predictor(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> Predictor:
        """The function with which a client predicts scores for new inputs."""
        return self.network(order, data, own, run).to(run.device).eval()

    def samples_seen(self, order: Order, samples: int) -> int:
        """How many samples a client with `samples` training samples processes in an order.

        A dry run takes the client's work as proportional to it; the number of epochs is part of the
        cost per sample. By default it is all training samples.
        """
        return samples

    def macs_by_formula(self, task: Task, order: Order, reply: Reply) -> int:
        """The MACs behind an accepted reply, as the server can compute them.

        It is used where clients do not report their MACs, and only if the method's recipe has
        `has_macs_formula`. A meter at the client would show the same number.
        """
        raise self._undefined("macs_by_formula")

    def most_work(self, order: Order) -> float:
        """An upper bound on the work of any order of this kind, as a multiple of this one's.

        It bounds how long a cluster's round may take before any client works.
        """
        return 1.0

    def foresee(self, state: State, r: Round, samples: float) -> Sequence[ForeseenRound] | None:
        """The rounds of a stage for a dry run, if simulating them would take too long.

        Clients have `samples` training samples on average. None: the dry run simulates them.
        """
        return None

    def note(self, state: State, r: Round) -> Meta:
        """What metrics.jsonl records about a round besides metrics, such as a schedule's phase.

        It can contain only what the server knows. It is called before the merge, with the planned
        state.
        """
        return {}

    def note_after(self, state: State, r: Round) -> Meta:
        """The same as `note`, but called after the merge, with the merged state."""
        return {}

    def note_clusters(self, state: State) -> Mapping[int, ClusterNote]:
        """What metrics.jsonl records about clusters besides their costs, by number.

        It is called with the planned state.
        """
        return {}

    def scores(self, state: State) -> Sequence[ScoredPath] | None:
        """The rows of scores.jsonl, which is written after every round and when a run resumes.

        A later state of the stage must return the same rows, and perhaps more. None: the stage
        scores no paths, and the rows of an earlier stage stay.
        """
        return None

    def sections(self, state: State) -> Sections:
        """Sections of result.json about the last stage's state that only some methods have."""
        return Sections()

    @property
    def phases(self) -> Mapping[str, float]:
        """The phases that `note` can name, with their shares of the budget in the paper.

        Tables print both.
        """
        return {}

    def observe(self, own: State, number: int) -> Json:
        """What the observer of a simulation records about a client's state; None: nothing.

        It is called after a round and never sent to the server: a deployment has no observer.
        """
        return None

    def describe_client(self, ask: Json, data: Samples, run: ClientRun) -> dict[str, Json]:
        """What a client's description contains besides shape, labels and sample counts."""
        return {}

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """Why this reply cannot be honest, or None.

        Admission calls it for every reply that has what `fields` declare, before any other code of
        the method sees the reply. It may check that a list of scores is as long as the order's, or
        that a sum is possible with the client's `samples` (its training samples, as it described
        them). If it raises an error, the reply is refused too, because a reply may hold anything.
        """
        return None

    def update_of(self, order: Order, reply: Reply) -> Tensors:
        """The tensors of a reply, with the names and shapes of those that were sent.

        They show how far the reply moves the model. It is called for accepted replies only.
        """
        return reply.tensors

    def most_weight(self, order: Order, samples: int) -> float:
        """The largest weight an honest reply can claim."""
        return float(samples)

    def most_steps(self, order: Order, samples: int) -> int | None:
        """By how much an honest reply may raise an integer tensor of its order.

        BN's count of batches is such a tensor. The default is far more than any training needs:
        `PASSES` forward passes over single samples per epoch. None: integers are not counters in
        this method, and are not checked.
        """
        return PASSES * epochs_in(getattr(self, "options", None)) * max(1, samples)

    def _undefined(self, function: str) -> FedloomError:
        rule = f"{type(self).__name__} must define `{function}`"
        return FedloomError(rule, "it does not", "see docs/add-a-method.md")


def epochs_in(options: object) -> int:
    """How many epochs a method's options ask for; 1 if they do not give a number."""
    epochs = getattr(options, "epochs", None)
    if not isinstance(epochs, int | float) or not isfinite(epochs):
        return 1
    return max(1, ceil(epochs))


def fields_of(method: Method, kind: str) -> Fields:
    """What a reply to this kind of order may hold.

    `writes` is trusted only for the client side that it was declared with: a subclass that
    overrides `client` and inherits `fields` has not declared whether its clients keep a state.
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
    """The predicted cost of one round of a search."""

    clients: int  # the number of clients that are asked; 0: the server works alone
    macs: float  # of all these clients, or of the server
    down: float = 0.0  # bytes, for all clients together
    up: float = 0.0
    is_generation: bool = True


class Stage(NamedTuple):
    """One part of a run, with its share of the budget that remains when it begins."""

    name: str
    method: Method
    share: float | None = 1.0  # None: the stage goes on until its plan returns None
    # What the stage hands on: its last round, or its best one on validation data.
    select: Literal["last", "best"] = "last"
    keeps_own: bool = False  # whether clients keep their private states of the stage before
    # If given, the state that the stage hands on is kept as NAME.state in the run's folder.
    leaves: str | None = None
    # Whether its clients talk to the server directly, even if the run has clusters.
    is_flat: bool = False


class Tiered(NamedTuple):
    """What the networks of a method with device tiers cost, and how limits are usually chosen."""

    table: CostTable
    rule: TierRule
    names: tuple[tuple[str, ...], ...]  # of the operations, by layer
    # What must be possible within a limit: a path of a space, or a width of a fixed network.
    choice: Literal["path", "width"] = "path"

    @property
    def operations(self) -> set[str]:
        operations: set[str] = set()
        for names_of_layer in self.names:
            operations.update(names_of_layer)
        return operations


@dataclass(frozen=True)
class Hierarchy:
    """The clusters in which a method works, unless --topology overrides them."""

    clusters: str  # the rule that forms clusters, unless --clusters overrides it
    lambda1: int | None  # local iterations before each mean in a cluster; None: epochs
    lambda2: int  # means in a cluster, one per hop, before each mean at the server
    settings: Meta  # what the method's options set in section [topology]; None: the default
    is_chosen: bool = False  # whether an option of the method chooses the rule
    by_option: tuple[str, ...] = ()  # rules that only the method's option may choose


@dataclass(frozen=True)
class Recipe:
    """What a method's file registers under a name. `summary` is one line with the citation."""

    summary: str
    options: type[Options]
    stages: Callable[[Task], tuple[Stage, ...]]
    short: str | None = None  # the option that a bare word sets in NAME:word
    # What device tiers limit; None: the method does not support tiers.
    tiered: Callable[[Task], Tiered] | None = None
    # The clusters in which the method works with these options. None: it works in any topology,
    # and in a flat one by default.
    hierarchy: Callable[[Meta], Hierarchy | None] | None = None
    # Whether the method can do regression: it never counts or compares labels, and its clients
    # train with `training_loss` only.
    supports_regression: bool = False
    # Whether all of its stages have `macs_by_formula`, so that the server can compute the clients'
    # MACs.
    has_macs_formula: bool = False

    def searched(self, task: Task) -> SearchedSpace | None:
        """The space that a task of this method searches, and its size; None: it searches none.

        The options of a method that searches are a subclass of `SpaceChoice`, which knows both.
        """
        if not issubclass(self.options, SpaceChoice):
            return None
        return self.options.model_validate(task.options).searched(task)

"""FedorAS: Dudziak, Laskaridis, Fernandez-Marques, "FedorAS: Federated Architecture Search under
System Heterogeneity", 2022.

Devices form tiers by what they can compute. All clients train one supernet, a chain of layers with
several operations each (§3.1). The server sends each client a part of it that fits a communication
budget (Eq. 1). For every batch the client trains a path within its tier's budget (Eq. 3). The
server averages every operation, weighted by the samples that went through it (OPA, Eq. 5). Then a
path is searched for every tier (§3.2: fedoras_search.py) and trained by the clients of that tier
and of those above (§3.3: fedoras_tune.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import (
    ClientRun,
    Method,
    Recipe,
    Stage,
    Tiered,
    epochs_in,
    shared,
)
from fedloom.learning.averaging import server_step
from fedloom.learning.training import final_weights, weights_of
from fedloom.methods.fedoras_cache import search_of
from fedloom.methods.fedoras_choice import check_given
from fedloom.methods.fedoras_client import ClientPaths, train_paths
from fedloom.methods.fedoras_frame import Counts, Frame, path_order, sub_space_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_scores import SUPERNET_FILE
from fedloom.methods.fedoras_tiers import first_meta, tier_of, with_left_out
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.records.scores import ScoredPath
from fedloom.rng import rng
from fedloom.searchers.paths import PathSampler, SubSpace, SubSpaceSampler
from fedloom.spaces.space import OpId
from fedloom.types import Fields, Meta, Order, Reply, Round, Setup, State, Task, Tier

LEAST_CLIENTS = 2  # that must have trained an operation for it to change: |C| > 1 in Eq. 5


# Stage 1: the supernet (§3.1)


@dataclass(frozen=True)
class TrainSupernet(Method):
    """Every client trains paths of the part that it was sent. OPA averages the operations."""

    options: FedorASOptions

    fields = {
        "train": Fields(
            optional=("*",),
            meta={"loss": float, "samples": int, "ops": list[list[int]]},
            writes=False,
        )
    }

    privacy_notes = (
        "ops: how many samples went through each operation, in stage supernet, reveals the limit "
        "of a client's device.",
        "An operation that a single client trained is not merged. That protects the merged weights "
        "only: the server reads every single reply.",
    )

    def init(self, setup: Setup, previous: State | None) -> State:
        frame = Frame.of_task(setup.task, self.options)
        net = frame.model()
        assert setup.tiers is not None  # the recipe says that this method has tiers
        self._check(frame, setup.tiers.tiers, setup)
        meta = {
            **first_meta(frame, setup),
            "parameters": [name for name, _ in net.named_parameters()],
            "round": 0,
            "ops_of_round": ops_of_round(frame, [], [], LEAST_CLIENTS),
        }
        return State(weights_of(net), meta)

    def _check(self, frame: Frame, tiers: Sequence[Tier], setup: Setup) -> None:
        """Raises FedloomError for what would otherwise fail only later in the run."""
        if self.options.searches:
            self._check_search(frame, tiers, setup)
        check_given(frame, tiers, self.options)
        budget = self._comm_budget(frame)
        for tier in tiers:
            costs = frame.costs_of(tier)
            limits = tuple(tier.limit.values())
            draws = rng(setup.task.seed, "trial", tier.number)
            # Each limit alone may leave a path while all of them together leave none.
            PathSampler(costs).draw(limits, draws)
            sub_spaces = SubSpaceSampler(frame.params, costs)
            sub_spaces.draw(budget, limits, draws, self.options.subspace)

    def _comm_budget(self, frame: Frame) -> float:
        """Returns how many parameters a client is sent at most."""
        least_for_all = SubSpaceSampler(frame.params, frame.params).least_for_all()
        return self.options.comm_budget(frame.supernet_params, least_for_all)

    def _check_search(self, frame: Frame, tiers: Sequence[Tier], setup: Setup) -> None:
        self.options.models_of(frame.space, len(tiers))
        if setup.server_data is not None or self.options.score == "federated":
            return
        if self.options.score == "pooled":
            raise FedloomError(
                "score=pooled must be used in a simulation, whose server can see all samples",
                "this server cannot",
                "use --score federated",
            )
        raise FedloomError(
            "with score=central the server must have samples",
            "it has none",
            "add --set data.server_share=0.1, or use --score federated",
        )

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        frame = Frame.from_plain(state.meta["frame"])
        budget = self._comm_budget(frame)
        clients = r.cohort()
        # Not the cohort's size is checked: a round with fewer clients because others are absent
        # merges nothing, and goes on.
        if self.options.aggregate == "opa" and r.active < LEAST_CLIENTS:
            raise FedloomError(
                f"a round must have at least {LEAST_CLIENTS} clients: operations that a single "
                "client trained are not merged (Eq. 5)",
                f"it has {r.active}",
                "raise --clients or --participation, or use --aggregate fedavg",
            )
        orders = []
        for client in clients:
            tier = tier_of(state, client)
            sub_space = self._sub_space(frame, tier, budget, r, client)
            meta = {
                "ops": [list(ops) for ops in sub_space],
                "limit": dict(tier.limit),
                "unsupported": list(tier.unsupported),
                "dynamic": self.options.dynamic,
                "train_share": self.options.train_share,
                "lr": self.options.rate(r.progress),
            }
            if tier.latency is not None:
                meta["latency"] = tier.latency.to_plain()
            tensors = frame.part(shared(state), sub_space)
            orders.append(Order(client, "train", tensors, meta))
        return state, orders

    def _sub_space(
        self,
        frame: Frame,
        tier: Tier,
        budget: float,
        r: Round,
        client: int,
    ) -> SubSpace:
        """Draws the part of the supernet for one client (Eq. 1)."""
        sampler = SubSpaceSampler(frame.params, frame.costs_of(tier))
        limits = tuple(tier.limit.values())
        draws = rng(r.seed, r.number, client, "sub-space")
        return sampler.draw(budget, limits, draws, self.options.subspace)

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        frame = Frame.of_task(run.task, self.options)
        sub_space = sub_space_in(order.meta)
        net = frame.model(sub_space, order.tensors)
        paths = ClientPaths.of_order(frame, order, run)
        to_train_on, _ = data.split(order.meta["train_share"])
        trained = train_paths(net, frame, paths, to_train_on, self.options, order.meta["lr"], run)
        meta = {"loss": trained.loss, "samples": trained.samples, "ops": trained.op_samples}
        tensors = final_weights(net)
        if self.options.aggregate == "fedavg":
            return Reply(order.client, tensors, len(to_train_on), meta), None
        weights = {}
        for name in tensors:
            weight = frame.samples_through(name, trained.op_samples, trained.samples)
            if weight > 0:
                weights[name] = float(weight)
        touched = {name: tensors[name] for name in weights}
        return Reply(order.client, touched, weights, meta), None

    def check_reply(self, order: Order, reply: Reply, samples: int) -> str | None:
        """Checks the counts of samples through operations.

        A layer counts only the operations that were sent, and all layers add up to the same number.
        The weight of an operation's tensors is its count.
        """
        frame = Frame.of_task(task_of(order), self.options)
        counted = reply.meta["samples"]
        op_samples = reply.meta["ops"]
        if not 0 <= counted <= epochs_in(self.options) * samples:
            return f"it says that {counted} samples went through, of {samples} that it has"
        if len(op_samples) != len(frame.space.slots):
            return f"it counts operations of {len(op_samples)} layers"
        for layer, (sent, counts) in enumerate(zip(order.meta["ops"], op_samples, strict=True)):
            problem = frame.wrong_counts(layer, sent, counts, counted)
            if problem is not None:
                return problem
        if isinstance(reply.weight, float | int):
            return None
        for name, weight in reply.weight.items():
            if weight != frame.samples_through(name, op_samples, counted):
                return f"its weight of {name!r} differs from the count of its operation"
        return None

    def most_weight(self, order: Order, samples: int) -> float:
        return float(epochs_in(self.options) * samples)

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages every tensor, weighted by the samples through its operation (Eq. 5)."""
        least = 1
        if self.options.aggregate == "opa":
            least = LEAST_CLIENTS
        merged = server_step(self.options, state, orders, replies, least)
        frame = Frame.from_plain(state.meta["frame"])
        client_counts = {reply.client: reply.meta["ops"] for reply in replies}
        trained = list(client_counts.values())
        counts = frame.sum_of_counts(state.meta["ops"], trained)
        returned = self._returned(orders, client_counts)
        meta = {
            **with_left_out(merged, "supernet", orders),
            "round": r.number + 1,
            "ops": counts,
            "ops_of_round": ops_of_round(frame, trained, returned, least),
        }
        return State(merged.tensors, meta)

    def _returned(
        self,
        orders: Sequence[Order],
        client_counts: Mapping[int, Counts],
    ) -> list[Counts]:
        """Returns, for each reply, counts above 0 for the operations that it sends back.

        With OPA those are the trained ones, with FedAvg all that were sent.
        """
        if self.options.aggregate == "opa":
            return list(client_counts.values())
        returned = []
        for order in orders:
            if order.client not in client_counts:
                continue
            layers = []
            for sent, counts in zip(order.meta["ops"], client_counts[order.client], strict=True):
                layers.append([int(op in sent) for op in range(len(counts))])
            returned.append(layers)
        return returned

    def scores(self, state: State) -> Sequence[ScoredPath]:
        return ()  # paths are scored after the supernet is trained

    def note_after(self, state: State, r: Round) -> Meta:
        return {"ops": state.meta["ops_of_round"]}

    def serve(self, state: State, client: int) -> Order:
        """The client evaluates one path of its tier, drawn anew in every round (Figure 5)."""
        frame = Frame.from_plain(state.meta["frame"])
        tier = tier_of(state, client)
        sampler = PathSampler(frame.costs_of(tier))
        draws = rng(state.meta["seed"], state.meta["round"], client, "evaluated path")
        path = sampler.draw(tuple(tier.limit.values()), draws)
        return path_order(frame, client, path, shared(state))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        frame = Frame.of_task(run.task, self.options)
        return frame.model(sub_space_in(order.meta), order.tensors)


def ops_of_round(
    frame: Frame,
    trained: Sequence[Counts],
    returned: Sequence[Counts],
    least: int,
) -> dict[str, int]:
    """Returns how many operations with weights a round touched, merged, and kept as they were.

    Kept are those that too few clients trained.
    """
    touched = 0
    merged = 0
    kept = 0
    for operation in set(frame.owners.values()):
        if operation is None:  # these tensors belong to all paths
            continue
        trainers = clients_with(operation, trained)
        senders = clients_with(operation, returned)
        touched += trainers > 0
        merged += senders >= least
        kept += trainers > 0 and senders < least
    return {"touched": touched, "merged": merged, "kept": kept}


def clients_with(operation: OpId, client_counts: Sequence[Counts]) -> int:
    """Returns how many clients count samples through an operation."""
    return sum(counts[operation.slot][operation.op] > 0 for counts in client_counts)


def task_of(order: Order) -> Task:
    assert order.stamp is not None  # only orders that were sent have replies
    return order.stamp.task


def tiered(task: Task) -> Tiered:
    """Returns what the limits of tiers apply to."""
    frame = Frame.of_task(task, FedorASOptions(**task.options))
    names = tuple(slot.options for slot in frame.space.slots)
    return Tiered(frame.table, frame.space.tier_rule, names)


def stages(task: Task) -> tuple[Stage, ...]:
    """Paths that are given, or random, need no search. From fresh weights they need no supernet."""
    options = FedorASOptions(**task.options)
    supernet = Stage(
        "supernet",
        TrainSupernet(options),
        options.supernet_part,
        leaves=SUPERNET_FILE,
    )
    search = Stage("search", search_of(options), options.search_part)
    tune = Stage("tune", TuneTiers(options))
    if options.paths == "search":
        return supernet, search, tune
    if options.trains_supernet:
        return supernet, tune
    return (tune,)


fedoras = Recipe(
    "FedorAS (Dudziak et al. 2022): one supernet for tiers of devices, a network for each",
    FedorASOptions,
    stages,
    tiered=tiered,
)

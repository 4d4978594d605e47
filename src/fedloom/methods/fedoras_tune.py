"""FedorAS, stage 3 (§3.3): every tier's network is trained by the clients of its tier and above.

It begins with the supernet's weights. Tiers take turns, a round each, so that a client has one
order a round.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import final_weights, train, weights_of
from fedloom.methods.fedoras_choice import control_of, path_of_tier
from fedloom.methods.fedoras_device import check_network
from fedloom.methods.fedoras_frame import Frame, as_sub_space, path_order, sub_space_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_result import sections_of
from fedloom.methods.fedoras_search import smallest_part
from fedloom.methods.fedoras_tiers import eligible, spaces_of, tier_of, tiers_in
from fedloom.records.sections import Sections, supernet_model, tuned_model
from fedloom.types import Fields, Meta, Order, Reply, Round, Setup, State, Tensors

SUPERNET = "supernet/"  # of the state: the part of the supernet that has all tiers' paths


@dataclass(frozen=True)
class TuneTiers(Method):
    """FedAvg of one network a tier."""

    options: FedorASOptions

    fields = {"tune": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows the search
        frame = Frame.from_plain(previous.meta["frame"])
        paths: list[list[int]] = []
        controls = []
        builds = {}
        tensors = {}
        for space in spaces_of(previous):
            path = path_of_tier(previous, space, self.options)
            paths.append(list(path))
            builds[prefix_of(space.tier)] = frame.arch(as_sub_space(path)).to_plain()
            controls.append(control_of(previous, space, self.options))
            weights: Tensors = frame.part(previous.tensors, as_sub_space(path))
            if self.options.start == "random":
                weights = weights_of(frame.model(as_sub_space(path)))
            tensors.update(with_prefix(prefix_of(space.tier), weights))
        # What every path had before tuning is evaluated too, in the end.
        of_paths = frame.part(shared(previous), smallest_part([tuple(path) for path in paths]))
        tensors.update(with_prefix(SUPERNET, of_paths))
        rounds = [0] * len(paths)
        found = {"paths": paths, "builds": builds, "scored_controls": controls, "tuned": rounds}
        return State(tensors, {**previous.meta, **found})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        tier = self._tier_now(state)
        sub_space = as_sub_space(tuple(state.meta["paths"][tier - 1]))
        tensors = without_prefix(prefix_of(tier), state.tensors)
        meta = {
            "ops": [list(ops) for ops in sub_space],
            "lr": self.options.tuning.rate(r.progress),
            "train_share": self.options.train_share,
        }
        clients = r.cohort(eligible(state, tier))
        return state, [Order(client, "tune", tensors, meta) for client in clients]

    def _tier_now(self, state: State) -> int:
        """The tier whose turn it is: the next that has a client of its own or above."""
        done = sum(state.meta["tuned"])
        with_clients = [tier.number for tier in tiers_in(state) if eligible(state, tier.number)]
        return with_clients[done % len(with_clients)]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        path = tuple(ops[0] for ops in order.meta["ops"])
        check_network(Frame.of_task(run.task, self.options), path, run)
        net = self.network(order, data, own, run)
        to_train_on, _ = data.split(order.meta["train_share"])
        trained = train(net, to_train_on, self.options.tuning, order.meta["lr"], run)
        meta = {"loss": trained.loss}
        return Reply(order.client, final_weights(net), len(to_train_on), meta), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        tier = self._tier_now(state)
        before = without_prefix(prefix_of(tier), state.tensors)
        means = aggregate(before, replies, orders)
        tuned = list(state.meta["tuned"])
        tuned[tier - 1] += 1
        tensors = {**state.tensors, **with_prefix(prefix_of(tier), means)}
        return State(tensors, {**state.meta, "tuned": tuned})

    def note(self, state: State, r: Round) -> Meta:
        return {"tier": self._tier_now(state)}

    def sections(self, state: State) -> Sections:
        return sections_of(state, self.options)

    def serve(self, state: State, client: int) -> Order:
        """The network of the client's own tier."""
        tier = tier_of(state, client).number
        return self.serve_model(state, tuned_model(tier), client)

    def models(self, state: State) -> tuple[str, ...]:
        """Of every tier its network, and the same with the supernet's weights."""
        names = []
        for tier in tiers_in(state):
            names.append(tuned_model(tier.number))
            names.append(supernet_model(tier.number))
        return tuple(names)

    def serve_model(self, state: State, name: str, client: int) -> Order:
        tier = int(name.rpartition("-")[2])
        path = tuple(state.meta["paths"][tier - 1])
        if name == supernet_model(tier):
            frame = Frame.from_plain(state.meta["frame"])
            return path_order(frame, client, path, without_prefix(SUPERNET, state.tensors))
        tensors = without_prefix(prefix_of(tier), state.tensors)
        return Order(client, "evaluate", tensors, {"ops": [[op] for op in path]})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        frame = Frame.of_task(run.task, self.options)
        return frame.model(sub_space_in(order.meta), order.tensors)


def prefix_of(tier: int) -> str:
    return f"tier-{tier}/"

"""FedorAS, stage 3 (§3.3): the clients of a tier and of those above train the tier's network.

It begins with the supernet's weights, or with fresh ones. Tiers take turns, one round each, so that
a client has one order per round. With `tune_top`, the next best paths of every tier take turns too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import final_weights, train, weights_of
from fedloom.methods.fedoras_agreement import agreement
from fedloom.methods.fedoras_choice import check_given, control_of, other_paths, path_of_tier
from fedloom.methods.fedoras_device import check_network
from fedloom.methods.fedoras_frame import Frame, as_sub_space, path_order, sub_space_in
from fedloom.methods.fedoras_networks import Network, networks_in, with_round
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_result import sections_of
from fedloom.methods.fedoras_search import smallest_part
from fedloom.methods.fedoras_tiers import (
    eligible,
    first_meta,
    highest_trained,
    spaces_of,
    tier_of,
    tiers_in,
    with_left_out,
)
from fedloom.records.sections import Sections, supernet_model, tuned_model
from fedloom.types import Fields, Meta, Order, Reply, Round, Setup, State, Tensors

SUPERNET = "supernet/"  # prefix in the state: the part of the supernet with all tiers' paths


@dataclass(frozen=True)
class TuneTiers(Method):
    """FedAvg of one network per tier."""

    options: FedorASOptions

    fields = {"tune": Fields(tensors=("*",), meta=("loss",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        """The stage follows the search, or the supernet alone, or is the first.

        If it is the first, weights are fresh.
        """
        frame = Frame.of_task(setup.task, self.options)
        before = previous
        if not self.options.trains_supernet or before is None:
            before = State({}, first_meta(frame, setup))
            check_given(frame, tiers_in(before), self.options)
        networks = []
        controls = []
        for space in spaces_of(before):
            path = path_of_tier(before, space, self.options)
            networks.append(Network(space.tier, 1, path))
            controls.append(control_of(before, space, self.options))
            for number, other in enumerate(other_paths(before, space, self.options), start=2):
                networks.append(Network(space.tier, number, other))
        # Every tier's own network comes first, then the second best of every tier, and so on.
        networks.sort(key=lambda network: (network.place, network.tier))
        builds = {}
        tensors: dict[str, torch.Tensor] = {}
        for network in networks:
            builds[network.prefix] = frame.arch(as_sub_space(network.path)).to_plain()
            weights = self._first_weights(frame, network, before)
            tensors.update(with_prefix(network.prefix, weights))
        own_paths = [network.path for network in networks if network.place == 1]
        if before.tensors:
            # In the end, every path is also evaluated with its weights before tuning.
            part = frame.part(shared(before), smallest_part(own_paths))
            tensors.update(with_prefix(SUPERNET, part))
        meta = {
            **before.meta,
            "paths": [list(path) for path in own_paths],
            "tuned": [0] * len(own_paths),  # rounds, by tier
            "others": [network.to_plain() for network in networks if network.place > 1],
            "builds": builds,
            "scored_controls": controls,
            "agreement": agreement(before, setup.server_data, self.options),
        }
        return State(tensors, meta)

    def _first_weights(self, frame: Frame, network: Network, before: State) -> Tensors:
        sub_space = as_sub_space(network.path)
        if self.options.start == "random" or not before.tensors:
            return weights_of(frame.model(sub_space))
        return frame.part(shared(before), sub_space)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        network = self._network_now(state)
        sub_space = as_sub_space(network.path)
        tensors = without_prefix(network.prefix, state.tensors)
        meta = {
            "ops": [list(ops) for ops in sub_space],
            "lr": self.options.tuning.rate(r.progress),
            "train_share": self.options.train_share,
        }
        orders = []
        for client in r.cohort(eligible(state, network.tier, self.options.eligible)):
            latency = tier_of(state, client).latency
            meta_of_client = meta
            if latency is not None:  # with it a device sees whether the network is too slow
                meta_of_client = {**meta, "latency": latency.to_plain()}
            orders.append(Order(client, "tune", tensors, meta_of_client))
        return state, orders

    def _network_now(self, state: State) -> Network:
        """Returns the network whose turn it is. Tiers without clients, even above, have no turn."""
        networks = networks_in(state)
        done = sum(network.rounds for network in networks)
        highest = highest_trained(state, self.options.eligible)
        with_clients = [network for network in networks if network.tier <= highest]
        return with_clients[done % len(with_clients)]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        path = tuple(ops[0] for ops in order.meta["ops"])
        check_network(Frame.of_task(run.task, self.options), path, order.meta, run)
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
        network = self._network_now(state)
        before = without_prefix(network.prefix, state.tensors)
        means = aggregate(before, replies, orders)
        tensors = {**state.tensors, **with_prefix(network.prefix, means)}
        tuned = State(tensors, with_left_out(state, "tune", orders))
        return with_round(tuned, network)

    def note(self, state: State, r: Round) -> Meta:
        network = self._network_now(state)
        if network.place == 1:
            return {"tier": network.tier}
        return {"tier": network.tier, "place": network.place}

    def sections(self, state: State) -> Sections:
        return sections_of(state, self.options)

    def serve(self, state: State, client: int) -> Order:
        """The client evaluates the network of its own tier."""
        tier = tier_of(state, client).number
        return self.serve_model(state, tuned_model(tier), client)

    def models(self, state: State) -> tuple[str, ...]:
        """Returns the names of every tier's network, tuned and with the supernet's weights.

        Those of the paths beside them (`tune_top`) follow.
        """
        has_supernet = any(name.startswith(SUPERNET) for name in state.tensors)
        names = []
        for tier in tiers_in(state):
            names.append(tuned_model(tier.number))
            if has_supernet:
                names.append(supernet_model(tier.number))
        for network in networks_in(state):
            if network.place > 1:
                names.append(network.name)
        return tuple(names)

    def serve_model(self, state: State, name: str, client: int) -> Order:
        for network in networks_in(state):
            if name == network.name:
                tensors = without_prefix(network.prefix, state.tensors)
                return Order(client, "evaluate", tensors, {"ops": [[op] for op in network.path]})
            if name == supernet_model(network.tier):
                frame = Frame.from_plain(state.meta["frame"])
                weights = without_prefix(SUPERNET, state.tensors)
                return path_order(frame, client, network.path, weights)
        raise KeyError(name)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        frame = Frame.of_task(run.task, self.options)
        return frame.model(sub_space_in(order.meta), order.tensors)

"""Tests of merging: weights are shares of whoever replies, and some replies do not count.

Replies without weight and refused replies must change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method, shared
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.stage_checks import check_stages
from fedloom.federation.server.topology import Flat
from fedloom.testing.engines import Absent, Exploding, Shuffled, Spoiling, filled
from fedloom.testing.repeating import NOT_RESUMED, interrupted
from fedloom.testing.subject import Subject, finished, nothing_differs, posted, work_of
from fedloom.testing.toy import Toy, Trace, differences, made_up, unlike, unlike_tensors
from fedloom.testing.watch import Merge
from fedloom.types import Order, Reply, State

NOT_AN_AVERAGE = (
    "three clients with equal data and equal draws end differently from one such client: `merge` "
    "adds where it should average, or counts the clients"
)
WEIGHTLESS_COUNTS = (
    "a reply of weight 0 changes the merge: `merge` uses or counts replies without looking at "
    "their weight"
)
ALL_WEIGHTLESS = "replies that all have weight 0 change the state, which should stay as it is"
NOT_THE_MEAN = (
    "replies of ones must merge to ones, as in a weighted mean, but did not. If the server is not "
    "meant to take the plain mean, say so in the test class: "
    "`def takes_the_mean(self, method): return False`"
)
ECHOES_COUNT = (
    "replies that return what was sent change the state: let clients send new values instead of "
    "differences, and let `merge` move towards their mean"
)
REFUSED_COUNTS = "a refused reply changes more than a client that cannot be reached"


class Merging(Subject):
    def test_identical_clients_are_one(self, toy: Toy, tmp_path: Path) -> None:
        """Three clients with equal data, full batches and equal draws end like a single client.

        The states are equal to the bit.
        """
        data = made_up()[0]
        if "batch" in toy.task.options:
            options = {**toy.task.options, "batch": len(data.train)}
            toy = replace(toy, task=replace(toy.task, options=options))
        toy = replace(toy, participation=1.0, identity=lambda client: 0)
        alone = replace(toy, data=(data,)).run(tmp_path / "one")
        three = replace(toy, data=(data, data, data)).run(tmp_path / "three")
        differing_names = differing(alone.outcome.state, three.outcome.state)
        nothing_differs(differing_names, NOT_AN_AVERAGE)
        for client in range(3):
            unlike_names = unlike(alone.own(0) or State(), three.own(client) or State())
            nothing_differs(unlike_names, f"the state of client {client}: {NOT_AN_AVERAGE}")

    def test_a_reply_without_weight_changes_nothing(self, toy: Toy) -> None:
        for merge in finished(toy).server.merges:
            if not merge.replies:
                continue  # a round that asked nobody
            *first_replies, last_reply = merge.replies
            if not first_replies:
                continue
            without_last = merged(merge, first_replies)
            with_last = merged(merge, [*first_replies, weighing(last_reply, 0.0)])
            nothing_differs(differing(without_last, with_last), WEIGHTLESS_COUNTS)

    def test_no_weight_at_all_keeps_the_state(self, toy: Toy) -> None:
        for merge in finished(toy).server.merges:
            weightless = [weighing(reply, 0.0) for reply in merge.replies]
            self._state_stays(merge, weightless, ALL_WEIGHTLESS)

    def _state_stays(self, merge: Merge, replies: Sequence[Reply], otherwise: str) -> None:
        """Check that merging these replies does not change what all clients share."""
        before = shared_part(merge.state)
        after = shared_part(merged(merge, replies))
        nothing_differs(differing(before, after), otherwise)

    def test_merge_weights_sum_to_one(self, toy: Toy) -> None:
        """For any subset of replies, replies of ones merge to ones, and echoes change nothing.

        An echo returns the tensors that were sent.
        """
        merges = finished(toy).server.merges
        if not any(brings_tensors(merge) for merge in merges):
            pytest.skip("its replies have no tensors")
        merged_before = set[int]()  # ids of methods
        for merge in merges:
            for replies in subsets(merge.replies):
                self._ones_make_ones(merge, [full_of_ones(reply) for reply in replies])
                # After a first merge, a server's momentum may move weights.
                if id(merge.method) not in merged_before:
                    self._echoes_move_nothing(merge, replies)
            merged_before.add(id(merge.method))

    def _ones_make_ones(self, merge: Merge, replies: list[Reply]) -> None:
        old = shared(merge.state)
        if self.takes_the_mean(merge.method):
            new = shared(merged(merge, replies))
        else:
            new = dict(aggregate(old, replies, merge.orders))
        replied_names = set[str]()
        for reply in replies:
            replied_names |= reply.tensors.keys() & old.keys()
        not_the_mean = []
        for name in sorted(replied_names):
            # A region, or min_clients, may leave some values unchanged.
            is_mean = ((new[name] == 1) | (new[name] == old[name])).all()
            if old[name].is_floating_point() and not is_mean:
                not_the_mean.append(name)
        nothing_differs(not_the_mean, NOT_THE_MEAN)
        is_merged = not replied_names or any((new[name] == 1).all() for name in replied_names)
        assert is_merged, f"{NOT_THE_MEAN}\nAll tensors stayed as they were"

    def _echoes_move_nothing(self, merge: Merge, replies: Sequence[Reply]) -> None:
        orders = {order.client: order for order in merge.orders}
        echoes = [echo_of(reply, orders[reply.client]) for reply in replies]
        self._state_stays(merge, echoes, ECHOES_COUNT)

    def takes_the_mean(self, method: Method) -> bool:
        """Whether merge returns the plain mean; override it if the options do not tell."""
        return getattr(getattr(method, "options", None), "server_optimizer", "mean") == "mean"

    def test_a_refused_reply_is_no_reply(self, toy: Toy, tmp_path: Path) -> None:
        """A refused reply has the same effect as an unreachable client, except for costs."""
        spoiled = toy.run(tmp_path, engine=Spoiling)
        absent = finished(toy, Absent).trace
        assert any(refusals_of(spoiled)) and refusals_of(spoiled) == refusals_of(absent)
        nothing_differs(differences(spoiled, absent, ledger=False), REFUSED_COUNTS)

    def test_an_absurd_update_is_no_reply(self, toy: Toy, tmp_path: Path) -> None:
        """A finite reply that would make training diverge is refused.

        Neither the order of replies nor stopping the run makes a difference.
        """
        if not sends_floats(toy):
            pytest.skip("its replies have no tensors to be merged")
        whole = toy.run(tmp_path / "whole", engine=Exploding)
        absent = finished(toy, Absent).trace
        reasons = reasons_in(whole)
        assert reasons
        for reason in reasons:
            assert "--norm-bound" in reason
        # They are not equal if a stage sends nothing that could be absurd.
        if refusals_of(whole) == refusals_of(absent):
            nothing_differs(differences(whole, absent, ledger=False), REFUSED_COUNTS)
        chosen: dict[int, int] = {}

        def mixed_up(inner: Engine) -> Engine:
            return Exploding(Shuffled(inner), chosen)

        resumed, stops = interrupted(toy, tmp_path / "stopped", {"reply"}, mixed_up)
        assert stops >= 2
        nothing_differs(differences(whole, resumed), NOT_RESUMED)

    def test_two_levels_are_one(self, toy: Toy, tmp_path: Path) -> None:
        """A relaying method ends the same in clusters of one hop; any other method is refused."""
        flat = replace(toy, participation=1.0, rounds=fewest_rounds(toy), topology=Flat())
        clustered = replace(flat, topology=Clustered(groups=2, hops=1))
        if not all(stage.method.relays for stage in toy.stages):
            with pytest.raises(FedloomError, match="--topology flat"):
                clustered.run(tmp_path)
            return
        one_level = flat.run(tmp_path / "flat").outcome.state
        two_levels = clustered.run(tmp_path / "clustered").outcome.state
        for name, tensor in shared(one_level).items():
            gap = (two_levels.tensors[name].double() - tensor.double()).abs().max()
            assert gap <= 1e-6, name


def brings_tensors(merge: Merge) -> bool:
    return any(reply.tensors for reply in merge.replies)


def refusals_of(trace: Trace) -> list[list[int]]:
    """The clients whose replies were refused, by round."""
    rounds = []
    for row in trace.rows:
        rounds.append([refusal.client for refusal in row.refused])
    return rounds


def reasons_in(trace: Trace) -> list[str]:
    """The reasons for which replies were refused, over the whole run."""
    reasons = []
    for row in trace.rows:
        reasons += [refusal.reason for refusal in row.refused]
    return reasons


def sends_floats(toy: Toy) -> bool:
    """Whether replies return floating-point tensors that their order had."""
    for exchange in work_of(finished(toy).trace):
        sent = exchange.order.tensors
        for name, tensor in exchange.reply.tensors.items():
            if name in sent and tensor.is_floating_point():
                return True
    return False


def fewest_rounds(toy: Toy) -> int:
    """The smallest number of rounds that the method's stages allow."""
    for rounds in range(len(toy.stages), toy.rounds):
        with suppress(FedloomError):
            settings = Settings("toy", toy.task, len(toy.data), rounds, tiers=toy.tiers)
            check_stages(settings, toy.stages, Flat())
            return rounds
    return toy.rounds


def shared_part(state: State) -> State:
    """The part of a state that all clients share."""
    return State(shared(state))


def differing(first: State, second: State) -> list[str]:
    """The names of tensors that are not equal to the bit.

    Meta is not compared, because it may say who took part.
    """
    return unlike_tensors(first, second)


def merged(merge: Merge, replies: Sequence[Reply]) -> State:
    """The state after merging other replies, which pass through the wire format first."""
    arrived = [posted(reply) for reply in replies]
    return merge.method.merge(merge.state, merge.orders, arrived, merge.round)


def subsets(replies: Sequence[Reply]) -> Iterator[tuple[Reply, ...]]:
    """Every non-empty subset of the replies."""
    for count in range(1, len(replies) + 1):
        yield from combinations(replies, count)


def weighing(reply: Reply, weight: float) -> Reply:
    if isinstance(reply.weight, Mapping):
        return replace(reply, weight=dict.fromkeys(reply.weight, weight))
    return replace(reply, weight=weight)


def full_of_ones(reply: Reply) -> Reply:
    """A reply with ones in all its floating-point tensors."""
    return filled(reply, 1.0)


def echo_of(reply: Reply, order: Order) -> Reply:
    """A reply that returns the tensors of its order, as far as the order has them."""
    tensors = dict(reply.tensors)
    for name in reply.tensors.keys() & order.tensors.keys():
        tensors[name] = order.tensors[name]
    return replace(reply, tensors=tensors)

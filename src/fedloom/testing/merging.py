"""Merging: weights are shares, whoever replies; who is refused, or weighs nothing, was not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method, shared
from fedloom.federation.server.loop import check_stages
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.topology import Clustered, Flat
from fedloom.testing.engines import Absent, Exploding, Shuffled, Spoiling
from fedloom.testing.repeating import interrupted
from fedloom.testing.subject import Subject, finished, posted, work_of
from fedloom.testing.toy import Toy, Trace, content, differences, made_up, unlike
from fedloom.testing.watch import Merge
from fedloom.types import Order, Reply, State


class Merging(Subject):
    def test_identical_clients_are_one(self, toy: Toy, tmp_path: Path) -> None:
        """Three clients with the same data, full batches and the same draws end as one alone, to the bit."""
        one = made_up()[0]
        if "batch" in toy.task.options:
            options = {**toy.task.options, "batch": len(one.train)}
            toy = replace(toy, task=replace(toy.task, options=options))
        toy = replace(toy, participation=1.0, identity=lambda client: 0)
        alone = replace(toy, data=(one,)).run(tmp_path / "one")
        three = replace(toy, data=(one, one, one)).run(tmp_path / "three")
        assert differing(alone.outcome.state, three.outcome.state) == []
        for client in range(3):
            assert unlike(alone.own(0) or State(), three.own(client) or State()) == []

    def test_a_reply_without_weight_changes_nothing(self, toy: Toy) -> None:
        for merge in finished(toy).server.merges:
            *others, last = merge.replies
            if others:
                without = merged(merge, others)
                assert differing(without, merged(merge, [*others, weighing(last, 0.0)])) == []

    def test_no_weight_at_all_keeps_the_state(self, toy: Toy) -> None:
        for merge in finished(toy).server.merges:
            after = merged(merge, [weighing(reply, 0.0) for reply in merge.replies])
            assert differing(State(shared(merge.state)), State(shared(after))) == []

    def test_merge_weights_sum_to_one(self, toy: Toy) -> None:
        """Whoever replies: if all say 1, the mean is 1; if all say what they were told, nothing moves."""
        merges = finished(toy).server.merges
        if not any(reply.tensors for merge in merges for reply in merge.replies):
            pytest.skip("its replies bring no tensors")
        begun = set[int]()
        for merge in merges:
            for replies in subsets(merge.replies):
                self._ones_make_ones(merge, [saying_one(reply) for reply in replies])
                if id(merge.method) not in begun:  # later, a server's momentum may go on
                    orders = {order.client: order for order in merge.orders}
                    echo = merged(merge, [echoing(reply, orders[reply.client]) for reply in replies])
                    assert differing(State(shared(merge.state)), State(shared(echo))) == []
            begun.add(id(merge.method))

    def _ones_make_ones(self, merge: Merge, replies: list[Reply]) -> None:
        old = shared(merge.state)
        plain = self.takes_the_mean(merge.method)
        new = shared(merged(merge, replies)) if plain else aggregate(old, replies, merge.orders)
        touched = {name for reply in replies for name in reply.tensors if name in old}
        for name in touched:
            if old[name].is_floating_point():  # a region, or min_clients, may leave some as they were
                assert ((new[name] == 1) | (new[name] == old[name])).all(), name
        assert not touched or any((new[name] == 1).all() for name in touched)

    def takes_the_mean(self, method: Method) -> bool:
        """Whether merge takes the mean as it is; override if it does not, and no option says so."""
        return getattr(getattr(method, "options", None), "server_optimizer", "mean") == "mean"

    def test_a_refused_reply_is_no_reply(self, toy: Toy, tmp_path: Path) -> None:
        """A client whose reply is refused ends where one does that was never reached, the ledger excepted."""
        spoiled = toy.run(tmp_path / "spoiled", engine=Spoiling)
        absent = toy.run(tmp_path / "absent", engine=Absent)
        assert any(refusals_of(spoiled)) and refusals_of(spoiled) == refusals_of(absent)
        assert differences(spoiled, absent, ledger=False) == []

    def test_an_absurd_update_is_no_reply(self, toy: Toy, tmp_path: Path) -> None:
        """A finite reply that would make everybody diverge is refused, in whatever order it comes, stopped or not."""
        if not sends_floats(toy):
            pytest.skip("its replies bring no tensors to be merged")
        whole = toy.run(tmp_path / "whole", engine=Exploding)
        absent = toy.run(tmp_path / "absent", engine=Absent)
        reasons = [refusal.reason for row in whole.rows for refusal in row.refused]
        assert reasons and all("--norm-bound" in reason for reason in reasons)
        if refusals_of(whole) == refusals_of(absent):  # else a stage sends nothing that could be absurd
            assert differences(whole, absent, ledger=False) == []
        mixed_up = toy.run(tmp_path / "mixed up", engine=lambda inner: Exploding(Shuffled(inner)))
        assert differences(whole, mixed_up) == []
        chosen: dict[int, int] = {}
        resumed, stops = interrupted(
            toy, tmp_path / "stopped", {"reply", "round"}, lambda inner: Exploding(inner, chosen)
        )
        assert stops >= 2 and differences(whole, resumed) == []

    def test_two_levels_are_one(self, toy: Toy, tmp_path: Path) -> None:
        """In clusters of one hop a relaying method ends where it does without; another is refused."""
        flat = replace(toy, participation=1.0, rounds=fewest_rounds(toy))
        clustered = replace(flat, topology=Clustered(groups=2, hops=1))
        if not all(stage.method.relays for stage in toy.stages):
            with pytest.raises(FedloomError, match="--topology flat"):
                clustered.run(tmp_path)
            return
        one, two = flat.run(tmp_path / "flat").outcome.state, clustered.run(tmp_path / "clustered").outcome.state
        for name, tensor in shared(one).items():
            gap = (two.tensors[name].double() - tensor.double()).abs().max()
            assert gap <= 1e-6, name


def refusals_of(trace: Trace) -> list[list[int]]:
    """Whose replies were refused, a round each."""
    return [[refusal.client for refusal in row.refused] for row in trace.rows]


def sends_floats(toy: Toy) -> bool:
    """Whether work replies bring back floats that an order carried."""
    for exchange in work_of(finished(toy).trace):
        sent = exchange.order.tensors
        if any(name in sent and tensor.is_floating_point() for name, tensor in exchange.reply.tensors.items()):
            return True
    return False


def fewest_rounds(toy: Toy) -> int:
    """Of a run that its stages allow."""
    for rounds in range(len(toy.stages), toy.rounds):
        with suppress(FedloomError):
            check_stages(Settings("toy", toy.task, len(toy.data), rounds), toy.stages, Flat())
            return rounds
    return toy.rounds


def differing(one: State, other: State) -> list[str]:
    """Tensors that are not equal to the bit; meta may tell who took part."""
    names = sorted({*one.tensors, *other.tensors})
    return [name for name in names if content(one, name) != content(other, name)]


def merged(merge: Merge, replies: Sequence[Reply]) -> State:
    """What the method makes of other replies, as the wire would bring them."""
    return merge.method.merge(merge.state, merge.orders, [posted(reply) for reply in replies], merge.round)


def subsets(replies: Sequence[Reply]) -> Iterator[tuple[Reply, ...]]:
    """Every way in which at least one of them can come in."""
    for count in range(1, len(replies) + 1):
        yield from combinations(replies, count)


def weighing(reply: Reply, weight: float) -> Reply:
    if isinstance(reply.weight, Mapping):
        return replace(reply, weight=dict.fromkeys(reply.weight, weight))
    return replace(reply, weight=weight)


def saying_one(reply: Reply) -> Reply:
    floats = {name: tensor for name, tensor in reply.tensors.items() if tensor.is_floating_point()}
    return replace(reply, tensors={**reply.tensors, **{name: torch.ones_like(floats[name]) for name in floats}})


def echoing(reply: Reply, order: Order) -> Reply:
    return replace(reply, tensors={name: order.tensors.get(name, tensor) for name, tensor in reply.tensors.items()})

"""DecNAS: one unchanged candidate is FedAvg; candidates, their groups, and the next parent."""

from dataclasses import replace

import pytest
import torch
from paths_by_hand import check_close, check_same_bits_but, fedavg_round, searched, whole_cohort

from fedloom.errors import FedloomError
from fedloom.federation.server.clustered import Clustered
from fedloom.methods.decnas import JUDGED, PARENT, TRAINED, DecNasOptions, Search
from fedloom.stages.groups import CANDIDATES, right_answers
from fedloom.testing.toy import samples
from fedloom.types import Arch, Reply, Round, Setup, State

HELD_BACK = samples(60, "judge")


@pytest.fixture
def toy():
    return whole_cohort("decnas")


def search_of(toy) -> Search:
    return Search(DecNasOptions(**toy.task.options), toy.task)


def round_of(number=1, clients=4, **facts) -> Round:
    return Round(number, number - 1.0, 2.0, range(clients), 1.0, 7, **facts)


def planned(search, clients=4):
    state = search.init(Setup(search.task, clients), None)
    return search.plan(state, round_of(clients=clients))


def arch_of(order) -> Arch:
    return Arch.from_plain(order.meta["arch"])


def replies_to(orders):
    """Every client moves the weights somewhere else."""
    replies = []
    for order in orders:
        noise = torch.Generator().manual_seed(order.client)
        moved = {}
        for name, tensor in order.tensors.items():
            moved[name] = tensor
            if tensor.is_floating_point() and "running" not in name:
                moved[name] = tensor + 0.5 * torch.randn(tensor.shape, generator=noise)
        replies.append(Reply(order.client, moved, 2.0 + order.client, {"loss": 1.0}))
    return replies


def after_a_round(search):
    state, orders = planned(search)
    return search.merge(state, orders, replies_to(orders), round_of()), orders


def accuracy(search, tensors, arch) -> float:
    net = search.group_model(arch, search.weights_in(tensors, arch))
    return right_answers(net, HELD_BACK, "cpu") / len(HELD_BACK)


def test_one_candidate_without_mutation_is_fedavg_of_the_parent(tmp_path):
    toy = whole_cohort("decnas", candidates=1, mutations=0)
    search = search_of(toy)
    before = search.init(Setup(toy.task, 4), None)
    parent = before.meta[PARENT]
    trace, rounds = searched(toy, tmp_path)
    for number, one in enumerate(rounds, start=1):
        after = one.after
        assert after.meta[PARENT] == parent and after.meta[CANDIDATES] == [parent]
        expected = fedavg_round(
            toy, search.options, Arch.from_plain(parent), before.tensors, number
        )
        check_close(after.tensors, expected)
        check_same_bits_but(after.tensors, before.tensors, expected)
        before = after
    assert trace.outcome.state.meta["build"]["arch"] == parent


def test_candidates_are_mutations_for_groups_of_their_own(toy):
    search = search_of(whole_cohort("decnas", candidates=3))
    state, orders = planned(search, clients=10)
    parent = Arch.from_plain(state.meta[PARENT])
    assert [order.client for order in orders] == list(
        range(10)
    )  # each once: the groups are disjoint
    groups: dict[Arch, list[int]] = {}
    for order in orders:
        groups.setdefault(arch_of(order), []).append(order.client)
    assert sorted(map(len, groups.values())) == [3, 3, 4]
    for arch in groups:
        search.options.group_space.check(arch)
        changed = [slot for slot, live in enumerate(arch.choice) if live != parent.choice[slot]]
        assert 1 <= len(changed) <= 2  # an operation, or where an input comes from
    for order in orders:
        part = search.group_model(arch_of(order)).state_dict()
        assert order.tensors.keys() == part.keys() and order.tensors.keys() < state.tensors.keys()


def test_no_more_candidates_than_clients(toy):
    _, orders = planned(search_of(toy), clients=2)
    assert len({arch_of(order) for order in orders}) == 2


def test_another_round_deals_otherwise(toy):
    search = search_of(whole_cohort("decnas", candidates=2))
    state = search.init(Setup(search.task, 10), None)
    dealt = set()
    for number in range(1, 6):
        _, orders = search.plan(state, round_of(number, 10))
        dealt.add(tuple(order.client for order in orders if arch_of(order) == arch_of(orders[0])))
    assert len(dealt) > 1


def test_the_best_with_the_merged_weights_becomes_the_parent(toy):
    search = search_of(toy)
    merged, orders = after_a_round(search)
    trained = [Arch.from_plain(raw) for raw in merged.meta[TRAINED]]
    assert trained == [arch_of(order) for order in orders] and len(trained) == 4
    figures = [accuracy(search, merged.tensors, arch) for arch in trained]
    first = search.init(Setup(search.task, 4), None)
    assert figures != [accuracy(search, first.tensors, arch) for arch in trained]  # before the mean
    assert len(set(figures)) > 1
    state, _ = search.plan(merged, round_of(2, server_data=HELD_BACK))
    assert [line["validation"] for line in state.meta[JUDGED]] == figures
    assert Arch.from_plain(state.meta[PARENT]) == trained[figures.index(max(figures))]
    assert search.served(state) == Arch.from_plain(state.meta[PARENT])


def test_next_candidates_come_from_the_new_parent(toy):
    search = search_of(whole_cohort("decnas", mutations=0))
    space = search.options.group_space
    merged, _ = after_a_round(search)
    other = space.mutate(Arch.from_plain(merged.meta[PARENT]), round_of().rng("another"))
    state = State(merged.tensors, {**merged.meta, TRAINED: [other.to_plain()]})
    _, orders = search.plan(state, round_of(2))  # one alone needs no judge
    assert {arch_of(order) for order in orders} == {other}


def test_the_parent_stays_where_nobody_answers(toy):
    search = search_of(toy)
    merged, _ = after_a_round(search)
    state, _ = search.plan(merged, round_of(2, asking=lambda orders: []))
    assert state.meta[PARENT] == merged.meta[PARENT]
    assert [line["validation"] for line in state.meta[JUDGED]] == [None] * 4


def test_clients_judge_where_the_server_has_no_samples(toy):
    search = search_of(toy)
    merged, _ = after_a_round(search)
    favourite = merged.meta[TRAINED][2]

    def answer(questions):
        replies = []
        for order in questions:
            right = 1
            if order.meta["arch"] == favourite:
                right = 3
            replies.append(Reply(order.client, meta={"right": right, "samples": 4}))
        return replies

    state, _ = search.plan(merged, round_of(2, asking=answer))
    assert state.meta[PARENT] == favourite
    assert [line["validation"] for line in state.meta[JUDGED]] == [0.25, 0.25, 0.75, 0.25]


def test_only_what_came_back_is_judged(toy):
    search = search_of(toy)
    state, orders = planned(search)
    merged = search.merge(state, orders, replies_to(orders)[1:3], round_of())
    assert [Arch.from_plain(raw) for raw in merged.meta[TRAINED]] == [
        arch_of(orders[1]),
        arch_of(orders[2]),
    ]
    lost = search.merge(state, orders, [], round_of())
    assert lost.meta[TRAINED] == [] and lost.meta[CANDIDATES] == [state.meta[PARENT]]


def test_the_last_candidates_are_judged_too(toy, tmp_path):
    trace, rounds = searched(toy, tmp_path)
    last = rounds[-1].after
    assert last.meta[CANDIDATES] == [last.meta[PARENT], *last.meta[TRAINED]]
    assert len(last.meta[TRAINED]) == 4
    judged = trace.outcome.state.meta["judged"]
    assert [line["architecture"] for line in judged] == last.meta[CANDIDATES]
    assert all(line["validation"] is not None for line in judged)
    assert trace.rows[1].notes[PARENT] == last.meta[PARENT]
    assert trace.rows[1].notes[JUDGED] == last.meta[JUDGED]


def test_clusters_are_refused(toy, tmp_path):
    with pytest.raises(FedloomError, match="--topology flat"):
        replace(toy, topology=Clustered(groups=2)).run(tmp_path)

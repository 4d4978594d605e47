"""FINCH: what each cluster searches, how it is merged, and what is trained in the end."""

from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace

import pytest
import torch

from fedloom.config.models import Experiment
from fedloom.cost.devices import Device
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.protocol.packing import bytes_in_message
from fedloom.federation.protocol.wire import Body
from fedloom.federation.server.availability import Attendance
from fedloom.federation.server.clustered import Clustered
from fedloom.federation.server.topology import Flat
from fedloom.learning.training import batch_norms
from fedloom.methods import stages
from fedloom.methods.finch_spaces import notes_in
from fedloom.rng import rng
from fedloom.runs.clusters import with_topology
from fedloom.runs.notices import of_reductions
from fedloom.runs.privacy import departures_of
from fedloom.spaces.mixed import alpha_in
from fedloom.spaces.owners import owners_in
from fedloom.stages.group_training import TrainGroup
from fedloom.stages.groups import CANDIDATES, SCORE, SEARCH, region_of, right_answers
from fedloom.testing import Toy
from fedloom.testing.engines import stamp_of
from fedloom.testing.repeating import interrupted
from fedloom.testing.toy import differences, made_up, samples
from fedloom.types import Arch, Reply, Round, Setup, State, Together

SMALL = {"ops": "s3", "nodes": 1, "group": 2, "stack": 1, "lambda1": 1}  # 4 slots of 3 operations
THREE = (Together(0, (0, 3), 0.5), Together(1, (1, 4), 0.1), Together(2, (2, 5), 0.3))


def toy_of(rounds=4, **options):
    return replace(Toy.of("finch", {**SMALL, **options}, rounds), participation=1.0)


def stage_of(name, **options):
    for stage in toy_of(**options).stages:
        if stage.name == name:
            return stage.method
    raise AssertionError(f"no stage {name}")


@dataclass(frozen=True)
class Fixed:
    """Clusters that are written down."""

    clusters: tuple[Together, ...] = THREE

    def of(self, clients, updates=None):
        return self.clusters


def round_of(number=1, **more):
    """Six clients in three clusters."""
    facts = {"server_data": samples(9, "server"), "grouping": Fixed(), "hops": 2, **more}
    return Round(number, 0.0, 10.0, range(6), 1.0, 7, **facts)


def begun(search):
    return search.init(Setup(search.task, 6), None)


def archs_in(state):
    return {number: Arch.from_plain(note.space) for number, note in notes_in(state).items()}


# Which sub-space goes where


def test_a_sub_space_for_every_cluster_and_its_members():
    search = stage_of("search")
    state, orders = search.plan(begun(search), round_of())
    archs = archs_in(state)
    assert len(set(archs.values())) > 1
    groups = {}
    for order in orders:
        groups[order.client] = order.group
        assert Arch.from_plain(order.meta["arch"]) == archs[order.group]
        assert order.meta["hops"] == 2 and order.meta["steps"] == 1
    assert groups == {0: 0, 3: 0, 1: 1, 4: 1, 2: 2, 5: 2}
    for arch in archs.values():
        assert all(len(live) == 2 for live in arch.choice)


def test_the_first_round_goes_by_cost_alone():
    search = stage_of("search")
    state, _ = search.plan(begun(search), round_of())
    notes = notes_in(state)
    assert all(note.c is None and note.worth == 1 / note.R for note in notes.values())
    assert notes[1].R <= notes[2].R <= notes[0].R  # levels .1, .3 and .5


def test_later_rounds_go_by_the_servers_samples():
    search = stage_of("search")
    state, _ = search.plan(begun(search), round_of(1))
    state, orders = search.plan(state, round_of(2))
    notes = notes_in(state)
    for order in orders:
        note = notes[order.group]
        net = search.mixed(order.tensors, order.meta)
        assert note.c == right_answers(net, samples(9, "server"), "cpu") / 9
        assert note.worth == note.c / note.R
    assert notes[1].worth >= notes[2].worth >= notes[0].worth


@dataclass
class Asked:
    """Clients of which each has one right answer more than its number, of ten."""

    orders: list = field(default_factory=list)
    silent: tuple[int, ...] = ()

    def __call__(self, orders):
        self.orders += orders
        replies = []
        for order in orders:
            if order.client not in self.silent:
                replies.append(Reply(order.client, meta={"right": order.client + 1, "samples": 10}))
        return replies


def test_or_by_those_of_a_few_clients():
    search = stage_of("search", score_clients=2)
    asked = Asked()
    state, _ = search.plan(begun(search), round_of(1, server_data=None, asking=asked))
    assert asked.orders == []  # the first round goes by R alone
    state, _ = search.plan(state, round_of(2, server_data=None, asking=asked))
    clients = sorted({order.client for order in asked.orders})
    assert (
        len(clients) == 2
        and len(asked.orders) == 2 * 3
        and {order.kind for order in asked.orders} == {SCORE}
    )
    expected = (sum(clients) + 2) / 20
    assert {note.c for note in notes_in(state).values()} == {expected}


def test_nobody_answers():
    search = stage_of("search")
    asked = Asked(silent=tuple(range(6)))
    state, _ = search.plan(begun(search), round_of(1, server_data=None, asking=asked))
    state, _ = search.plan(state, round_of(2, server_data=None, asking=asked))
    assert asked.orders and all(note.c is None for note in notes_in(state).values())


def judged_net(search):
    """Whose running statistics are of another network."""
    net = search.mixed(begun(search).tensors, {})
    for norm in batch_norms(net):
        norm.running_mean.fill_(50.0)
        norm.running_var.fill_(0.01)
    return net


def right_by_hand(net, parts):
    with torch.no_grad():
        return sum(int((net(part.x).argmax(dim=1) == part.y).sum()) for part in parts)


def test_networks_are_judged_with_the_statistics_of_the_samples():
    search = stage_of("search")
    data = samples(258, "judging")  # more than are judged at once
    halves = [Samples(data.x[:129], data.y[:129]), Samples(data.x[129:], data.y[129:])]
    expected = right_by_hand(judged_net(search).train(), halves)
    with_running = right_by_hand(judged_net(search).eval(), halves)
    assert expected != with_running
    assert right_answers(judged_net(search), data, "cpu", "received") == expected
    assert right_answers(judged_net(search), data, "cpu", "averaged") == expected
    assert right_answers(judged_net(search), data, "cpu", "frozen") == with_running


def test_one_sample_has_no_statistics_of_its_own():
    search = stage_of("search")
    one = samples(1, "judging")
    expected = right_by_hand(judged_net(search).eval(), [one])
    assert right_answers(judged_net(search), one, "cpu", "received") == expected


def spaces_of_rounds(search, rounds):
    state = begun(search)
    seen = []
    for number in range(1, rounds + 1):
        state, _ = search.plan(state, round_of(number))
        seen.append(set(archs_in(state).values()))
    return seen


def test_sub_spaces_are_drawn_anew_each_round():
    seen = spaces_of_rounds(stage_of("search"), 3)
    assert seen[0] != seen[1] != seen[2]


def test_or_after_some_rounds():
    seen = spaces_of_rounds(stage_of("search", resample=2), 5)
    assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4]


def test_while_sub_spaces_stay_clusters_tell_their_accuracy(tmp_path):
    toy = replace(toy_of(resample=3, rounds=5), evaluate_every=100)
    trace = toy.run(tmp_path)
    first, second = (row for row in trace.rows if row.stage == "search")
    spaces = {str(cluster.space): cluster for cluster in first.clusters}
    weighted_accuracies = {}
    for exchange in trace.exchanges:
        stamp = stamp_of(exchange.order)
        if (stamp.stage, stamp.round, stamp.hop) == ("search", first.round, 1):
            weighted = (exchange.reply.weight, exchange.reply.meta["accuracy"])
            weighted_accuracies.setdefault(exchange.order.group, []).append(weighted)
    for cluster in second.clusters:
        before = spaces[str(cluster.space)]
        total = 0.0
        weights = 0.0
        for weight, accuracy in weighted_accuracies[before.cluster]:
            total += weight * accuracy
            weights += weight
        mean = total / weights
        assert before.c is None and cluster.c == pytest.approx(mean, abs=1e-9)


def test_the_same_sub_space_for_all():
    search = stage_of("search", spaces="same")
    state, _ = search.plan(begun(search), round_of(1))
    state, _ = search.plan(state, round_of(2))
    assert len(set(archs_in(state).values())) == 1
    assert all(note.c is None for note in notes_in(state).values())  # nothing hangs on it


def test_reverse_gives_the_best_to_the_most_skewed():
    by_rule = stage_of("search")
    reverse = stage_of("search", allocation="reverse")
    archs = archs_in(by_rule.plan(begun(by_rule), round_of())[0])
    reversed_archs = archs_in(reverse.plan(begun(reverse), round_of())[0])
    assert reversed_archs == {1: archs[0], 2: archs[2], 0: archs[1]}


def test_by_chance_each_gets_one_of_its_own():
    by_rule = stage_of("search")
    chance = stage_of("search", allocation="random")
    places = set()
    for number in range(1, 9):
        archs = archs_in(by_rule.plan(begun(by_rule), round_of(number))[0])
        dealt = archs_in(chance.plan(begun(chance), round_of(number))[0])
        assert set(dealt.values()) == set(archs.values())
        worst = archs[0]
        places.add(next(cluster for cluster, arch in dealt.items() if arch == worst))
    assert places == {0, 1, 2}


def costs_of(allowance, **options):
    """R of every cluster, and of the same by hand with a B of one transfer."""
    search = stage_of("search", **options)
    state, orders = search.plan(begun(search), round_of(allowance=allowance))
    sizes = {order.group: bytes_in_message(order.tensors) for order in orders}
    macs = {number: search.table.of(arch) for number, arch in archs_in(state).items()}
    return search, notes_in(state), sizes, macs


@pytest.mark.parametrize(
    ("allowance", "bandwidth"),
    [
        ({}, None),
        ({"seconds": 5.0}, None),
        ({"wan": 6e6}, 1e6),  # two transfers of each of three clusters
        (
            {"bytes": 18e6},
            1e6,
        ),  # and two, in each of two hops, of each of three members beside an aggregator
        ({"wan": 6e6, "bytes": 36e6}, 1e6),
    ],
)
def test_eq_12_of_a_round(allowance, bandwidth):
    search, notes, sizes, macs = costs_of(allowance, weigh=0.25)
    if bandwidth is None:
        bandwidth = bytes_in_message(begun(search).tensors)
    for number, note in notes.items():
        expected = (
            0.25 * sizes[number] / bandwidth + 0.75 * macs[number] / search.table.everything()
        )
        assert abs(note.R - (expected)) < 1e-12 * note.R


def test_flops_max_bounds_every_sub_space_and_is_the_limit_of_eq_12():
    table = stage_of("search").table
    limit = (table.least(2) + table.everything()) // 2
    _, notes, sizes, macs = costs_of({"wan": 6e6}, flops_max=limit)
    assert max(macs.values()) <= limit
    for number, note in notes.items():
        assert (
            abs(note.R - (0.5 * sizes[number] / 1e6 + 0.5 * macs[number] / limit)) < 1e-12 * note.R
        )


# The merge


def filled(search, tensors, arch, value):
    """A part of the supernet whose numbers are all the same."""
    part = {}
    for name, tensor in search.part(tensors, arch).items():
        part[name] = tensor
        if tensor.is_floating_point():
            part[name] = torch.full_like(tensor, value)
    return part


def test_merge():
    """Numbers of the issue. The first slot shows α, the second weights and BN statistics."""
    search = stage_of("search", ops="full", group=1)
    state = begun(search)
    slot = next(iter(alpha_in(state.tensors)))
    alpha = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    state = State({**state.tensors, f"alpha/{slot}": alpha}, state.meta)
    choices = [((0, 2), (4, 6)), ((2, 3), (6, 7)), ((5, 6), (3, 5))]
    values = [1.0, 5.0, 9.0]
    rows = [[0.5, 0.9], [0.1, -0.3], [0.0, 0.0]]
    archs = [Arch(search.options.group_space.name, choice) for choice in choices]
    _, orders = search.plan(state, round_of())
    planned = []
    replies = []
    for number, arch in enumerate(archs):
        order = replace(
            orders[number],
            tensors=search.part(state.tensors, arch),
            meta={**orders[number].meta, "arch": arch.to_plain()},
            region=region_of(arch, alpha_in(state.tensors)),
        )
        planned.append(order)
        tensors = filled(search, state.tensors, arch, values[number])
        tensors[f"alpha/{slot}"] = torch.tensor(rows[number])
        replies.append(Reply(order.client, tensors, [300.0, 100.0, 600.0][number], {"loss": 0.0}))
    merged = search.merge(state, planned, replies, round_of()).tensors
    expected = torch.tensor([0.5, 0.2, 0.7, -0.3, 0.5, 0.0, 0.0, 0.8])
    assert torch.allclose(merged[f"alpha/{slot}"], expected, atol=1e-6)
    for unheld in (1, 4, 7):
        assert merged[f"alpha/{slot}"][unheld] == alpha[unheld]
    means = {4: 1.0, 6: 2.0, 7: 5.0, 3: 9.0, 5: 9.0}
    seen = set()
    owners = owners_in(
        search.options.group_space,
        search.task.shape,
        len(search.task.labels),
        search.options.searched_size,
    )
    for name, owner in owners.items():
        if owner is None or owner.slot != 1 or not merged[name].is_floating_point():
            continue
        if owner.op in means:
            assert torch.allclose(
                merged[name], torch.full_like(merged[name], means[owner.op]), atol=1e-6
            )
        else:
            assert torch.equal(merged[name], state.tensors[name])
        seen.add((owner.op, "running" in name))
    assert {(6, False), (6, True), (4, False), (7, True)} <= seen


# Equivalences, bytes


def largest_gap(one, other):
    assert one.keys() == other.keys()
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one)


def test_one_cluster_with_everything_is_flat(tmp_path):
    toy = toy_of(
        head="mean", cluster_size=4, ops_per_edge=3, lambda1=2, lambda2=1, histograms="exact"
    )
    clustered = toy.run(tmp_path / "clustered")
    flat = replace(toy, topology=Flat()).run(tmp_path / "flat")
    assert [len(row.clusters) for row in clustered.rows] == [0, 1, 1, 1]
    assert [len(row.clusters) for row in flat.rows] == [0, 0, 0, 0]
    for number in sorted(clustered.states):
        assert largest_gap(clustered.states[number].tensors, flat.states[number].tensors) <= 1e-6


def test_a_round_sends_the_sub_space_and_nothing_else(tmp_path):
    toy = toy_of(cluster_size=2)
    trace = toy.run(tmp_path)
    search = toy.stages[1].method
    everything = bytes_in_message(begun(search).tensors)
    rows = {row.round: row for row in trace.rows}
    compared = 0
    for exchange in trace.exchanges:
        order = exchange.order
        stamp = stamp_of(order)
        if stamp.stage != "search" or order.kind != SEARCH:
            continue
        arch = Arch.from_plain(order.meta["arch"])
        part = search.part(begun(search).tensors, arch)
        assert {name: tensor.shape for name, tensor in order.tensors.items()} == {
            name: tensor.shape for name, tensor in part.items()
        }
        assert exchange.reply.tensors.keys() == part.keys()
        assert len(exchange.body) == Body(part).size < everything
        row = rows[stamp.round]
        cluster = next(cluster for cluster in row.clusters if cluster.cluster == order.group)
        assert cluster.space == arch.to_plain()
        bytes_sent = len(exchange.head) + len(exchange.body)
        line = next(
            line for line in row.ledger if (line.hop, line.client) == (stamp.hop, order.client)
        )
        if order.client == cluster.aggregator:
            assert line.down == 0  # it talks with itself for nothing
            if stamp.hop == 0:
                assert abs(cluster.wan_down - bytes_sent) < 200  # the same, with a head of its own
        else:
            assert line.down == bytes_sent
            compared += 1
    assert compared == 2 * 2 * 2  # one of each cluster, twice a round


# What optimisers remember


def run_of(toy, stage, number, hop):
    return ClientRun(toy.task, stage, number, hop, 0, "cpu", lambda: b"secret")


@pytest.mark.parametrize("name", ["search", "train"])
def test_optimisers_remember_a_round_and_no_more(name):
    toy = toy_of(alpha_lr=0.1)
    method = next(stage.method for stage in toy.stages if stage.name == name)
    if name == "search":
        _, orders = method.plan(begun(method), round_of())
    else:
        search = toy.stages[1].method
        _, orders = method.plan(method.init(Setup(toy.task, 6), begun(search)), round_of())
    order = orders[0]
    data = toy.data[0].train

    def after(own, number, hop):
        return method.client(order, data, own, run_of(toy, name, number, hop))

    _, memory = after(None, 3, 0)
    assert memory is not None and memory.tensors
    remembering, memory_after = after(memory, 3, 1)
    assert memory_after is None  # the round has two hops
    fresh, _ = after(None, 3, 1)
    moved = [
        key
        for key in fresh.tensors
        if not torch.equal(fresh.tensors[key], remembering.tensors[key])
    ]
    assert any(key.endswith("weight") for key in moved)
    assert name == "train" or any(key.startswith("alpha/") for key in moved)
    # A client whose first reply was refused has an older memory in its second hop.
    for hop in (0, 1):
        late, _ = after(memory, 4, hop)
        afresh, _ = after(None, 4, hop)
        assert all(torch.equal(late.tensors[key], afresh.tensors[key]) for key in afresh.tensors)


def test_a_rounds_second_hop_reads_what_the_first_wrote(tmp_path):
    trace = toy_of().run(tmp_path)
    seen = set()
    for exchange in trace.exchanges:
        stamp = stamp_of(exchange.order)
        if stamp.stage != "pretrain" and stamp.hop == 1:
            assert stamp.read == f"{stamp.round}.0"
            seen.add(stamp.stage)
    assert seen == {"search", "train"}


# Pretraining


def test_pretraining_ends_after_its_iterations():
    pretrain = stage_of("pretrain", pretrain=5, lambda1=2)
    state = pretrain.init(Setup(pretrain.task, 6), None)
    steps = []
    while True:
        planned = pretrain.plan(state, round_of(grouping=None, hops=1))
        if planned is None:
            break
        state, orders = planned
        assert {order.client for order in orders} == set(range(6)) and orders[
            0
        ].tensors.keys() == state.tensors.keys()
        steps.append(orders[0].meta["steps"])
        replies = [Reply(0, orders[0].tensors, 1.0, {"loss": 0.0})]
        state = pretrain.merge(state, orders, replies, round_of())
    assert steps == [4, 1]  # flat, a round has the work of both hops


def test_pretraining_is_flat_and_has_a_tenth_of_the_budget():
    first, second, third = toy_of().stages
    assert (first.name, first.share, first.is_flat) == ("pretrain", 0.1, True)
    assert (second.name, second.is_flat, third.name, third.is_flat) == (
        "search",
        False,
        "train",
        False,
    )
    assert [stage.name for stage in toy_of(pretrain=0).stages] == ["search", "train"]


# The end


def test_the_best_group_is_chosen_on_validation(tmp_path):
    toy = toy_of()
    trace = toy.run(tmp_path)
    final = toy.stages[-1].method.sections(trace.outcome.state).final
    (chosen,) = (candidate for candidate in final.candidates if candidate.chosen)
    assert final.architecture == chosen.architecture
    assert chosen.validation == max(candidate.validation for candidate in final.candidates)
    search = toy.stages[1].method
    searched = trace.checkpoints[3].state if 3 in trace.checkpoints else None
    assert (
        searched is not None and 1 <= len(final.candidates) <= 3
    )  # the merged one, and of two clusters
    server = samples(9, "server")
    for candidate, raw in zip(final.candidates, searched.meta["candidates"], strict=True):
        assert candidate.architecture == raw
        arch = Arch.from_plain(raw)
        net = search.group_model(arch, search.weights_in(searched.tensors, arch))
        assert candidate.validation == right_answers(net, server, "cpu") / 9
    cost = search.options.group_space.cost(
        toy.task.shape,
        3,
        Arch.from_plain(final.architecture),
        toy.stages[-1].method.options.final_size,
        affine=True,
    )
    assert (final.params, final.macs, final.cells, final.stack) == (cost.params, cost.macs, 2, 1)


@dataclass(frozen=True)
class Judging(TrainGroup):
    """Candidates of which it is written down how good they are."""

    figures: tuple[float | None, ...] = ()

    def accuracies(self, parts, archs, clients, r):
        return list(self.figures)


@pytest.mark.parametrize(
    ("figures", "best"),
    [((0.2, 0.5, 0.4), 1), ((0.5, 0.2, 0.5), 0), ((None, 0.0, 0.1), 2), ((None, None, None), 0)],
)
def test_the_best_on_validation_is_stacked(figures, best):
    """Among equals the first, which is the merged one."""
    train = stage_of("train")
    judging = Judging(train.options, train.task, figures)
    space = train.options.group_space
    candidates = [space.sample(rng(7, "candidate", place)).to_plain() for place in range(3)]
    handed_on = begun(stage_of("search"))
    state = State(handed_on.tensors, {CANDIDATES: candidates})
    chosen, _ = judging.plan(state, round_of())
    assert chosen.meta["build"]["arch"] == candidates[best]
    assert [candidate["chosen"] for candidate in chosen.meta["judged"]] == [
        place == best for place in range(3)
    ]
    assert [candidate["validation"] for candidate in chosen.meta["judged"]] == list(figures)


class WithoutServerSamples(Toy):
    def loop(self, folder, engine, listen, watch):
        return replace(super().loop(folder, engine, listen, watch), server_data=None)


def test_who_scores_before_its_first_work_is_described_first(tmp_path):
    """Its counts bound what it may answer; without them its answer would be refused."""
    options = {**SMALL, "clustering": "random", "recluster": 1, "cluster_size": 1}
    toy = Toy.of("finch", options, rounds=4)
    toy = WithoutServerSamples(**{**vars(toy), "data": made_up((6,) * 16), "participation": 0.125})
    trace = toy.run(tmp_path)
    worked_before = set()
    for row in trace.rows[:2]:
        worked_before.update(line.client for line in row.ledger if line.hop >= 0)
    asked = set()
    for cluster in trace.rows[2].clusters:
        asked.update(cluster.members)
    assert not asked & worked_before, "the seed was chosen so that nobody worked before"
    assert [cluster.c for cluster in trace.rows[2].clusters if cluster.c is None] == []


def test_test_data_decide_nothing(tmp_path):
    toy = toy_of()
    other = replace(toy, data=made_up(test="another"))
    one = toy.run(tmp_path / "one").outcome.state
    two = other.run(tmp_path / "two").outcome.state
    assert one.meta == two.meta and all(
        torch.equal(one.tensors[key], two.tensors[key]) for key in one.tensors
    )


def test_each_cluster_brings_a_candidate_of_its_own_alpha():
    search = stage_of("search")
    space = search.options.group_space
    state, orders = search.plan(begun(search), round_of())
    replies = []
    for client in (0, 1, 2):
        order = orders[client]
        tensors = dict(order.tensors)
        for name in tensors:
            if name.startswith("alpha/"):
                tensors[name] = torch.tensor([0.0, 9.0])  # the second of its two operations
        replies.append(Reply(client, tensors, 1.0, {"loss": 0.0}))
    after = search.merge(state, orders, replies, round_of())
    merged, *of_clusters = [Arch.from_plain(raw) for raw in after.meta["candidates"]]
    expected = []
    for reply in replies:
        arch = archs_in(state)[orders[reply.client].group]
        rows = []
        for live in arch.choice:
            row = torch.zeros(3)
            row[live[0]], row[live[1]] = torch.softmax(torch.tensor([0.0, 9.0]), 0)
            rows.append(row.numpy())
        expected.append(space.derive(rows))
    assert of_clusters == [arch for arch in dict.fromkeys(expected) if arch != merged]


def test_a_random_group_is_one_candidate_by_chance(tmp_path):
    toy = toy_of(search="random", rounds=3)
    final = toy.stages[-1].method.sections(toy.run(tmp_path).outcome.state).final
    drawn = toy.stages[1].method.options.group_space.sample(rng(7, "by chance"))
    assert final.architecture == drawn.to_plain() and len(final.candidates) == 1


def test_before_its_first_round_the_last_stage_has_the_supernet():
    toy = toy_of()
    train = toy.stages[-1].method
    state = train.init(Setup(toy.task, 6), begun(toy.stages[1].method))
    order = train.serve(state, 0)
    net = train.network(order, toy.data[0].train, None, run_of(toy, "train", 3, 0)).eval()
    assert net(toy.data[0].test.x).shape == (4, 3)
    assert train.sections(state).final is None


def test_a_cell_that_reduces_for_the_first_time_is_named():
    assert of_reductions(Toy.of("finch", {**SMALL, "group": 4, "stack": 5}).task) == []
    (words,) = of_reductions(Toy.of("finch", {**SMALL, "group": 4, "stack": 3}).task)
    assert "cell 4 of the network's 12 reduces, but is a copy of cell 0" in words
    assert of_reductions(Toy.of("fedavg").task) == of_reductions(Toy.of("fednas").task) == []


def test_a_final_network_with_too_small_images_is_refused_at_once():
    task = Toy.of(
        "finch", {**SMALL, "group": 1, "stack": 3}
    ).task  # the search halves once, the network twice
    with pytest.raises(FedloomError, match="images for 3 cells must be at least 4×4"):
        stages(replace(task, shape=(1, 3, 3)))


# Variants


@pytest.mark.parametrize(
    ("clustering", "spaces"),
    [
        ("none", "same"),
        ("none", "different"),
        ("labels", "same"),
        ("labels", "different"),
        ("updates", "different"),
        ("speed", "different"),
        ("random", "different"),
        ("alike", "different"),
    ],
)
def test_variants(clustering, spaces, tmp_path):
    toy = toy_of(rounds=3, clustering=clustering, spaces=spaces)
    trace = toy.run(tmp_path)
    assert [row.stage for row in trace.rows] == ["pretrain", "search", "train"]
    assert isinstance(toy.topology, Flat) == (clustering == "none")
    in_search = trace.rows[1].clusters
    assert len(in_search) == (0 if clustering == "none" else 2)
    spaces_seen = set()
    for exchange in trace.exchanges:
        if stamp_of(exchange.order).stage == "search" and exchange.order.kind == SEARCH:
            spaces_seen.add(str(exchange.order.meta["arch"]))
    assert (len(spaces_seen) == 1) == (spaces == "same")
    assert all(client.own.reason is None for client in trace.outcome.clients)


@dataclass(frozen=True)
class Alone(Toy):
    """The server has no samples of its own."""

    def loop(self, folder, engine, listen, watch):
        loop = super().loop(folder, engine, listen, watch)
        loop.server_data = None
        return loop


def test_without_label_counts_updates_of_pretraining_decide(tmp_path):
    """And a client that was never asked before can score: it is described first."""
    toy = Toy.of("finch", {**SMALL, "histograms": "none", "recluster": 2}, rounds=9)
    assert toy.topology.rule == "updates" and toy.histograms is None
    toy = Alone(
        **{
            **vars(toy),
            "participation": 0.34,
            "data": made_up((7, 5, 8, 6, 6, 7)),
            "evaluate_every": 100,
        }
    )
    trace = toy.run(tmp_path)
    state = trace.outcome.state.tensors
    pretrained = {line.client for line in trace.rows[0].ledger if line.hop >= 0}
    assert set(state["server/updated"].tolist()) == pretrained
    assert state["server/updates"].shape == (len(pretrained), 64)
    cohorts = set()
    for row in trace.rows:
        if row.stage == "search":
            cohorts.add(tuple(sorted({line.client for line in row.ledger if line.hop >= 0})))
    assert len(cohorts) > 1
    final = toy.stages[-1].method.sections(trace.outcome.state).final
    assert len(final.candidates) == 1 or all(one.validation is not None for one in final.candidates)
    assert trace.outcome.totals.describe_down > 0


def test_scores_of_clients_are_booked_as_evaluation(tmp_path):
    toy = Alone(**{**vars(toy_of(score_clients=2)), "evaluate_every": 100})
    trace = toy.run(tmp_path)
    first, second = (row for row in trace.rows if row.stage == "search")
    down = up = 0
    asked = set()
    for exchange in trace.exchanges:
        order = exchange.order
        if order.kind == SCORE and stamp_of(order).round == second.round:
            down += len(exchange.head) + len(exchange.body)
            up += len(exchange.answer)
            asked.add(order.client)
    assert len(asked) == 2 and down > 0
    # The last row of a stage has its evaluation too.
    of_second = sum(
        len(exchange.head) + len(exchange.body)
        for exchange in trace.exchanges
        if exchange.order.kind == "evaluate" and stamp_of(exchange.order).round == second.round
    )
    assert second.totals.evaluate_down - first.totals.evaluate_down == down + of_second
    assert second.server_macs == 0  # clients did the work, though in one process
    assert second.totals.evaluate_macs > first.totals.evaluate_macs
    assert all(cluster.c is not None for cluster in second.clusters)
    assert (
        sum(line.down for line in second.ledger) == second.totals.lan_down - first.totals.lan_down
    )


def test_the_server_sees_every_clients_score_and_the_means_of_clusters():
    toy = toy_of()
    config = with_topology(Experiment(method="finch"), toy.task.options, len(toy.data))
    prepared = SimpleNamespace(config=config, task=toy.task)
    seen_by = {}
    for stage in toy.stages:
        for kind, fields in stage.method.fields.items():
            departures = departures_of(stage, kind, fields, prepared)
            seen_by[stage.name, kind] = [departure.seen_by for departure in departures]
    in_clusters = ["aggregator of the cluster", "server: the mean of a cluster, by samples"]
    assert seen_by == {
        ("pretrain", "search"): ["server"],
        ("search", "search"): in_clusters,
        ("search", "score"): ["server"],
        ("train", "train"): in_clusters,
        ("train", "score"): ["server"],
    }


# By the clock: lost aggregators, stops


DEVICES = (
    Device(1e9, 4e6, 1e6, 0.5e6),
    Device(2e9, 8e6, 2e6, 1e6),
    Device(0.5e9, 4e6, 4e6, 2e6),
    Device(1e9, 2e6, 2e6, 2e6),
)


@dataclass(frozen=True)
class Clocked(Alone):
    faults: dict[tuple[int, int], int] = field(default_factory=dict)  # hop, by round and client

    def loop(self, folder, engine, listen, watch):
        loop = super().loop(folder, engine, listen, watch)
        attendance = Attendance(len(self.data), faults=self.faults)
        loop.settings = replace(loop.settings, devices=DEVICES, attendance=attendance)
        return loop


@pytest.fixture
def clocked():
    """Clusters {0, 1, 2} and {3}."""
    toy = toy_of(cluster_size=3, lambda2=2)
    topology = replace(toy.topology, rule="who.json", assigned=((0, 1, 2), (3,)))
    assert isinstance(topology, Clustered)
    return Clocked(**{**vars(toy), "topology": topology})


def test_scoring_takes_no_simulated_time(clocked, tmp_path):
    row = clocked.run(tmp_path).rows[2]
    assert all(cluster.c is not None for cluster in row.clusters)
    slowest = max(cluster.seconds for cluster in row.clusters)
    assert (
        row.simulated.end - row.simulated.begin == pytest.approx(slowest, abs=1e-9)
        and slowest < inf
    )


@pytest.mark.whole
def test_an_aggregator_lost_during_the_search_and_stops_there(clocked, tmp_path):
    lost = clocked.run(tmp_path / "whole").rows[2].clusters[0].aggregator
    gone = replace(clocked, faults={(3, lost): 1})
    through = gone.run(tmp_path / "through")
    row = through.rows[2].clusters[0]
    assert through.rows[2].stage == "search" and row.replaced == (lost,) and row.aggregator != lost
    resumed, stops = interrupted(gone, tmp_path / "stopped", {"work"})
    assert stops > 20 and differences(through, resumed) == []


def test_the_cohort_stays_between_clusterings(tmp_path):
    toy = replace(toy_of(rounds=7, recluster=2, pretrain=0, histograms="exact"), participation=0.5)
    cohorts = []
    for row in toy.run(tmp_path).rows:
        members = []
        for cluster in row.clusters:
            members += cluster.members
        cohorts.append((row.stage, tuple(sorted(members))))
    search = [cohort for stage, cohort in cohorts if stage == "search"]
    assert len(search) == 4 and search[0] == search[1] and search[2] == search[3]
    assert len(set(cohorts)) > 2

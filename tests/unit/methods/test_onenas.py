"""OneNAS: one path a round is FedAvg of it; what is sent, and what the search hands on."""

from dataclasses import replace

import pytest
import torch
from paths_by_hand import (
    EXACT,
    check_close,
    check_same_bits_but,
    fedavg_round,
    searched,
    whole_cohort,
)
from torch.nn import functional

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.federation.server.clustered import Clustered
from fedloom.methods.onenas import OneNasOptions, Search
from fedloom.runs.configure import resolve_options
from fedloom.spaces.choice import Mixture
from fedloom.stages.group_paths import PretrainWeights
from fedloom.stages.group_training import TrainGroup
from fedloom.stages.groups import CANDIDATES, right_answers
from fedloom.testing import Toy
from fedloom.testing.toy import samples
from fedloom.types import Arch, Order, Round, Setup


def parts(toy: Toy) -> tuple[OneNasOptions, Search]:
    options = OneNasOptions(**toy.task.options)
    return options, Search(options, toy.task)


def test_one_path_is_fedavg_of_it_that_round(tmp_path):
    toy = whole_cohort("onenas")
    options, search = parts(toy)
    before = search.init(Setup(toy.task, 4), None)
    _, rounds = searched(toy, tmp_path)
    for number, one in enumerate(rounds, start=1):
        order = one.orders[0]
        expected = fedavg_round(
            toy, options, Arch.from_plain(order.meta["arch"]), before.tensors, number
        )
        assert expected.keys() == order.tensors.keys()
        check_close(one.after.tensors, expected)
        check_same_bits_but(one.after.tensors, before.tensors, expected)
        before = one.after


def test_everybody_gets_the_path_of_the_round_and_its_weights_alone(tmp_path):
    toy = whole_cohort("onenas")
    options, search = parts(toy)
    trace, rounds = searched(toy, tmp_path)
    paths = []
    for one in rounds:
        assert [order.client for order in one.orders] == [0, 1, 2, 3]
        archs = {Arch.from_plain(order.meta["arch"]) for order in one.orders}
        assert len(archs) == 1
        arch = archs.pop()
        options.group_space.check(arch)
        assert one.orders[0].tensors.keys() == search.group_model(arch).state_dict().keys()
        paths.append(arch)
    assert len(set(paths)) == len(rounds) == 2
    whole = search.group_model().state_dict().keys()
    assert rounds[0].orders[0].tensors.keys() < whole
    assert [row.notes["path"] for row in trace.rows[:2]] == [path.to_plain() for path in paths]


def test_the_best_candidate_on_validation_is_trained(tmp_path):
    toy = whole_cohort("onenas", candidates=6)
    _, search = parts(toy)
    trace, rounds = searched(toy, tmp_path)
    supernet = rounds[-1].after
    judged = trace.outcome.state.meta["judged"]
    assert [line["architecture"] for line in judged] == supernet.meta[CANDIDATES]
    assert len({str(line["architecture"]) for line in judged}) == 6
    held_back = samples(9, "server")
    figures = []
    for line in judged:
        arch = Arch.from_plain(line["architecture"])
        net = search.group_model(arch, search.weights_in(supernet.tensors, arch))
        figures.append(right_answers(net, held_back, "cpu") / 9)
    assert [line["validation"] for line in judged] == figures
    assert len(set(figures)) > 1  # otherwise nothing was chosen
    best = judged[figures.index(max(figures))]
    assert best["chosen"] and sum(line["chosen"] for line in judged) == 1
    assert trace.outcome.state.meta["build"]["arch"] == best["architecture"]


def test_without_samples_of_the_server_clients_judge_by_what_they_did_not_train_on():
    toy = whole_cohort("onenas")
    options, search = parts(toy)
    state = search.init(Setup(toy.task, 4), None)
    run = ClientRun(toy.task, "train", 3, 0, 1, "cpu", lambda: b"")
    asked = []

    def answer(orders):
        asked.extend(orders)
        return [
            search.client(order, toy.data[order.client].train, None, run)[0] for order in orders
        ]

    r = Round(3, 0.0, 2.0, range(4), 1.0, 7, asking=answer)
    train = TrainGroup(options, toy.task)
    chosen, _ = train.plan(train.init(Setup(toy.task, 4), state), r)
    assert {order.kind for order in asked} == {"score"} and len(asked) == 4 * options.candidates
    line = chosen.meta["judged"][0]
    arch = Arch.from_plain(line["architecture"])
    net = search.group_model(arch, search.weights_in(state.tensors, arch))
    right = 0
    total = 0
    for client in toy.data:
        _, validation = client.train.split(options.train_share)
        right += right_answers(net, validation, "cpu")
        total += len(validation)
    assert line["validation"] == right / total


def test_pretraining_weighs_all_operations_alike():
    toy = whole_cohort("onenas", pretrain=1, momentum=0.0, bn="frozen")
    options, search = parts(toy)
    stage = PretrainWeights(options, toy.task)
    state = stage.init(Setup(toy.task, 4), None)
    order = Order(0, "search", state.tensors, {"lr": 0.1, "steps": 1, "hops": 1})
    run = ClientRun(toy.task, "pretrain", 1, 0, 0, "cpu", lambda: b"")
    reply, own = stage.client(order, toy.data[0].train, None, run)
    assert own is None and reply.tensors.keys() == state.tensors.keys()
    part, _ = toy.data[0].train.split(0.5)
    assert reply.weight == len(part)
    net = search.group_model(weights=state.tensors).eval()
    equal = [
        torch.full((len(slot.options),), 1 / len(slot.options))
        for slot in options.group_space.slots
    ]
    loss = functional.cross_entropy(net(part.x, Mixture(tuple(equal))), part.y)
    names, weights = zip(*net.named_parameters(), strict=True)
    for name, weight, gradient in zip(
        names, weights, torch.autograd.grad(loss, weights), strict=True
    ):
        expected = weight - 0.1 * (gradient + options.weight_decay * weight)
        torch.testing.assert_close(reply.tensors[name], expected.detach(), rtol=1e-5, atol=1e-6)


def test_momentum_is_kept_between_the_hops_of_a_round(tmp_path):
    """Two hops of one step by one client are one hop of two steps."""
    flat = whole_cohort("onenas", lambda1=1, lambda2=2)
    flat = replace(flat, data=flat.data[:1])
    hops = replace(flat, topology=Clustered(groups=1, hops=2))
    one = flat.run(tmp_path / "flat").outcome.state.tensors
    other = hops.run(tmp_path / "hops").outcome.state.tensors
    check_close(other, {name: tensor.double() for name, tensor in one.items()})


def test_clusters_by_updates(tmp_path):
    """The first round of a clustering is flat; neither stage asks before who will be together."""
    toy = replace(whole_cohort("onenas"), topology=Clustered(size=2, rule="updates", recluster=2))
    trace = toy.run(tmp_path)
    assert [len(row.clusters or ()) for row in trace.rows[:4]] == [0, 2, 0, 2]


@pytest.mark.parametrize("method", ["decnas", "onenas"])
@pytest.mark.parametrize(
    "option", ["alpha_lr", "lam", "cluster_size", "histograms", "clustering", "flops_max"]
)
def test_what_has_no_effect_is_no_option(method, option):
    with pytest.raises(FedloomError, match=option):
        resolve_options(method, {option: 1})


@pytest.mark.parametrize("method", ["decnas", "onenas"])
def test_what_is_shared_with_finch_has_its_defaults(method):
    finch = resolve_options("finch", {})
    rival = resolve_options(method, {})
    own = {"candidates", "mutations"}
    assert {name: finch[name] for name in rival if name not in own} == {
        name: value for name, value in rival.items() if name not in own
    }
    assert EXACT.keys() <= rival.keys()


def test_before_the_choice_the_first_candidate_is_served():
    """A dry run measures it while the candidates are judged."""
    toy = whole_cohort("onenas")
    options, search = parts(toy)
    train = TrainGroup(options, toy.task)
    state = train.init(Setup(toy.task, 4), search.init(Setup(toy.task, 4), None))
    order = train.serve(state, 0)
    assert order.meta["unstacked"] == state.meta[CANDIDATES][0]
    run = ClientRun(toy.task, "train", 3, 0, 0, "cpu", lambda: b"")
    assert (
        train.network(order, toy.data[0].train, None, run).state_dict().keys()
        == order.tensors.keys()
    )

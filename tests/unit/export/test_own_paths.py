"""Networks whose samples take their own paths: the most likely path, pruning, and their facts."""

import numpy as np
import pytest
import torch
from routed_networks import guided, search_and_network

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.export.paths import (
    OwnSamples,
    PathRequest,
    Turns,
    accuracy_of,
    check_against_run,
    latencies,
    likely_path,
    mean_macs,
    network_to_write,
    operations_of,
    pruned,
    restricted_to,
)
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import program
from fedloom.searchers.routes_taken import FixedRoutes, paths_of, routes_taken
from fedloom.testing.toy import samples
from fedloom.types import Arch


def own(train=20, test=30):
    return OwnSamples(samples(train, "train"), samples(test, "test"))


# The most likely path


def test_it_is_the_most_common_path_as_a_whole():
    """Slot by slot the most common options are 1 and 0, which no sample takes together."""
    paths = np.array([[0, 0], [0, 0], [1, 1], [1, 2], [1, 3]])
    assert likely_path(paths, "some") == Arch("some", ((0,), (0,)))


def test_of_two_that_are_as_common_it_is_the_first_in_the_order_of_the_space():
    paths = np.array([[2, 0], [1, 9], [2, 0], [1, 9], [0, 0]])
    assert likely_path(paths, "some") == Arch("some", ((1,), (9,)))


@torch.no_grad()
def test_one_path_answers_as_the_whole_network_on_that_path():
    network = guided()
    part = samples(6, "test")
    path = paths_of(network, part)[2]
    one = restricted_to(network, Arch(network.guide.space.name, tuple((int(op),) for op in path)))
    forced = FixedRoutes(network, torch.from_numpy(np.tile(path, (len(part), 1))))
    assert torch.equal(one(part.x), network.model(part.x, forced))
    assert operations_of(one) == len(path)
    assert sum(p.numel() for p in one.parameters()) < sum(
        p.numel() for p in network.model.parameters()
    )


def test_share_and_accuracy_are_those_of_the_one_path():
    """Labels are that path's answers, except for five samples; with all paths answers differ."""
    search, network = search_and_network()
    often = samples(1, "often").x.expand(20, -1, -1, -1)
    x = torch.cat([often, samples(60, "others").x])
    paths = paths_of(network, Samples(x, torch.zeros(80, dtype=torch.int64)))
    one = restricted_to(network, likely_path(paths, network.guide.space.name))
    with torch.no_grad():
        y = one(x).argmax(1)
    y[:5] = (y[:5] + 1) % 3
    test = Samples(x, y)
    parts = OwnSamples(samples(4, "train"), test)
    facts = network_to_write(network, PathRequest("likely"), parts, search.task, x).facts
    assert facts.path == "likely"
    assert facts.share == (paths == paths[0]).all(axis=1).mean() < 1
    assert facts.accuracy == 75 / 80
    assert accuracy_of(network, test, search.task) != 75 / 80  # or the two could not be told apart
    assert (facts.samples, facts.left_out) == (80, None)


def test_with_all_paths_every_sample_goes_its_own_way():
    search, network = search_and_network()
    parts = own()
    leaves = network_to_write(network, PathRequest(), parts, search.task, parts.test.x)
    assert leaves.network is network
    assert (leaves.facts.path, leaves.facts.share) == ("each", 1.0)
    assert leaves.facts.accuracy == accuracy_of(network, parts.test, search.task)
    assert leaves.facts.macs == round(routes_taken(network, parts.test, search.task.labels)["macs"])


def test_without_test_samples_nothing_is_said_of_them():
    search, network = search_and_network()
    parts = own(test=0)
    facts = network_to_write(
        network, PathRequest(), parts, search.task, samples(3, "drawn").x
    ).facts
    assert (facts.share, facts.accuracy, facts.macs) == (None, None, None)
    assert facts.latency_ms.keys() == {"each"}


def test_a_network_with_one_path_leaves_as_it_is():
    search, network = search_and_network("feddsnas")
    leaves = network_to_write(network, PathRequest(), None, search.task, samples(3).x)
    assert leaves.network is network
    assert leaves.facts is None


# Pruning


@torch.no_grad()
def test_training_samples_go_on_as_before_where_a_network_is_pruned():
    network = guided()
    train = samples(12, "train")
    smaller = pruned(network, train)
    assert operations_of(smaller) < operations_of(network)
    assert np.array_equal(paths_of(smaller, train), paths_of(network, train))
    torch.testing.assert_close(smaller(train.x), network(train.x))
    for slot, options in enumerate(smaller.model.net.arch.choice):
        assert set(options) == set(paths_of(network, train)[:, slot].tolist())


@torch.no_grad()
def test_operations_that_were_left_out_are_never_taken():
    """Samples that would have taken them take one of the remaining operations."""
    network = guided()
    smaller = pruned(network, samples(3, "train"))
    others = samples(40, "others")
    before = paths_of(network, others)
    after = paths_of(smaller, others)
    had_none_left = 0
    for slot, options in enumerate(smaller.model.net.arch.choice):
        assert set(after[:, slot].tolist()) <= set(options)
        had_none_left += int((~np.isin(before[:, slot], options)).sum())
    assert had_none_left > 0
    written = Whole(smaller)(others.x)
    assert torch.isfinite(written).all()
    torch.testing.assert_close(written, smaller(others.x))


def test_share_of_a_pruned_network_is_that_of_samples_whose_path_is_whole():
    search, network = search_and_network()
    parts = own(train=4)
    facts = network_to_write(
        network, PathRequest(prune=True), parts, search.task, parts.test.x
    ).facts
    paths = paths_of(network, parts.train)
    unchanged = 0
    for path in paths_of(network, parts.test):
        unchanged += all(path[slot] in paths[:, slot] for slot in range(len(path)))
    assert facts.share == unchanged / 30 < 1
    kept = sum(len(set(paths[:, slot].tolist())) for slot in range(paths.shape[1]))
    assert facts.left_out == facts.operations - kept > 0


@torch.no_grad()
def test_cells_without_a_choice_have_no_sampler():
    """If all samples take one path, the remaining network is an ordinary one."""
    network = guided()
    x = samples(1, "one").x.expand(5, -1, -1, -1)
    smaller = pruned(network, Samples(x, torch.zeros(5, dtype=torch.int64)))
    written = program(traced(Whole(smaller)))
    assert not any("sampler" in name for name in written.weights)
    assert "nonzero" not in written.classes
    torch.testing.assert_close(Whole(smaller)(x), network(x))


# What is written


def test_tensors_have_the_names_of_their_places():
    for network in (guided(), pruned(guided(), samples(12))):
        names = set(program(traced(Whole(network))).weights) - {"mean", "std"}
        assert all(name.startswith(("stem", "base", "personal", "classifier")) for name in names)
        for place in ("stem", "base", "personal", "classifier"):
            assert any(name.startswith(place) for name in names)
        assert any(name.startswith("base") and "sampler" in name for name in names)
        assert any(name.startswith("personal") and "sampler" in name for name in names)


def test_a_network_that_answers_otherwise_does_not_leave():
    network = guided()
    parts = own(test=4)
    path = likely_path(paths_of(network, parts.test), network.guide.space.name)
    one = restricted_to(network, path)
    check_against_run(network, one, parts, parts.test.x)
    with torch.no_grad():
        one.net.classifier.bias.add_(0.01)
    with pytest.raises(FedloomError, match=r"scores differ by up to 0\.01"):
        check_against_run(network, one, parts, parts.test.x)


def test_costs_are_a_mean_over_samples():
    search, network = search_and_network()
    part = samples(25, "test")
    assert mean_macs(network, part) == round(
        routes_taken(network, part, search.task.labels)["macs"]
    )
    assert mean_macs(Whole(network), part) == mean_macs(network, part)


def test_latencies_of_one_and_of_many_samples():
    network = guided()
    part = samples(3, "test")
    one = restricted_to(network, likely_path(paths_of(network, part), network.guide.space.name))
    measured = latencies({"each": network, "likely": one}, part.x)
    for by_batch in measured.values():
        assert by_batch.keys() == {1, 32}
        assert all(ms > 0 for ms in by_batch.values())


def test_every_turn_takes_other_samples():
    turns = Turns(lambda batch: batch.flatten().tolist(), torch.arange(3.0).view(3, 1), 2)
    assert [turns(), turns(), turns()] == [[0, 1], [2, 0], [1, 2]]


# What is refused


def test_wishes_that_a_network_with_one_path_cannot_fulfil():
    network = search_and_network("feddsnas")[1]
    PathRequest().check(network, "the model of client 1")
    PathRequest(format="executorch").check(network, "the model of client 1")
    for wish in (PathRequest("each"), PathRequest("likely")):
        with pytest.raises(
            FedloomError,
            match=r"--path must be used with .* client 1 has one path for all samples; leave",
        ):
            wish.check(network, "the model of client 1")
    with pytest.raises(FedloomError, match=r"--prune must be used with .*; leave --prune out"):
        PathRequest(prune=True).check(network, "the model of client 1")


def test_wishes_that_no_network_can_fulfil():
    network = guided()
    with pytest.raises(FedloomError, match="did you mean likely"):
        PathRequest("likly").check(network, "it")
    with pytest.raises(FedloomError, match="--prune must be used with --path each"):
        PathRequest("likely", prune=True).check(network, "it")
    for wish in (PathRequest(format="executorch"), PathRequest("each", format="executorch")):
        with pytest.raises(FedloomError, match=r"plans its memory .* add --path likely"):
            wish.check(network, "it")
    PathRequest("likely", format="executorch").check(network, "it")
    with pytest.raises(FedloomError, match="evaluate=likely"):
        PathRequest("likely").check(guided(evaluate="sample:2"), "it")


def test_samples_that_are_not_here_are_missed():
    with pytest.raises(FedloomError, match="--path likely must have test samples"):
        own(test=0).check(PathRequest("likely"))
    with pytest.raises(FedloomError, match="--prune must have training samples"):
        own(train=0).check(PathRequest(prune=True))
    own(test=0).check(PathRequest(prune=True))

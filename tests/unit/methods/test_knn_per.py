"""kNN-Per against its paper: the mixture, its neighbours and its λ."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedloom.data.samples import ClientData, Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import TrainingOptions, model, weights_of
from fedloom.methods.knn_per import (
    SHARES,
    KnnPerOptions,
    Memorise,
    NetworkOutputs,
    best_share,
    votes,
)
from fedloom.nets.head import head_of
from fedloom.testing import Toy
from fedloom.types import Order, State

LINEAR = f"{Path(__file__).parent}/linear.py"


def test_votes_in_numbers():
    """Distances 1, 2 and 3 of classes 0, 1, 1; of k = 3 class 0 has e⁻¹/(e⁻¹ + e⁻² + e⁻³)."""
    memory = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, -3.0], [50.0, 0.0]])
    labels = np.array([0, 1, 1, 2])
    shares = votes(memory, labels, np.zeros((1, 2)), 3, KnnPerOptions(neighbours=3))
    weights = np.exp([-1.0, -2.0, -3.0])
    np.testing.assert_allclose(
        shares, [[weights[0] / weights.sum(), weights[1:].sum() / weights.sum(), 0]]
    )


def test_the_scale_divides_distances():
    memory = np.array([[1.0], [3.0]])
    labels = np.array([0, 1])
    shares = votes(memory, labels, np.zeros((1, 1)), 2, KnnPerOptions(neighbours=2, scale=2.0))
    assert shares[0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_far_neighbours_still_vote():
    """exp(−1000) is nothing, but its share of the votes is not."""
    shares = votes(
        np.array([[1000.0], [1001.0]]), np.array([0, 1]), np.zeros((1, 1)), 2, KnnPerOptions()
    )
    assert shares[0].tolist() == pytest.approx([1 / (1 + np.exp(-1)), 1 - 1 / (1 + np.exp(-1))])


def test_fewer_samples_than_neighbours():
    assert votes(
        np.zeros((2, 1)), np.array([1, 1]), np.zeros((3, 1)), 2, KnnPerOptions(neighbours=10)
    ).shape == (3, 2)


def test_lambda_is_what_serves_best():
    """Sample 1 needs the neighbours (0.8λ > 0.3(1 − λ)), sample 2 the network (0.8(1 − λ) > 0.4λ).

    So λ lies between 3/11 and 2/3, and of these values the likeliest is chosen.
    """
    near = np.array([[0.9, 0.1], [0.7, 0.3]])
    chances = np.array([[0.35, 0.65], [0.1, 0.9]])
    labels = np.array([0, 1])
    best = best_share(near, chances, labels)
    hits = [((lam * near + (1 - lam) * chances).argmax(1) == labels).mean() for lam in SHARES]
    assert hits[SHARES.index(best)] == 1.0 and 3 / 11 < best < 2 / 3
    likely = [
        np.log((lam * near + (1 - lam) * chances)[[0, 1], labels]).sum() if hit == 1 else -np.inf
        for lam, hit in zip(SHARES, hits, strict=True)
    ]
    assert SHARES.index(best) == int(np.argmax(likely))


@pytest.mark.parametrize(("right", "lam"), [("near", 1.0), ("network", 0.0), ("both", 0.0)])
def test_lambda_at_its_ends(right, lam):
    good = np.array([[1.0, 0.0]])
    bad = np.array([[0.0, 1.0]])
    near, chances = {"near": (good, bad), "network": (bad, good), "both": (good, good)}[right]
    assert best_share(near, chances, np.array([0])) == lam


def few(x, y):
    return Samples(torch.tensor(x, dtype=torch.float32).view(-1, 1, 1, 2), torch.tensor(y))


@pytest.fixture
def two_clients(tmp_path):
    """No linear network can tell the two classes apart; their neighbours can."""
    train = few([(1, 0), (-1, 0), (0, 1), (0, -1)] * 3, [0, 0, 1, 1] * 3)
    test = few([(2, 0), (-2, 0), (0, 2), (0, -2)], [0, 0, 1, 1])
    data = ClientData(train, train, test)
    toy = Toy.of(
        "knn-per", {"network": f"{LINEAR}:Pair", "neighbours": 3, "batch": 16, "lr": 0.1}, rounds=2
    )
    task = replace(toy.task, shape=(1, 1, 2), labels=("no", "yes"), mean=(0.0,), std=(1.0,))
    return replace(toy, task=task, data=(data, data), participation=1.0)


def test_memory_solves_what_the_network_cannot(two_clients, tmp_path):
    trace = two_clients.run(tmp_path)
    for client, evaluated in enumerate(trace.outcome.clients):
        assert evaluated.own.figures.value == 1.0 and evaluated.shared.value <= 0.75
        assert trace.own(client).meta["lam"] > 0 and dict(trace.own(client).tensors) == {}


def test_the_network_never_trains_on_the_part_that_lambda_is_chosen_by(two_clients, tmp_path):
    """Other labels there change no reply; the weight is the number of samples trained on."""
    train = two_clients.data[0].train
    flipped = Samples(train.x, torch.cat([train.y[:10], 1 - train.y[10:]]))
    one = two_clients.run(tmp_path / "one")
    other_data = [ClientData(flipped, data.validation, data.test) for data in two_clients.data]
    other = replace(two_clients, data=tuple(other_data)).run(tmp_path / "other")
    training = trainings_of(one)
    expected = [exchange.answer for exchange in training]
    assert [exchange.answer for exchange in trainings_of(other)] == expected
    assert {exchange.reply.weight for exchange in training} == {10}


def trainings_of(trace):
    return [exchange for exchange in trace.exchanges if exchange.order.kind == "train"]


def test_lambda_is_chosen_by_samples_that_are_not_remembered_yet(two_clients):
    """The remembered neighbours, of class 1, are wrong about the validation samples, of class 0.

    The network, which knows nothing, says 0. If the validation samples were remembered already,
    each would be its own nearest neighbour.
    """
    options = KnnPerOptions(**{**two_clients.task.options, "neighbours": 1, "train_share": 0.5})
    data = few([(1, 0), (2, 0), (3, 0), (1, 0.1), (2, 0.1), (3, 0.1)], [1, 1, 1, 0, 0, 0])
    net = model(two_clients.task, options)
    with torch.no_grad():
        for parameter in net.get_submodule(head_of(net)).parameters():
            parameter.zero_()
    order = Order(0, "adapt", weights_of(net), {"lr": 0.0})
    run = ClientRun(two_clients.task, "memorise", 3, 0, 0, "cpu", bytes)
    assert Memorise(options).improve(order, data, None, run).meta == {"lam": 0.0}


def test_the_answer_is_lambda_of_the_neighbours_and_the_rest_of_the_network(two_clients):
    """The neighbour is sure of class 1, the network says 0.5 each: λ = 0.3 gives (0.35, 0.65)."""
    options = KnnPerOptions(**{**two_clients.task.options, "neighbours": 1})
    net = model(two_clients.task, options)
    with torch.no_grad():
        for parameter in net.get_submodule(head_of(net)).parameters():
            parameter.zero_()
    order = Order(0, "evaluate", weights_of(net), {})
    run = ClientRun(two_clients.task, "memorise", 3, 0, 0, "cpu", bytes)
    memory = few([(1, 0), (-1, 0)], [1, 0])
    answer = Memorise(options).predictor(order, memory, State({}, {"lam": 0.3}), run)
    np.testing.assert_allclose(answer(few([(2, 0)], [1]).x).exp(), [[0.35, 0.65]])


def test_nothing_of_the_memory_goes_up(two_clients, tmp_path):
    for exchange in two_clients.run(tmp_path).exchanges:
        if exchange.order.kind == "adapt":
            assert dict(exchange.reply.tensors) == {} and exchange.reply.meta == {}


def test_features_are_the_inputs_of_the_head(two_clients):
    net = model(two_clients.task, TrainingOptions(network=f"{LINEAR}:Pair"))
    seen = NetworkOutputs.of(net, two_clients.data[0].test.x)
    np.testing.assert_array_equal(
        seen.features, [[2, 0], [-2, 0], [0, 2], [0, -2]]
    )  # the body is the identity
    np.testing.assert_array_equal(seen.probabilities, np.full((4, 2), 0.5))


def test_a_network_without_a_head_is_refused(by_hand, one):
    with pytest.raises(FedloomError, match="must end in a linear layer"):
        by_hand("knn-per", one)


def test_what_a_client_must_have():
    assert KnnPerOptions().least_samples == 3
    assert KnnPerOptions(train_share=0.5).least_samples == 3
    assert KnnPerOptions(train_share=0.9).least_samples == 5

from dataclasses import replace

import pytest
import torch

from fedloom.data.samples import ClientData
from fedloom.evaluate.gain import FineTuning, fine_tuned, gains, mean_gain, sgd_of
from fedloom.learning.training import weights_of
from fedloom.methods import METHODS
from fedloom.networks.building import build_model
from fedloom.runs.configure import resolve_options
from fedloom.testing import Toy


def test_eq_6_in_numbers():
    matrix = [[0.9, 0.8, 0.6], [0.5, 0.7, 0.8], [0.4, 0.4, 0.4]]
    gains_of_clients = gains(matrix)
    assert gains_of_clients == pytest.approx(
        [((0.9 - 0.8) + (0.9 - 0.6)) / 2, ((0.7 - 0.5) + (0.7 - 0.8)) / 2, 0.0]
    )
    assert mean_gain(gains_of_clients) == pytest.approx((0.2 + 0.05 + 0.0) / 3)


def test_where_lower_is_better_the_gain_turns_round():
    assert gains([[2.0, 3.0], [5.0, 4.0]], lower_is_better=True) == [1.0, 1.0]


@pytest.mark.parametrize("row", [[None, 0.5, 0.6], [0.9, None, 0.6]])
def test_a_missing_figure_makes_no_gain(row):
    assert gains([row, [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])[0] is None
    assert mean_gain([None, 0.25]) == 0.25 and mean_gain([None]) is None


@pytest.fixture
def toy() -> Toy:
    return Toy.of("fedavg", {"lr": 0.05})


def measured(toy: Toy, how: FineTuning, *, spoil: bool = False):
    net = build_model(toy.task, "cnn", 0.125)
    if spoil:
        net.load_state_dict({name: tensor + 1 for name, tensor in weights_of(net).items()})
    return fine_tuned(net, toy.data[0], toy.task, how, 0, "cpu").value, weights_of(net)


def test_fine_tuning_is_deterministic_and_moves_the_weights(toy):
    figure, weights = measured(toy, FineTuning(epochs=2))
    same_figure, same_weights = measured(toy, FineTuning(epochs=2))
    start = weights_of(build_model(toy.task, "cnn", 0.125))
    assert figure == same_figure and 0 <= figure <= 1
    assert all(torch.equal(weights[name], same_weights[name]) for name in start)
    assert not torch.equal(weights["net.classifier.weight"], start["net.classifier.weight"])


def test_fresh_weights_forget_what_came_before(toy):
    how = FineTuning(epochs=1, start="fresh")
    one = measured(toy, how)[1]
    other = measured(toy, how, spoil=True)[1]
    assert all(torch.equal(one[name], other[name]) for name in one if "running" not in name)
    tuned = measured(toy, FineTuning(epochs=1), spoil=True)[1]
    assert not torch.equal(one["net.classifier.weight"], tuned["net.classifier.weight"])


def test_the_test_part_is_only_scored(toy):
    data = toy.data[0]
    other = replace(
        toy, data=(ClientData(data.train, data.validation, toy.data[1].test), *toy.data[1:])
    )
    weights = measured(toy, FineTuning(epochs=1))[1]
    same_weights = measured(other, FineTuning(epochs=1))[1]
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)


@pytest.mark.parametrize("method", sorted(METHODS.builtin))
def test_the_usual_options_of_every_method_can_be_adapted_with(method):
    """Options that have nothing to do with one client's training are left out."""
    options = sgd_of(resolve_options(method, {}))
    assert options.epochs == 1 and options.bn in ("averaged", "frozen")

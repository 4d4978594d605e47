"""Steps that are metered once and then known: the same MACs as if every one were metered."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.cost import repeated
from fedloom.cost.meter import OPEN_METERS, Meter, known_to_cost
from fedloom.cost.repeated import KNOWN, KnownSteps, RepeatedSteps
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.training import TrainingOptions, model, train
from fedloom.networks import FIXED
from fedloom.testing.toy import Toy, samples

TASK = Toy.of("fedavg").task
OPTIONS = TrainingOptions(width=0.125, batch=4, epochs=2)
SMALL = {"alexnet": 0.05, "densenet": 0.2, "resnet18": 0.05, "vgg16": 0.05}  # their width factors
RUN = ClientRun(TASK, "train", 1, 0, 0, "cpu", lambda: b"")


@pytest.fixture(autouse=True)
def nothing_known():
    KNOWN.macs.clear()
    yield
    KNOWN.macs.clear()


def trained(net, count: int = 10, **options) -> int:
    """The MACs of two epochs over this many samples, in batches of four."""
    with Meter() as meter:
        train(net, samples(count, "repeated"), OPTIONS.model_copy(update=options), 0.01, RUN)
    return meter.macs


def always_metered(net, count: int = 10, **options) -> int:
    with KNOWN.none():
        return trained(net, count, **options)


@pytest.mark.parametrize("name", sorted(set(FIXED) - {"lstm", "mlp"}))
def test_a_fixed_network_costs_what_the_meter_says(name):
    """The last batch of an epoch is smaller; the second run knows all steps from the first."""
    net = model(TASK, OPTIONS.model_copy(update={"network": name, "width": SMALL.get(name, 0.125)}))
    expected = always_metered(net, 6, epochs=1)
    assert trained(net, 6, epochs=1) == expected > 0
    assert len(KNOWN.macs) == 2
    assert trained(net, 6, epochs=1) == expected


def test_layers_that_do_not_train_are_another_kind_of_step():
    net = model(TASK, OPTIONS)
    whole = trained(net)
    net.net.features.requires_grad_(False)
    head = trained(net)
    assert head == always_metered(net) < whole


def test_frozen_statistics_are_another_kind_of_step():
    net = model(TASK, OPTIONS)
    trained(net)
    trained(net, bn="frozen")
    assert len(KNOWN.macs) == 4


@pytest.mark.parametrize("other", [{"width": 0.25}, {"network": "vgg16", "width": 0.05}])
def test_another_network_is_looked_at_itself(other):
    trained(model(TASK, OPTIONS))
    net = model(TASK, OPTIONS.model_copy(update=other))
    assert trained(net) == always_metered(net)


class GoesAnotherWay(nn.Module):
    """The second layer is used every other time."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(36, 10)
        self.second = nn.Linear(10, 10)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        scores = self.first(x.float().flatten(1))
        if self.calls % 2:
            scores = self.second(scores)
        return scores


def test_a_network_that_says_nothing_is_looked_at_always():
    macs = trained(GoesAnotherWay(), 8)
    with_second = 4 * (2 * 360 + 3 * 100)
    without = 4 * 2 * 360
    assert macs == 2 * (with_second + without)
    assert not KNOWN.macs


def test_a_network_from_a_file_says_nothing(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from fedloom.nets.cnn import SmallCNN\n"
        "def mine(shape, classes, width):\n"
        "    return SmallCNN(shape, classes, width)\n"
        "mine.refillable = True\n"
    )
    net = model(TASK, OPTIONS.model_copy(update={"network": f"{file}:mine", "head": "auto"}))
    assert net.same_cost is None
    assert trained(net) > 0
    assert not KNOWN.macs


def test_every_open_meter_adds_a_known_step():
    layer = nn.Linear(3, 2)
    with Meter() as outer, Meter() as inner, known_to_cost(7):
        layer(torch.ones(4, 3))
    assert (outer.macs, inner.macs) == (7, 7)
    with Meter() as after:
        layer(torch.ones(4, 3))
    assert after.macs == 24


def test_a_step_that_fails_is_not_known_and_meters_go_on():
    net = model(TASK, OPTIONS)
    steps = RepeatedSteps(net, dict(net.named_parameters()))
    data = samples(4, "repeated")
    for is_known in (False, True):
        with Meter() as meter:
            with pytest.raises(ZeroDivisionError), steps.metered(data.x.shape):
                raise ZeroDivisionError
            assert bool(KNOWN.macs) == is_known and meter.macs == 0
            assert len(OPEN_METERS) == 1
            with steps.metered(data.x.shape):
                functional.cross_entropy(net(data.x), data.y).backward()
            assert meter.macs > 0
    assert not OPEN_METERS


def test_the_first_known_step_is_forgotten_first():
    steps = KnownSteps(most=2)
    for number in range(3):
        steps.remember(number, number)
    assert list(steps.macs) == [1, 2]
    assert repeated.KNOWN.most > 2

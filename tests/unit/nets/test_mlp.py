import torch

from fedloom.nets.mlp import MLP
from fedloom.nets.nesting import Inside
from fedloom.networks import default_network
from fedloom.networks.building import build_model
from fedloom.types import Task

TASK = Task("fedavg", {}, "table", (2,), ("a", "b"), 0, (10.0, 0.0), (2.0, 1.0))


def test_widths_lie_in_one_another():
    wide = MLP((7,), 3)
    narrow = MLP((7,), 3, 0.5)
    assert [wide.features[0].out_features, wide.features[2].out_features] == [128, 64]
    assert [narrow.features[0].out_features, narrow.features[2].out_features] == [64, 32]
    inside = Inside.of(narrow, wide)
    taken = inside.take(wide.state_dict())
    torch.testing.assert_close(taken["features.0.weight"], wide.features[0].weight[:64])


def test_it_is_the_network_of_tables():
    assert default_network("table") == default_network("regression") == "mlp"
    assert build_model(TASK, None, 1.0).architecture == "mlp:1"


def test_its_model_standardises_rows():
    model = build_model(TASK, None, 1.0)
    torch.testing.assert_close(
        model.normalised(torch.tensor([[12.0, 1.0]])), torch.tensor([[1.0, 1.0]])
    )
    assert model(torch.zeros(5, 2)).shape == (5, 2)

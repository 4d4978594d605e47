from torch import nn

from fedloom.export.tracing import Layers
from fedloom.spaces.ops import Stem


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_row_that_only_adds_names_is_written_as_one():
    """A stem is one line of model.py; a module that computes something itself is traced into."""
    assert Layers().is_leaf_module(Stem(1, 2), "stem")
    assert Layers().is_leaf_module(nn.Sequential(nn.ReLU()), "")
    assert not Layers().is_leaf_module(Doubled(nn.ReLU()), "")
    assert not Layers().is_leaf_module(nn.Sequential(Doubled(nn.ReLU())), "")

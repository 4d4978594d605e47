import pytest
import torch

from fedloom.cost.count import parameters
from fedloom.errors import FedloomError
from fedloom.nets.cnn import SmallCNN


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28), (3, 4, 4), (2, 5, 9)])
@pytest.mark.parametrize("classes", [2, 10])
def test_a_row_of_scores_a_sample(shape, classes):
    net = SmallCNN(shape, classes)
    assert net(torch.zeros(3, *shape)).shape == (3, classes)
    assert net.eval()(torch.zeros(1, *shape)).shape == (1, classes)


def test_sizes_in_numbers():
    """Convolutions without bias have 9·c·16, 9·16·32 and 9·32·64 weights.

    BN has 2·(16 + 32 + 64), the classifier 256·10 + 10.
    """
    net = SmallCNN((1, 8, 8), 10)
    assert (
        parameters(net) == 9 * 16 + 9 * 16 * 32 + 9 * 32 * 64 + 2 * (16 + 32 + 64) + 256 * 10 + 10
    )


@pytest.mark.parametrize(
    ("width", "channels"),
    [(1.0, [16, 32, 64]), (0.5, [8, 16, 32]), (2.0, [32, 64, 128]), (0.01, [1, 1, 1])],
)
def test_the_width_factor_scales_every_layer(width, channels):
    net = SmallCNN((3, 8, 8), 4, width)
    convolutions = [part for part in net.features if isinstance(part, torch.nn.Conv2d)]
    assert [part.out_channels for part in convolutions] == channels
    assert [part.in_channels for part in convolutions] == [3, *channels[:2]]
    assert net.classifier.in_features == 4 * channels[-1]


@pytest.mark.parametrize("shape", [(1, 3, 8), (1, 8, 3), (3, 1, 1)])
def test_too_small_images_are_refused(shape):
    with pytest.raises(FedloomError, match=rf"at least 4×4, but these are {shape[1]}×{shape[2]}"):
        SmallCNN(shape, 2)


def test_it_says_what_it_is():
    assert SmallCNN((1, 8, 8), 2, 0.25).architecture == "cnn:0.25"

import pytest
import torch
from torch.nn import functional

from fedloom.cost.count import macs, parameters
from fedloom.cost.meter import Meter
from fedloom.errors import FedloomError
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.nets.lstm import CharLSTM, Recurrent
from fedloom.networks.building import build_model
from fedloom.spaces.mixed import supernet_model
from fedloom.types import Task


def task(kind="text", shape=(7,), labels=tuple("abcde"), mean=(), std=()):
    return Task("fedavg", {}, kind, shape, labels, 3, mean, std)


IMAGES = task("image", (1, 8, 8), mean=(0.0,), std=(1.0,))


def test_leafs_size():
    """819,920 is what papers give for LEAF's network with 80 symbols (Reddi et al. 2021)."""
    assert parameters(CharLSTM((80,), 80)) == 819_920


@pytest.mark.parametrize("width", [1.0, 0.25, 0.001])
def test_parameters_and_macs_by_formula(width):
    net = CharLSTM((9,), 5, width)
    hidden = max(1, round(256 * width))
    symbols = 5
    window = 9
    layers = 4 * hidden * (8 + hidden) + 4 * hidden * (hidden + hidden)
    assert parameters(net) == 8 * symbols + layers + 2 * 2 * 4 * hidden + (hidden + 1) * symbols
    assert macs(net, (window,)) == window * layers + hidden * symbols


def test_training_is_metered_forward_and_twice_backward():
    net = CharLSTM((6,), 5, 0.02)
    x = torch.randint(5, (3, 6), dtype=torch.uint8)
    with Meter() as meter:
        functional.cross_entropy(net(x), torch.zeros(3, dtype=torch.long)).backward()
    assert meter.macs == 3 * 3 * macs(net, (6,))


def test_it_is_torchs_lstm_step_by_step():
    """The gates written out, for one layer: input, forget, cell, output."""
    net = Recurrent(2, 3, 1, batch_first=True)
    x = torch.randn(1, 4, 2)
    h = torch.zeros(3)
    c = torch.zeros(3)
    for step in x[0]:
        gates = net.weight_ih_l0 @ step + net.bias_ih_l0 + net.weight_hh_l0 @ h + net.bias_hh_l0
        i, f, g, o = gates.split(3)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    assert torch.allclose(net(x)[0][0, -1], h, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_symbols_go_in_as_they_are(dtype):
    net = build_model(task(), None, 0.02).eval()
    x = torch.tensor([[0, 1, 2, 3, 4, 0, 4]])
    assert torch.equal(net(x.to(dtype)), net.net(x))
    assert net.architecture == "lstm:0.02"


def test_the_same_bits_every_time():
    def trained():
        net = build_model(task(), None, 0.1)
        x = torch.arange(28).remainder(5).reshape(4, 7)
        y = torch.tensor([0, 1, 2, 3])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        return torch.cat([parameter.flatten() for parameter in net.parameters()])

    assert torch.equal(trained(), trained())


def test_the_last_symbol_counts_and_so_does_the_first():
    net = build_model(task(), None, 0.1).eval()
    x = torch.zeros(1, 7, dtype=torch.uint8)
    for place in (0, 6):
        other = x.clone()
        other[0, place] = 1
        assert not torch.equal(net(x), net(other))


# Which network is for which kind of data


def test_the_default_is_by_kind():
    assert build_model(IMAGES, None, 1.0).architecture == "cnn:1"
    assert (
        build_model(task("speech", (1, 40, 51), mean=(0.0,), std=(1.0,)), None, 1.0).architecture
        == "cnn:1"
    )
    assert build_model(task(), None, 1.0).architecture == "lstm:1"


@pytest.mark.parametrize(
    ("data", "network", "sentence"),
    [
        (task(), "cnn", "network cnn must be for text data, but it is for image and speech"),
        (task(), "resnet18", "network resnet18 must be for text data"),
        (IMAGES, "lstm", "network lstm must be for image data, but it is for text"),
    ],
)
def test_a_network_of_another_kind(data, network, sentence):
    with pytest.raises(FedloomError, match=sentence):
        build_model(data, network, 1.0)


@pytest.mark.parametrize("space", ["darts", "nasbench201"])
def test_a_search_space_of_another_kind(space):
    with pytest.raises(
        FedloomError, match=f"the search space {space} must be for text data, but it is for image"
    ):
        supernet_model(task(), FedNASOptions(space=space))


def test_a_network_of_ones_own_says_what_it_is_for(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Bag(nn.Module):\n"
        "    kinds = ('text',)\n"
        "    def __init__(self, shape, classes, width):\n"
        "        super().__init__()\n"
        "        self.table = nn.Embedding(classes, classes)\n"
        "    def forward(self, x):\n"
        "        return self.table(x.long()).mean(1)\n"
    )
    assert build_model(task(), f"{tmp_path}/mine.py:Bag", 1.0)(
        torch.zeros(2, 7, dtype=torch.uint8)
    ).shape == (2, 5)
    with pytest.raises(FedloomError, match="must be for image data, but it is for text"):
        build_model(IMAGES, f"{tmp_path}/mine.py:Bag", 1.0)

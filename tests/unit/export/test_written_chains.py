"""Paths through chains, written as plain torch, give the same bits.

A cell that loops over time brings its source along.
"""

import pytest
import torch

from fedloom.export import onnx
from fedloom.export.template import model_file
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import program
from fedloom.nets.model import seeded
from fedloom.spaces import open_space
from fedloom.spaces.mixed import model_of_space, plain
from fedloom.spaces.paths import path_of
from fedloom.spaces.space import Size
from fedloom.types import Task

LABELS = ("a", "b", "c")
TEXT = Task("fedavg", {}, "text", (7,), LABELS, 0, (), ())
IMAGES = Task("fedavg", {}, "image", (3, 9, 8), LABELS, 0, (1.5, 100.0, 3.25), (3.0, 200.0, 6.5))
PATHS = [
    ("rnn", ("ligru", "qrnn", "ligru", "identity")),
    ("rnn", ("lstm", "zero", "gru", "conv5")),
    ("rnn", ("linear", "conv5", "identity", "zero")),
    ("cnn-tiny", ("conv1", "ds3e0.5", "identity", "mb3e2", "mb1e2", "ds3e2")),
    ("cnn-tiny", ("identity",) * 6),
]


def model_on(name, path):
    space = open_space(name)
    task = TEXT if "text" in space.kinds else IMAGES
    model = model_of_space(task, space, Size(1, 1), arch=path_of(space, path))
    with torch.no_grad(), seeded(1):
        for buffer in model.buffers():
            if buffer.dtype == torch.float32 and buffer.dim() == 1:
                buffer.uniform_(0.5, 1.5)  # statistics that are not the first ones
    return model.eval()


def samples_for(name):
    draw = torch.Generator().manual_seed(1)
    if name == "rnn":
        return torch.randint(0, len(LABELS), (5, *TEXT.shape), generator=draw)
    return torch.randint(0, 256, (5, *IMAGES.shape), generator=draw, dtype=torch.uint8)


def written(model, name):
    """The text of a model.py, and the network that it creates."""
    exported = program(traced(Whole(model)))
    text = model_file(
        exported.classes, version="0", shape=tuple(samples_for(name).shape[1:]), channels_last=True
    )
    names = {"__name__": "written_model", "__file__": "model.py"}
    exec(compile(text, "model.py", "exec"), names)
    net = names["Network"]()
    net.load_state_dict(dict(exported.weights))
    if name != "rnn":
        net.to(memory_format=torch.channels_last)
    return text, net.eval()


@pytest.mark.parametrize("cut", [False, True], ids=["supernet", "cut"])
@pytest.mark.parametrize(("name", "path"), PATHS, ids=lambda value: str(value)[:30])
def test_the_same_bits(name, path, cut):
    model = model_on(name, path)
    samples = samples_for(name)
    with torch.no_grad():
        expected = model(samples)
        if cut:
            model = plain(model)
        text, net = written(model, name)
        assert torch.equal(net(samples), expected) and expected.std() > 0
    assert "fedloom." not in text
    assert ("class LiGRU(nn.Module):" in text) == ("ligru" in path)
    assert text.count("class QuasiRNN(nn.Module):") == ("qrnn" in path)


@pytest.mark.export
@pytest.mark.parametrize(("name", "path"), PATHS, ids=lambda value: str(value)[:30])
def test_in_onnx(name, path, tmp_path):
    whole = Whole(plain(model_on(name, path)))
    assert onnx.write(tmp_path / "model.onnx", whole, samples_for(name)) < 1e-4

"""What is exported has no strided 1×1 convolution either: people train exported networks on."""

import pytest
import torch
from torch import nn

from every_network import Built, every_network, strided_pointwise_in
from fedloom.export import onnx
from fedloom.export.template import model_file
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import program

HALVING = ("resnet18", "darts-v2")  # they do have what a stride of a 1×1 convolution is needed for
# Torch's exporter takes up to half a minute for a network: those that halve, and one of each other
# kind.
IN_ONNX = (
    "cnn",
    *HALVING,
    "darts:s2:1, mixture",
    "darts:full:1, architecture 0",
    "nasbench201, mixture",
)


def written(built: Built) -> tuple[str, nn.Module]:
    """The text of a model.py, and the network that it creates."""
    exported = program(traced(Whole(built.net.eval())))
    text = model_file(
        exported.classes, version="0", shape=tuple(built.samples.shape[1:]), channels_last=True
    )
    names: dict[str, object] = {"__name__": "written_model", "__file__": "model.py"}
    exec(compile(text, "model.py", "exec"), names)
    net = names["Network"]()
    net.load_state_dict(dict(exported.weights))
    if built.samples.dim() == 4:
        net.to(memory_format=torch.channels_last)
    return text, net.eval()


@pytest.mark.whole
def test_no_model_file_has_one():
    halving = set()
    for built in every_network(4, "channels_last"):
        text, net = written(built)
        assert strided_pointwise_in(net, built.samples) == [], built.name
        for part in net.modules():
            if isinstance(part, nn.Conv2d) and part.kernel_size == (1, 1):
                assert part.stride == (1, 1), built.name
        with torch.no_grad():
            torch.manual_seed(0)  # an operation of noise draws
            expected = built.net(built.samples)
            torch.manual_seed(0)
            assert torch.equal(net(built.samples), expected), built.name
        if "::2, ::2]" in text:
            halving.add(built.name)
    assert halving >= set(HALVING)


@pytest.mark.export
def test_no_onnx_graph_has_one(tmp_path):
    reader = pytest.importorskip("onnx")
    for built in every_network(4, "channels_last"):
        if built.name not in IN_ONNX:
            continue
        onnx.export(tmp_path / "model.onnx", Whole(built.net.eval()), built.samples)
        graph = reader.load(tmp_path / "model.onnx").graph
        sizes = {weight.name: list(weight.dims) for weight in graph.initializer}
        pointwise = [
            node
            for node in graph.node
            if node.op_type == "Conv" and sizes[node.input[1]][2:] == [1, 1]
        ]
        for node in pointwise:
            strides = [
                list(attribute.ints) for attribute in node.attribute if attribute.name == "strides"
            ]
            assert strides in ([], [[1, 1]]), built.name
        if built.name in HALVING:
            assert pointwise and any(node.op_type == "Slice" for node in graph.node), built.name

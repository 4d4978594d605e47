"""The steps of a supernet's forward pass: the units that a latency table has an entry for.

A network's `flow` sends every step through a `Run`. Here the run computes nothing: it passes on
shapes and records what each step was. That takes a millisecond or two, so that a search can do it
for thousands of architectures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets import MAPS
from fedloom.nets.heads import vector_length
from fedloom.nets.model import Model
from fedloom.nets.pooling import as_vector
from fedloom.networks.building import build_model
from fedloom.spaces.edges import Edges, add, join, make, pooled
from fedloom.spaces.mixed import model_of_space
from fedloom.spaces.ops import Step, square
from fedloom.spaces.searched import SearchedSpace
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task


class Piece(NamedTuple):
    """One operation at one size, for one sample.

    Equal pieces take equal time, wherever they occur in a network.
    """

    op: str
    inputs: int  # channels
    outputs: int
    height: int  # of the input
    width: int
    stride: int

    def __str__(self) -> str:
        channels = f"{self.inputs}→{self.outputs} channels"
        return f"{self.op} of {channels} at {self.height}×{self.width}, stride {self.stride}"


class Shape(tuple[int, ...]):
    """Stands for a tensor of one sample on its way through a network.

    It is a map [1, channels, height, width], a vector [1, channels], a window of symbols
    [1, symbols], or a sequence [1, symbols, channels].
    """


class Symbols(Shape):
    """A window of symbols' numbers, the input of an embedding."""


SEQUENCE = 3  # dimensions of a sequence
Work = Any  # a module or a function of tensors


class Example(NamedTuple):
    """A step that consists of one piece, to measure the time of that piece."""

    work: Work
    inputs: tuple[Any, ...]  # shapes and plain values


class Steps:
    """Counts the pieces of a forward pass of one sample: `Steps(model).of(arch)`."""

    def __init__(self, model: Model) -> None:
        assert isinstance(model.net, Supernet)
        self.model = model.eval()
        self.net = model.net
        self.examples: dict[Piece, Example] = {}  # one for every piece that was met

    def of(self, arch: Arch | None = None) -> Counter[Piece]:
        """How often each piece occurs in the network of `arch`.

        None stands for the whole supernet, with every operation of every edge.
        """
        counts: Counter[Piece] = Counter()

        def run(work: Work, *inputs: Any) -> Shape:
            if isinstance(work, nn.Embedding):
                inputs = (Symbols(inputs[0]),)
            step = step_of(work, inputs)
            if step is None:
                return Shape(inputs[0])
            piece = piece_of(step, inputs[0])
            if work is not add:
                counts[piece] += 1
                self.examples.setdefault(piece, Example(work, inputs))
            elif len(inputs) > 1:  # a sum of one term adds nothing
                counts[piece] += len(inputs) - 1
                self.examples.setdefault(piece, Example(work, inputs[:2]))
            return shape_after(work, piece, inputs[0])

        samples = Shape((1, *self.net.shape))
        self.net.flow(run, run(self.model.normalised, samples), arch)
        return counts

    def all_pieces(self) -> set[Piece]:
        """Every piece that any architecture of this network can have.

        These are the pieces of the whole supernet, and those of nodes without an input.
        """
        bare = self.net.space.bare()
        if bare is None:
            return set(self.of())
        return {*self.of(), *self.of(bare)}

    def tensors(self, inputs: tuple[Any, ...]) -> list[Any]:
        """The inputs of a step, with random values in place of shapes.

        Maps have the memory format in which networks are trained.
        """
        device = self.model.mean.device
        values = []
        for value in inputs:
            if isinstance(value, Shape):
                value = filled(value, device)
            values.append(value)
        return values


def piece_of(step: Step, shape: Shape) -> Piece:
    """The piece of a step whose input has this shape.

    A vector counts as a map of one pixel, and a sequence as a map that is one pixel wide.
    """
    height = 1
    width = 1
    if len(shape) == 4:
        height, width = shape[2:]
    elif len(shape) == SEQUENCE:
        height = shape[1]
    return Piece(step.op, channels_of(shape), step.outputs, height, width, step.stride)


def channels_of(shape: Shape) -> int:
    if len(shape) == SEQUENCE:
        return shape[2]
    return shape[1]


def shape_after(work: Work, piece: Piece, before: Shape) -> Shape:
    """The shape of a step's output."""
    if isinstance(work, nn.Embedding):
        return Shape((*before, piece.outputs))
    if len(before) == SEQUENCE and isinstance(work, nn.Module):
        return Shape((*before[:2], piece.outputs))
    if len(before) < 4 and not isinstance(work, nn.Module):  # a function: run it on no data
        return Shape(work(torch.empty(before, device="meta")).shape)
    if piece.op in ("mean", "grid", "classifier"):
        return Shape((1, piece.outputs))
    if piece.op == "zero":
        return Shape((1, piece.outputs, *edges_of_zero(work).out))
    size_after: Callable[[int, int], tuple[int, int]] | None = getattr(work, "size_after", None)
    if size_after is not None:
        return Shape((1, piece.outputs, *size_after(piece.height, piece.width)))
    height = -(-piece.height // piece.stride)
    width = -(-piece.width // piece.stride)
    return Shape((1, piece.outputs, height, width))


def edges_of_zero(work: Work) -> Edges:
    """The edges that a method `_zero` belongs to."""
    edges = getattr(work, "__self__", None)
    assert isinstance(edges, Edges)
    return edges


def filled(shape: Shape, device: torch.device) -> torch.Tensor:
    if isinstance(shape, Symbols):
        return torch.zeros(shape, dtype=torch.long, device=device)
    values = torch.rand(shape, device=device)
    if len(shape) == 4:
        return values.contiguous(memory_format=torch.channels_last)
    return values


def step_of(work: Work, inputs: tuple[Any, ...]) -> Step | None:
    """A step's name, stride and output channels; None for one that only passes its input on."""
    channels = channels_of(inputs[0])
    if isinstance(work, nn.Module):
        return step_of_module(work, channels)
    if work is make:
        kind, stride = inputs[1:]
        if kind == "relu":
            return Step("relu", 1, channels)
        return Step(f"{kind}_pool_3x3", stride, channels)
    if work is join:
        return Step("join", 1, sum(shape[1] for shape in inputs))
    if work is as_vector:
        head = inputs[1]
        return Step(head, 1, vector_length(head, channels))
    functions: dict[Any, str] = {torch.relu: "relu", add: "add", pooled: "mean"}
    if work in functions:
        return Step(functions[work], 1, channels)
    if work.__name__ == "_zero":
        return Step("zero", 1, edges_of_zero(work).channels)
    return Step(work.__name__, 1, channels)


def step_of_module(work: nn.Module, channels: int) -> Step | None:
    """The step that a module's own method `step` returns, or the step of one of torch's layers."""
    own_step: Callable[[int], Step | None] | None = getattr(work, "step", None)
    if own_step is not None:
        return own_step(channels)
    if isinstance(work, nn.Sequential):
        return step_of_sequence(work, channels)
    if isinstance(work, nn.Identity):
        return None
    if isinstance(work, nn.Embedding):
        return Step("embedding", 1, work.embedding_dim)
    if isinstance(work, nn.Linear):
        return Step("classifier", 1, work.out_features)
    if isinstance(work, nn.Conv2d) and keeps_edges(work):
        return Step(conv_name(work), int(work.stride[0]), work.out_channels)
    if isinstance(work, nn.BatchNorm2d):
        return Step("batch_norm", 1, channels)
    if isinstance(work, nn.ReLU):
        return Step("relu", 1, channels)
    rule = f"{type(work).__name__} must have a name in latency tables"
    raise FedloomError(rule, "it has no method `step`", "see docs/add-a-space.md")


def step_of_sequence(layers: nn.Sequential, channels: int) -> Step | None:
    """Consecutive layers are one step, named by all of them: `conv_3x3+relu`."""
    names = []
    stride = 1
    for layer in layers:
        step = step_of_module(layer, channels)
        if step is not None:
            names.append(step.op)
            stride *= step.stride
            channels = step.outputs
    if not names:
        return None
    return Step("+".join(names), stride, channels)


def conv_name(conv: nn.Conv2d) -> str:
    """The kernel, and what else its time depends on: `conv_3x3_dilated2_groups8`."""
    name = f"conv_{square(conv)}"
    if conv.dilation[0] > 1:
        name += f"_dilated{conv.dilation[0]}"
    if conv.groups > 1:
        name += f"_groups{conv.groups}"
    return name


def keeps_edges(conv: nn.Conv2d) -> bool:
    """Whether the padding is such that a map's size is divided by the stride and rounded up."""
    padding = []
    for kernel, dilation in zip(conv.kernel_size, conv.dilation, strict=True):
        padding.append(dilation * (kernel // 2))
    odd = all(kernel % 2 for kernel in conv.kernel_size)
    square_stride = len(set(conv.stride)) == 1
    return odd and square_stride and conv.padding in (tuple(padding), "same")


def model_of(task: Task, searched: SearchedSpace | None) -> Model | None:
    """The supernet that a task's architectures are parts of; None: its network is no supernet.

    `searched` is the space that the task's method searches, if it searches one.
    """
    if searched is not None:
        return model_of_space(task, searched.space, searched.size, affine=True)
    if task.kind not in MAPS:
        return None
    network = task.options.get("network")
    width = task.options.get("width", 1.0)
    model = build_model(task, network, width, head=task.options.get("head", "auto"))
    if not isinstance(model.net, Supernet):
        return None
    return model

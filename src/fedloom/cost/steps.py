"""The steps of a network of cells, as its own forward pass names them: what a latency table has a line for.

A network's `flow` sends every step through a `Run`. Here the run computes nothing: it passes shapes on and notes what
each step was. A walk takes a millisecond or two, so that a search can ask for thousands.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import nn

from fedloom.nets import MAPS
from fedloom.nets.model import Model, build_model
from fedloom.spaces.edges import Edges, add, join, make, pooled
from fedloom.spaces.mixed import CellOptions, cell_model
from fedloom.spaces.nasbench201.net import Residual
from fedloom.spaces.ops import (
    DilConv,
    FactorizedReduce,
    Noise,
    PlainAvgPool,
    Pool,
    ReluConv,
    SepConv,
    Skip,
)
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Task


class Piece(NamedTuple):
    """One operation at one size, for one sample. Equal pieces take equal time, wherever they stand."""

    op: str
    inputs: int  # channels
    outputs: int
    height: int  # of what goes in
    width: int
    stride: int

    def __str__(self) -> str:
        return f"{self.op} of {self.inputs}→{self.outputs} channels at {self.height}×{self.width}, stride {self.stride}"


class Shape(tuple[int, ...]):
    """Stands for a tensor on the way through a network."""


Work = Any  # a module or a function of tensors
Step = tuple[Any, tuple[Any, ...]]  # what is done, to shapes and plain values


class Steps:
    """`Steps(model).of(arch)`: how often each piece occurs in a forward pass of one sample."""

    def __init__(self, model: Model) -> None:
        assert isinstance(model.net, Supernet)
        self.model, self.net = model.eval(), model.net
        self.examples: dict[Piece, Step] = {}  # of every piece that was met, a step that is it and nothing else

    def of(self, arch: Arch | None = None) -> Counter[Piece]:
        """Of the network that `arch` names; None: of all that exists, every operation of every edge."""
        found: Counter[Piece] = Counter()

        def run(work: Work, *inputs: Any) -> Shape:
            named = what(work, inputs)
            if named is None:
                return Shape(inputs[0])
            op, stride, outputs = named
            first = inputs[0]
            height, width = first[2:] if len(first) == 4 else (1, 1)
            piece = Piece(op, first[1], outputs, height, width, stride)
            found[piece] += len(inputs) - 1 if work is add else 1
            if piece not in self.examples and (work is not add or len(inputs) > 1):
                self.examples[piece] = (work, inputs[:2]) if work is add else (work, inputs)
            return after(work, piece)

        self.net.flow(run, run(self.model.normalised, Shape((1, *self.net.shape))), arch)
        return +found  # a sum of one term is none

    def all_pieces(self) -> set[Piece]:
        """What any architecture of this network can need: all that exists, and nodes into which nothing leads."""
        nothing = Arch(self.net.space.name, ((),) * len(self.net.space.slots))
        return {*self.of(), *self.of(nothing)}

    def tensors(self, inputs: tuple[Any, ...]) -> list[Any]:
        """The inputs of a step, of random values and in the memory format that networks of cells are trained in."""
        device = self.model.mean.device
        return [filled(value, device) if isinstance(value, Shape) else value for value in inputs]


def after(work: Work, piece: Piece) -> Shape:
    """The shape that a step leaves."""
    if piece.op in ("mean", "classifier"):
        return Shape((1, piece.outputs))
    if piece.op == "zero":
        return Shape((1, piece.outputs, *of_edges(work).out))
    return Shape((1, piece.outputs, -(-piece.height // piece.stride), -(-piece.width // piece.stride)))


def of_edges(work: Work) -> Edges:
    """Whose zeros these are."""
    edges = getattr(work, "__self__", None)
    assert isinstance(edges, Edges)
    return edges


def filled(shape: Shape, device: torch.device) -> torch.Tensor:
    made = torch.rand(shape, device=device)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


def what(work: Work, inputs: tuple[Any, ...]) -> tuple[str, int, int] | None:
    """A step's name, stride and channels afterwards; None for one that passes its input on."""
    channels = inputs[0][1]
    if isinstance(work, nn.Module):
        return of_module(work, channels)
    if work is make:
        kind, stride = inputs[1:]
        return ("relu", 1, channels) if kind == "relu" else (f"{kind}_pool_3x3", stride, channels)
    if work is join:
        return "join", 1, sum(shape[1] for shape in inputs)
    functions: dict[Any, str] = {torch.relu: "relu", add: "add", pooled: "mean"}
    if work in functions:
        return functions[work], 1, channels
    if work.__name__ == "_zero":
        return "zero", 1, of_edges(work).channels
    return work.__name__, 1, channels


def of_module(work: nn.Module, channels: int) -> tuple[str, int, int] | None:
    if isinstance(work, Skip | PlainAvgPool):
        return None
    if isinstance(work, SepConv | DilConv):
        conv = work.depth1 if isinstance(work, SepConv) else work.depth
        return f"{'sep' if isinstance(work, SepConv) else 'dil'}_conv_{square(conv)}", conv.stride[0], channels
    if isinstance(work, ReluConv):
        return f"conv_{square(work.conv)}", work.stride, work.conv.out_channels
    if isinstance(work, FactorizedReduce):
        return "reduce", 2, work.even.out_channels + work.odd.out_channels
    if isinstance(work, Residual):
        return "residual", 2, work.second.conv.out_channels
    if isinstance(work, nn.Sequential) and isinstance(work[0], nn.Conv2d):
        return "stem", 1, work[0].out_channels
    if isinstance(work, nn.Linear):
        return "classifier", 1, work.out_features
    if isinstance(work, Noise):
        return "noise", work.stride, channels
    if isinstance(work, Pool | nn.BatchNorm2d):
        return "batch_norm", 1, channels
    raise TypeError(f"a latency table has no name for {type(work).__name__}: give it one in fedloom.cost.steps")


def square(conv: nn.Conv2d) -> str:
    return f"{conv.kernel_size[0]}x{conv.kernel_size[1]}"


def model_of(task: Task) -> Model | None:
    """The network of cells that a task's architectures are parts of; None where it has another."""
    if task.kind not in MAPS:
        return None
    sizes = {name: task.options[name] for name in CellOptions.model_fields if name in task.options}
    if len(sizes) == len(CellOptions.model_fields):
        return cell_model(task, CellOptions(**sizes), affine=True)
    model = build_model(task, task.options.get("network"), task.options.get("width", 1.0))
    return model if isinstance(model.net, Supernet) else None

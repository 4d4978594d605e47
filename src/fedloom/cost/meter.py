"""A meter of the multiply-accumulates that are really computed, forward and backward.

A convolution or linear layer of M MACs costs M forward; backward, M for the gradient to its input
and M for the gradient to its weight, each only if autograd computes it. Biases, activations,
normalisation and pooling are not counted, as is usual.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import Node
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

from fedloom.nets.products import LISTENING

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
COUNTED = (nn.Linear, *CONV, *TRANSPOSED)


class Slots(NamedTuple):
    """Where a product of autograd's keeps its gradients."""

    input: int
    weight: int


SLOTS = {
    "ConvolutionBackward0": Slots(0, 1),
    "FastBackwardBackward": Slots(0, 1),  # nets.depthwise
    "AddmmBackward0": Slots(1, 2),
    "MmBackward0": Slots(0, 1),
}
RESHAPES: tuple[str, ...] = ("ViewBackward", "UnsafeViewBackward", "SqueezeBackward")

# The meters of this process that are looking, the outermost first.
LOOKING: list[Meter] = []
# An entry for every block of `searching` that is open.
OPEN_SEARCHES: list[None] = []


class Meter:
    """`with Meter() as meter: …; meter.macs`.

    Meters may be nested; each counts everything it spans.

    A module of another type is counted by its `count_macs(inputs, output) -> int`, if it has one.
    Such a module must compute with functional calls: a Conv or Linear that it called would be
    counted again. Functional calls elsewhere and nn.LSTM and its kin are not seen. Gradients of
    gradients are seen inside `second_derivatives` alone.

    The backward pass is counted while the meter is open, for forward passes made under it. Hooks
    belong to the graph, hold no tensor and die with it. The meter sees every thread of this
    process.
    """

    def __init__(self) -> None:
        self.macs = 0
        self.search_macs = 0  # of them, those inside `searching`
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> Meter:
        if self._handle is not None:
            raise RuntimeError("this meter is already open; nest a second Meter() instead")
        self._look()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._look_away()

    def _look(self) -> None:
        self._handle = register_module_forward_hook(self._forward, with_kwargs=True)
        LOOKING.append(self)
        LISTENING.append(self)

    def _look_away(self) -> None:
        assert self._handle is not None
        self._handle.remove()
        self._handle = None
        LOOKING.remove(self)
        LISTENING.remove(self)

    def _add(self, macs: int) -> None:
        if self._handle is not None:  # a backward pass after closing counts nothing
            self._book(macs)

    def _book(self, macs: int) -> None:
        self.macs += macs
        if OPEN_SEARCHES:
            self.search_macs += macs

    def _forward(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        named: dict[str, Any],
        output: Any,
    ) -> None:
        if not _counts(module):
            return
        inputs = args or tuple(named.values())
        macs = _macs(module, inputs, output)
        if macs:
            self._add(macs)
            self._watch(module, macs, _wants_gradient(inputs), _made_by(output))

    def _watch(self, module: nn.Module, macs: int, inward: bool, node: Node | None) -> None:
        """Count the backward pass through `node`, when and as far as it happens.

        `node` made the output.
        """
        if node is None:
            return
        product = _product(node, isinstance(module, nn.Linear))
        if product is None:  # not one plain product of autograd's: believe requires_grad
            products = int(inward) + int(_trains(module))
            node.register_prehook(lambda _: self._add(macs * products))
            return
        slots = SLOTS[product.name()]

        def count(gradients: Sequence[torch.Tensor | None], _: Any) -> None:
            """What autograd really computed.

            requires_grad cannot tell: grad(loss, [α]) skips weights.
            """
            if inward and gradients[slots.input] is not None:
                self._add(macs)
            if gradients[slots.weight] is not None:
                self._add(macs)

        product.register_hook(count)

    def hear_of(self, macs: int) -> None:
        """Of products that no module was called for."""
        self._add(macs)


@contextmanager
def known_to_cost(macs: int) -> Iterator[None]:
    """Inside, no meter looks; at the end each adds `macs` instead. Looking takes time."""
    with _looking_away() as meters:
        yield
    for meter in meters:
        meter._book(macs)


@contextmanager
def second_derivatives() -> Iterator[None]:
    """What is differentiated inside is a gradient: torch counts its products, call by call.

    Without this a meter would see a part of them, those that go through the first pass again.
    """
    counter = FlopCounterMode(display=False)
    with _looking_away() as meters, counter:
        yield
    macs = counter.get_total_flops() // 2  # a product and a sum for each
    for meter in meters:
        meter._book(macs)


@contextmanager
def _looking_away() -> Iterator[list[Meter]]:
    meters = list(LOOKING)
    for meter in meters:
        meter._look_away()
    try:
        yield meters
    finally:
        for meter in meters:
            meter._look()


@contextmanager
def searching() -> Iterator[None]:
    """What is computed inside is searching for an architecture, not training weights.

    A backward pass counts where it is made.
    """
    OPEN_SEARCHES.append(None)
    try:
        yield
    finally:
        OPEN_SEARCHES.pop()


@contextmanager
def partly_searching(share: float) -> Iterator[None]:
    """The same of a share of what is computed inside, where both are computed at once."""
    before = [(meter, meter.macs) for meter in LOOKING]
    yield
    for meter, macs in before:
        meter.search_macs += round(share * (meter.macs - macs))


def _counts(module: nn.Module) -> bool:
    """Most modules are not counted: they are passed over before anything of them is looked at."""
    return isinstance(module, COUNTED) or hasattr(type(module), "count_macs")


def _macs(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> int:
    """From sizes, never through `module.weight`: reading a parametrised weight computes it anew."""
    own = getattr(type(module), "count_macs", None)
    if own is not None:
        return int(own(module, inputs, output))
    if isinstance(module, nn.Linear):
        return int(output.numel()) * module.in_features
    if isinstance(module, CONV):
        channels = module.in_channels // module.groups
        return int(output.numel()) * channels * math.prod(module.kernel_size)
    if isinstance(module, TRANSPOSED):  # every input value goes to a whole kernel of outputs
        channels = module.out_channels // module.groups
        return int(inputs[0].numel()) * channels * math.prod(module.kernel_size)
    return 0


def _wants_gradient(inputs: tuple[Any, ...]) -> bool:
    """Whether the first input, a tensor or several, needs a gradient.

    α and other arguments come later.
    """
    if not inputs:
        return False
    return any(tensor.requires_grad for tensor in _tensors_in(inputs[0]))


def _made_by(output: Any) -> Node | None:
    """Autograd's node behind the first tensor that has one.

    A leaf has none, and would keep hooks for ever.
    """
    for tensor in _tensors_in(output):
        if tensor.grad_fn is not None:
            return tensor.grad_fn
    return None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """A value that is a tensor, or the tensors among several values."""
    if not isinstance(value, list | tuple):
        value = (value,)
    return [item for item in value if isinstance(item, torch.Tensor)]


def _trains(module: nn.Module) -> bool:
    weights = [tensor for name, tensor in module.named_parameters() if name != "bias"]
    return any(weight.requires_grad for weight in weights)


def _product(node: Node | None, bias_added: bool) -> Node | None:
    """The product behind an output.

    It is the output's own node, or one beneath a reshape or a Linear's separately added bias.
    """
    passed_over = RESHAPES
    if bias_added:
        passed_over = (*RESHAPES, "AddBackward")
    while node is not None and node.name().startswith(passed_over):
        node = node.next_functions[0][0]
    if node is None or node.name() not in SLOTS:
        return None
    return node

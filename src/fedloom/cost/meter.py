"""A meter of the multiply-accumulates (MACs) that are really computed, forward and backward.

A convolution or linear layer of M MACs costs M in the forward pass. In the backward pass it costs M
for the gradient of its input and M for the gradient of its weight, each only if autograd computes
it. Biases, activations, normalisation and pooling are not counted, as is usual.
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

from fedloom.nets.reported_macs import LISTENERS

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
COUNTED = (nn.Linear, *CONV, *TRANSPOSED)


class Slots(NamedTuple):
    """The positions of the gradients among the results of an autograd node."""

    input: int
    weight: int


SLOTS = {
    "ConvolutionBackward0": Slots(0, 1),
    "FastBackwardBackward": Slots(0, 1),  # nets.depthwise
    "AddmmBackward0": Slots(1, 2),
    "MmBackward0": Slots(0, 1),
}
RESHAPES: tuple[str, ...] = ("ViewBackward", "UnsafeViewBackward", "SqueezeBackward")

# The meters of this process that are counting, the outermost first.
OPEN_METERS: list[Meter] = []
# One entry for every open block of `searching`.
OPEN_SEARCHES: list[None] = []


class Meter:
    """Counts MACs: `with Meter() as meter: …; meter.macs`.

    Meters may be nested; each counts everything that is computed while it is open.

    A module of another type than those in `COUNTED` is counted by its method
    `count_macs(inputs, output) -> int`, if it has one. Such a module must compute with functional
    calls: a Conv or Linear that it called would be counted again. Functional calls elsewhere and
    nn.LSTM and similar layers are not counted. Gradients of gradients are counted only inside
    `second_derivatives`.

    A backward pass is counted while the meter is open, if its forward pass was made under the same
    meter. Hooks belong to the graph, hold no tensor and are freed with it. The meter counts the
    work of every thread of this process.
    """

    def __init__(self) -> None:
        self.macs = 0
        self.search_macs = 0  # those among them that were computed inside `searching`
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> Meter:
        if self._handle is not None:
            raise RuntimeError("this meter is already open; nest a second Meter() instead")
        self._attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._detach()

    def _attach(self) -> None:
        self._handle = register_module_forward_hook(self._forward, with_kwargs=True)
        OPEN_METERS.append(self)
        LISTENERS.append(self)

    def _detach(self) -> None:
        assert self._handle is not None
        self._handle.remove()
        self._handle = None
        OPEN_METERS.remove(self)
        LISTENERS.remove(self)

    def _add_if_open(self, macs: int) -> None:
        if self._handle is not None:  # a backward pass after closing counts nothing
            self._add(macs)

    def _add(self, macs: int) -> None:
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
            self._add_if_open(macs)
            self._watch(module, macs, _wants_gradient(inputs), _made_by(output))

    def _watch(self, module: nn.Module, macs: int, needs_x_grad: bool, node: Node | None) -> None:
        """Count the backward pass through `node`, which made the output, as far as it happens.

        `needs_x_grad`: whether the input needs a gradient.
        """
        if node is None:
            return
        product = _product(node, isinstance(module, nn.Linear))
        if product is None:  # not a single product that autograd knows: rely on requires_grad
            products = int(needs_x_grad) + int(_trains(module))
            node.register_prehook(lambda _: self._add_if_open(macs * products))
            return
        slots = SLOTS[product.name()]

        def count(gradients: Sequence[torch.Tensor | None], _: Any) -> None:
            """Count the gradients that autograd really computed.

            requires_grad does not tell: grad(loss, [α]) skips the weights.
            """
            if needs_x_grad and gradients[slots.input] is not None:
                self._add_if_open(macs)
            if gradients[slots.weight] is not None:
                self._add_if_open(macs)

        product.register_hook(count)

    def add_reported(self, macs: int) -> None:
        """Add the MACs of products that were computed without calling a module."""
        self._add_if_open(macs)


@contextmanager
def known_to_cost(macs: int) -> Iterator[None]:
    """Stop all meters inside the block, and add the known number of MACs to each at the end.

    That saves the time that metering takes.
    """
    with _all_detached() as meters:
        yield
    for meter in meters:
        meter._add(macs)


@contextmanager
def second_derivatives() -> Iterator[None]:
    """Count a backward pass that differentiates a gradient: torch counts its products call by call.

    Without this a meter would count only the part that goes through the first pass again.
    """
    counter = FlopCounterMode(display=False)
    with _all_detached() as meters, counter:
        yield
    macs = counter.get_total_flops() // 2  # a MAC is two operations: a product and a sum
    for meter in meters:
        meter._add(macs)


@contextmanager
def _all_detached() -> Iterator[list[Meter]]:
    meters = list(OPEN_METERS)
    for meter in meters:
        meter._detach()
    try:
        yield meters
    finally:
        for meter in meters:
            meter._attach()


@contextmanager
def searching() -> Iterator[None]:
    """Count what is computed inside as search for an architecture, not as training of weights.

    A backward pass belongs to the block in which it is run.
    """
    OPEN_SEARCHES.append(None)
    try:
        yield
    finally:
        OPEN_SEARCHES.pop()


@contextmanager
def partly_searching(share: float) -> Iterator[None]:
    """Count a share of what is computed inside as search, where both are computed together."""
    before = [(meter, meter.macs) for meter in OPEN_METERS]
    yield
    for meter, macs in before:
        meter.search_macs += round(share * (meter.macs - macs))


def _counts(module: nn.Module) -> bool:
    """Whether a module is counted. Most are not, and are skipped before anything is computed."""
    return isinstance(module, COUNTED) or hasattr(type(module), "count_macs")


def _macs(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> int:
    """The MACs of a forward pass, from sizes only.

    It never reads `module.weight`: that would compute a parametrised weight again.
    """
    count_macs = getattr(type(module), "count_macs", None)
    if count_macs is not None:
        return int(count_macs(module, inputs, output))
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
    """Whether the first input, which is a tensor or several, needs a gradient.

    Later arguments, such as α, do not count.
    """
    if not inputs:
        return False
    return any(tensor.requires_grad for tensor in _tensors_in(inputs[0]))


def _made_by(output: Any) -> Node | None:
    """The autograd node of the first tensor that has one.

    A leaf has none: it would keep hooks forever.
    """
    for tensor in _tensors_in(output):
        if tensor.grad_fn is not None:
            return tensor.grad_fn
    return None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, which is a tensor or a sequence with tensors among its items."""
    if not isinstance(value, list | tuple):
        value = (value,)
    return [item for item in value if isinstance(item, torch.Tensor)]


def _trains(module: nn.Module) -> bool:
    weights = [tensor for name, tensor in module.named_parameters() if name != "bias"]
    return any(weight.requires_grad for weight in weights)


def _product(node: Node | None, bias_added: bool) -> Node | None:
    """The node of the product that an output comes from.

    It is the output's own node, or one beneath a reshape or a Linear's separately added bias.
    None: there is no single product.
    """
    passed_over = RESHAPES
    if bias_added:
        passed_over = (*RESHAPES, "AddBackward")
    while node is not None and node.name().startswith(passed_over):
        node = node.next_functions[0][0]
    if node is None or node.name() not in SLOTS:
        return None
    return node

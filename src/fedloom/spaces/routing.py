"""Routing: every sample of a batch takes one operation of an edge, and only that one is computed.

The samples that take the same operation are gathered, computed together and added to the node at
their places. What operations take from a source (its ReLU, its pools) is computed only for the
samples that need it. Gathering and joining are our own autograd functions: torch's would create,
for the gradient of every group, a map of the whole batch that is mostly zeros, and add all of them
up.

BN uses the statistics of the samples that take its operation. A single sample on a map of one pixel
has only one number per channel, and so no statistics: that call uses the running statistics and
leaves them unchanged. An operation that no sample takes is not computed, so it has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, compress
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.folding import FOLDED, Folded
from fedloom.spaces.choice import Routes
from fedloom.spaces.ops import Op, Skip


class Nothing(Op):
    """The operation `none`, for samples that take it: a map of zeros."""

    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.shape = (channels, *size)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x.new_zeros(len(x), *self.shape)


class Group(NamedTuple):
    """The samples that take one operation."""

    op: int  # the number of the option
    samples: torch.Tensor | None  # the numbers of the samples; None: all samples, in their order


def groups_of(routes: Routes) -> list[list[Group]]:
    """Returns, for every slot, the samples grouped by operation. One sort serves all slots."""
    batch, slots = routes.ops.shape
    most = max(routes.options)
    order = torch.argsort(routes.ops.T, dim=1, stable=True)
    numbers = routes.ops + most * torch.arange(slots, device=routes.ops.device)
    counts = torch.bincount(numbers.flatten(), minlength=slots * most).view(slots, most).tolist()
    edges = []
    for slot in range(slots):
        groups = []
        for op, samples in enumerate(order[slot].split(counts[slot])):
            if len(samples) == batch:
                groups.append(Group(op, None))
            elif len(samples):
                groups.append(Group(op, samples))
        edges.append(groups)
    return edges


class RoutedSource:
    """A state that samples are gathered from.

    Its ReLU is computed once for all edges on which all samples take it.
    """

    def __init__(self, state: torch.Tensor) -> None:
        self.state = state
        self._relu: torch.Tensor | None = None

    @property
    def relu(self) -> torch.Tensor:
        if self._relu is None:
            self._relu = functional.relu(self.state)
        return self._relu


class RoutedSources:
    """The states of a cell, some of which are computed later."""

    def __init__(self, states: list[torch.Tensor]) -> None:
        self.states = states
        self.sources: dict[int, RoutedSource] = {}

    def of(self, number: int) -> RoutedSource:
        if number not in self.sources:
            self.sources[number] = RoutedSource(self.states[number])
        return self.sources[number]


class RoutedEdge(NamedTuple):
    """An edge on which each sample takes its own operation."""

    source: RoutedSource
    stride: int
    ops: Mapping[int, Op]  # by the number of the option
    groups: Sequence[Group]

    @property
    def is_whole(self) -> bool:
        """Whether all samples take the same operation."""
        return len(self.groups) == 1

    def results(self) -> Iterator[torch.Tensor]:
        """Yields the result of every group's operation on its samples.

        An operation that all samples take is computed to the bit as on a path.
        """
        for group, inputs in zip(self.groups, self.inputs(), strict=True):
            op = self.ops[group.op]
            compute: Folded = op
            if not self.is_whole:
                compute = folded_in_evaluation(op)
            yield result_of(op, compute, inputs, self.stride)

    def inputs(self) -> Iterable[torch.Tensor]:
        """The input of every group's operation: its samples of the state, or of its ReLU.

        Without gradients, each is gathered only when it is needed, so that it is still in the
        processor's cache when it is used.
        """
        takes_relu = [self.ops[group.op].takes == "relu" for group in self.groups]
        if self.is_whole and takes_relu[0]:
            return [self.source.relu]
        if self.is_whole:
            return [self.source.state]
        samples = []
        for group in self.groups:
            assert group.samples is not None
            samples.append(group.samples)
        if torch.is_grad_enabled():
            parts: Iterable[torch.Tensor] = Gathered.apply(  # type: ignore[no-untyped-call]
                self.source.state, samples, takes_relu
            )
            return parts
        return gathered(self.source.state, samples, takes_relu)


def folded_in_evaluation(op: Op) -> Folded:
    """Returns the operation with its BN folded in, if the weights stay fixed; else the operation.

    It is folded only inside `nets.folding.weights_stay`, in evaluation mode and without gradients.
    """
    folded = FOLDED.get()
    if folded is None or op.training or torch.is_grad_enabled():
        return op
    if op not in folded:
        folded[op] = op.folded() or op
    return folded[op]


def result_of(op: Op, compute: Folded, inputs: torch.Tensor, stride: int) -> torch.Tensor:
    """Returns the result of an operation; `compute` is the operation itself or its folded form."""
    if op.takes == "max":
        inputs = functional.max_pool2d(inputs, 3, stride, 1)
    elif op.takes == "avg":
        inputs = functional.avg_pool2d(inputs, 3, stride, 1, count_include_pad=False)
    if isinstance(op, Skip):
        return inputs
    if op.training and has_one_number_per_channel(inputs, op, stride):
        with running_statistics(op):
            return compute(inputs)
    return compute(inputs)


def has_one_number_per_channel(inputs: torch.Tensor, op: Op, stride: int) -> bool:
    """Whether BN would see a single number per channel, which has no statistics."""
    if len(inputs) > 1:
        return False
    if op.takes != "relu":  # a pool has already applied the stride
        stride = 1
    pixels = -(-inputs.shape[2] // stride) * -(-inputs.shape[3] // stride)
    return pixels == 1


@contextmanager
def running_statistics(op: nn.Module) -> Iterator[None]:
    """Inside, the operation's BN uses its running statistics and leaves them unchanged."""
    norms = []
    for module in op.modules():
        if isinstance(module, nn.BatchNorm2d) and module.training:
            norms.append(module)
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def joined(edges: Sequence[RoutedEdge], factors: torch.Tensor | None, divisor: int) -> torch.Tensor:
    """Returns a node: the sum of its edges, with every sample at its place, over a divisor.

    `factors` [batch, edges] has one factor for every sample and edge; None: all are 1.
    """
    parts = []
    for number, edge in enumerate(edges):
        for group in edge.groups:
            parts.append(Part(number, group.samples))
    results = chain.from_iterable(edge.results() for edge in edges)
    batch = len(edges[0].source.state)
    if not torch.is_grad_enabled():
        return total_of(parts, results, none_if_all_ones(factors), batch, divisor)
    node: torch.Tensor = Joined.apply(  # type: ignore[no-untyped-call]
        parts, batch, divisor, factors, *results
    )
    return node


# Gathering samples by number, and writing them back


class Rows(NamedTuple):
    """The layout of maps as rows of numbers: one row per sample, in the order of memory.

    torch's `index_select` would return channels-last maps with the channels first, which takes ten
    times as long as copying rows, and makes everything after it slower.
    """

    shape: tuple[int, ...]  # the shape of one map, channels first
    channels_last: bool

    @classmethod
    def like(cls, maps: torch.Tensor) -> Rows:
        last = maps.is_contiguous(memory_format=torch.channels_last)
        return cls(tuple(maps.shape[1:]), last)

    def of(self, maps: torch.Tensor) -> torch.Tensor:
        if self.channels_last:
            maps = maps.permute(0, 2, 3, 1)
        return maps.reshape(len(maps), -1)

    def as_maps(self, rows: torch.Tensor) -> torch.Tensor:
        channels, height, width = self.shape
        if self.channels_last:
            return rows.view(-1, height, width, channels).permute(0, 3, 1, 2)
        return rows.view(-1, channels, height, width)

    def zeros(self, batch: int, like: torch.Tensor) -> torch.Tensor:
        channels, height, width = self.shape
        return like.new_zeros(batch, channels * height * width)


def gathered(
    state: torch.Tensor, samples: Sequence[torch.Tensor], takes_relu: Sequence[bool]
) -> Iterator[torch.Tensor]:
    """Yields the samples of every group, from a state or from its ReLU."""
    layout = Rows.like(state)
    rows = layout.of(state)
    for numbers, is_relu in zip(samples, takes_relu, strict=True):
        part = rows.index_select(0, numbers)
        if is_relu:
            part.relu_()
        yield layout.as_maps(part)


class Gathered(torch.autograd.Function):
    """`gathered` as an autograd function, for groups that contain every sample once.

    Its backward pass writes all gradients into one map, and supports double differentiation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        state: torch.Tensor,
        samples: Sequence[torch.Tensor],
        takes_relu: Sequence[bool],
    ) -> tuple[torch.Tensor, ...]:
        parts = tuple(gathered(state, samples, takes_relu))
        ctx.save_for_backward(*compress(parts, takes_relu))
        ctx.samples = samples
        ctx.takes_relu = takes_relu
        ctx.layout = Rows.like(state)
        ctx.batch = len(state)
        return parts

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        whole = ctx.layout.zeros(ctx.batch, gradients[0])
        relu_parts = iter(ctx.saved_tensors)
        for gradient, numbers, is_relu in zip(gradients, ctx.samples, ctx.takes_relu, strict=True):
            if is_relu:
                gradient = torch.ops.aten.threshold_backward(gradient, next(relu_parts), 0)
            whole.index_add_(0, numbers, ctx.layout.of(gradient))
        return ctx.layout.as_maps(whole), None, None


class Part(NamedTuple):
    """The samples and the edge that one result belongs to."""

    edge: int
    samples: torch.Tensor | None  # None: all

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        if self.samples is None:
            return rows
        return rows.index_select(0, self.samples)

    def add_to(self, rows: torch.Tensor, more: torch.Tensor) -> None:
        if self.samples is None:
            rows.add_(more)
        else:
            rows.index_add_(0, self.samples, more)

    def copy_to(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        if self.samples is None:
            rows.copy_(values)
        else:
            rows.index_copy_(0, self.samples, values)


def none_if_all_ones(factors: torch.Tensor | None) -> torch.Tensor | None:
    """Returns None if all factors are 1, as for sampled operations: no product is needed."""
    if factors is None or bool((factors == 1).all()):
        return None
    return factors


def total_of(
    parts: Sequence[Part],
    results: Iterable[torch.Tensor],
    factors: torch.Tensor | None,
    batch: int,
    divisor: int,
) -> torch.Tensor:
    """Adds up results times their factors, at the places of their samples, over a divisor."""
    layout = None
    for part, result in zip(parts, results, strict=True):
        if layout is None:
            layout = Rows.like(result)
            total = result.new_empty(batch, result[0].numel())
        rows = layout.of(result)
        if factors is not None:
            rows = rows * part.of(factors)[:, part.edge, None]
        if part.edge == 0:  # the parts of an edge hold every sample once
            part.copy_to(total, rows)
        else:
            part.add_to(total, rows)
    assert layout is not None
    if divisor > 1:
        total.div_(divisor)
    return layout.as_maps(total)


class Joined(torch.autograd.Function):
    """`total_of` as an autograd function, which supports double differentiation."""

    @staticmethod
    def forward(
        ctx: Any,
        parts: Sequence[Part],
        batch: int,
        divisor: int,
        factors: torch.Tensor | None,
        *results: torch.Tensor,
    ) -> torch.Tensor:
        needed_factors = none_if_all_ones(factors)
        total = total_of(parts, results, needed_factors, batch, divisor)
        ctx.parts = parts
        ctx.divisor = divisor
        ctx.layout = Rows.like(total)
        ctx.has_factors = factors is not None
        ctx.multiplies = needed_factors is not None
        if factors is not None:
            ctx.save_for_backward(factors, *results)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[Any, ...]:
        layout = ctx.layout
        rows = layout.of(outer[0]) / ctx.divisor
        result_grads = []
        if not ctx.has_factors:
            for part in ctx.parts:
                result_grads.append(layout.as_maps(part.of(rows)))
            return None, None, None, None, *result_grads
        factors, *results = ctx.saved_tensors
        factor_grads = torch.zeros_like(factors)
        for part, result in zip(ctx.parts, results, strict=True):
            result_grad = part.of(rows)
            products = torch.linalg.vecdot(result_grad, layout.of(result))
            part.add_to(factor_grads[:, part.edge], products)
            # The second derivative depends on the factors even where they are 1.
            if ctx.multiplies or torch.is_grad_enabled():
                result_grad = result_grad * part.of(factors)[:, part.edge, None]
            result_grads.append(layout.as_maps(result_grad))
        return None, None, None, factor_grads, *result_grads

"""A batch whose every sample takes one operation of an edge: each computes its own, and no other.

Samples of one operation are gathered, computed together and written back to their places. What
several operations need of a source (its ReLU) is computed once for all edges; pools are computed of
the samples that want them.

BN takes the statistics of the samples that take its operation. Where that is one number a channel,
one sample on a map of one pixel, there are none: that call uses the running statistics and leaves
them as they are. An operation that nobody takes is not computed, so it has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.spaces.choice import Routes
from fedloom.spaces.ops import Op, Skip, scaled


class Nothing(Op):
    """`none` for samples that take it: a map of zeros."""

    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.shape = (channels, *size)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x.new_zeros(len(x), *self.shape)


class Group(NamedTuple):
    """The samples that take one operation."""

    op: int  # the number of the option
    samples: torch.Tensor | None  # their numbers; None: all of them, in their order


class Groups(NamedTuple):
    """Of one edge: all samples, by the operation that they take."""

    parts: Sequence[Group]


def groups_of(routes: Routes) -> list[Groups]:
    """Of every slot. One sort serves them all."""
    order = torch.argsort(routes.ops, dim=0, stable=True)
    batch = len(routes.ops)
    edges = []
    for slot, options in enumerate(routes.options):
        counts = torch.bincount(routes.ops[:, slot], minlength=options).tolist()
        edges.append(Groups(list(parts_of(order[:, slot], counts, batch))))
    return edges


def parts_of(order: torch.Tensor, counts: Sequence[int], batch: int) -> Iterator[Group]:
    begin = 0
    for op, count in enumerate(counts):
        if count == batch:
            yield Group(op, None)
        elif count:
            yield Group(op, order[begin : begin + count])
        begin += count


class RoutedSource:
    """A state that samples are gathered from, and its ReLU."""

    def __init__(self, state: torch.Tensor) -> None:
        self.state = state
        self._relu: torch.Tensor | None = None

    @property
    def relu(self) -> torch.Tensor:
        if self._relu is None:
            self._relu = functional.relu(self.state)
        return self._relu


class SourceOfEdge(NamedTuple):
    source: RoutedSource
    stride: int


class RoutedSources:
    """The states of a cell. What operations share of one is computed when it is first wanted."""

    def __init__(self, states: list[torch.Tensor]) -> None:
        self.states = states
        self.sources: dict[int, RoutedSource] = {}

    def of(self, number: int, stride: int) -> SourceOfEdge:
        if number not in self.sources:
            self.sources[number] = RoutedSource(self.states[number])
        return SourceOfEdge(self.sources[number], stride)


def routed(
    ops: Mapping[int, Op],
    source: SourceOfEdge,
    groups: Groups,
    factors: torch.Tensor | None,
) -> torch.Tensor:
    """What an edge makes of its source: every sample by its own operation, times its factor."""
    if len(groups.parts) == 1:
        group = groups.parts[0]
        return scaled(computed(ops[group.op], source, None), factors)
    results = []
    places = []
    for group in groups.parts:
        assert group.samples is not None
        results.append(computed(ops[group.op], source, group.samples))
        places.append(group.samples)
    return scaled(back_in_place(torch.cat(results), torch.cat(places)), factors)


def computed(op: Op, source: SourceOfEdge, samples: torch.Tensor | None) -> torch.Tensor:
    """What an operation makes of these samples of a source; None: of all."""
    if op.takes == "relu":
        taken = gathered(source.source.relu, samples)
    else:
        taken = gathered(source.source.state, samples)
    if op.takes == "max":
        taken = functional.max_pool2d(taken, 3, source.stride, 1)
    elif op.takes == "avg":
        taken = functional.avg_pool2d(taken, 3, source.stride, 1, count_include_pad=False)
    if isinstance(op, Skip):
        return taken
    if op.training and is_one_number_a_channel(taken, op, source):
        with running_statistics(op):
            return called(op, taken)
    return called(op, taken)


def called(op: Op, taken: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = op(taken)
    return result


def is_one_number_a_channel(taken: torch.Tensor, op: Op, source: SourceOfEdge) -> bool:
    """Whether BN would have nothing to take statistics of."""
    if len(taken) > 1:
        return False
    stride = 1
    if op.takes == "relu":  # a pool has been taken before
        stride = source.stride
    pixels = -(-taken.shape[2] // stride) * -(-taken.shape[3] // stride)
    return pixels == 1


@contextmanager
def running_statistics(op: nn.Module) -> Iterator[None]:
    """Inside, BN takes the running statistics and leaves them as they are."""
    norms = [part for part in op.modules() if isinstance(part, nn.BatchNorm2d) and part.training]
    for norm in norms:
        norm.eval()
    yield
    for norm in norms:
        norm.train()


# Samples by number, there and back


class Gathered(torch.autograd.Function):
    """Some samples, each once. Its gradient is copied, not added up, to where they come from."""

    @staticmethod
    def forward(ctx, x, samples):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(samples)
        ctx.batch = len(x)
        return x.index_select(0, samples)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (samples,) = ctx.saved_tensors
        return placed(gradient, samples, ctx.batch), None


class BackInPlace(torch.autograd.Function):
    """All samples in another order: the first of `x` goes to the place `places[0]`."""

    @staticmethod
    def forward(ctx, x, places):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(places)
        return placed(x, places, len(x))

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (places,) = ctx.saved_tensors
        return gradient.index_select(0, places), None


def gathered(x: torch.Tensor, samples: torch.Tensor | None) -> torch.Tensor:
    if samples is None:
        return x
    chosen: torch.Tensor = Gathered.apply(x, samples)  # type: ignore[no-untyped-call]
    return chosen


def back_in_place(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    everything: torch.Tensor = BackInPlace.apply(x, places)  # type: ignore[no-untyped-call]
    return everything


def placed(x: torch.Tensor, places: torch.Tensor, batch: int) -> torch.Tensor:
    """A batch in which `x` stands at these places, and 0 elsewhere."""
    if len(x) == batch:
        return x.index_select(0, torch.argsort(places))
    whole = x.new_zeros(batch, *x.shape[1:])
    if x.is_contiguous(memory_format=torch.channels_last):
        whole = whole.to(memory_format=torch.channels_last)
    return whole.index_copy_(0, places, x)

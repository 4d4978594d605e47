"""Convolutions and BN over a batch whose samples are not all learnt from: those to train on first.

A search step looks at two batches with the same weights. Side by side they take half as many calls.
A `Chain` computes all samples at once, and in its backward pass only what is wanted: gradients of
weights over the samples to train on, and gradients of its input as far as they reach. It is one
step of autograd's, because for small maps that counts too, and it tells the MACs that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets import depthwise, products

LEAST_FOR_PRODUCTS = 16  # channels: with fewer, oneDNN's convolution beats a product of matrices


class Reach(NamedTuple):
    """How many samples of a batch, counted from its first, gradients are wanted for."""

    trained: int  # weights learn from these
    inward: int  # what was computed before learns from these


@dataclass(frozen=True)
class Convs:
    """Convolutions of one kind without bias, each of its own part of the channels of one map."""

    weights: tuple[torch.Tensor, ...]

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """`weight`: all of them, side by side."""
        raise NotImplementedError

    def of_input(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def of_weight(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class DepthwiseConvs(Convs):
    stride: int
    dilation: int

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        padding = weight.shape[-1] // 2 * self.dilation
        channels = weight.shape[0]
        return functional.conv2d(x, weight, None, self.stride, padding, self.dilation, channels)

    def of_input(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        of_x, _ = depthwise.gradients(outer, x, weight, self.stride, self.dilation, (True, False))
        assert of_x is not None
        return of_x

    def of_weight(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        _, of_weight = depthwise.gradients(
            outer, x, weight, self.stride, self.dilation, (False, True)
        )
        assert of_weight is not None
        return of_weight


@dataclass(frozen=True)
class PointwiseConvs(Convs):
    """Of stride 1: a stride is sliced out before (nets/strided.py)."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._convolved(x, weight)

    def of_input(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """A 1×1 convolution too, from outputs to inputs."""
        groups = len(self.weights)
        outputs, inputs = weight.shape[:2]
        matrices = weight.reshape(groups, outputs // groups, inputs).transpose(1, 2)
        return self._convolved(outer, matrices.reshape(groups * inputs, outputs // groups, 1, 1))

    def of_weight(self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        outputs, inputs = weight.shape[:2]
        if inputs < LEAST_FOR_PRODUCTS:
            return self._convolutions_gradient(outer, x, weight)
        matrices = torch.bmm(self._pixels(outer).transpose(1, 2), self._pixels(x))
        # laid out like the weight of a network with the channels last
        return matrices.view(outputs, 1, 1, inputs).permute(0, 3, 1, 2)

    def _convolved(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        groups = len(self.weights)
        outputs, inputs = weight.shape[:2]
        if inputs < LEAST_FOR_PRODUCTS:
            return functional.conv2d(x, weight, groups=groups)
        batch, _, height, width = x.shape
        matrices = weight.reshape(groups, outputs // groups, inputs)
        pixels = torch.bmm(self._pixels(x), matrices.transpose(1, 2))
        y = pixels.transpose(0, 1).reshape(batch, height, width, outputs)
        return y.permute(0, 3, 1, 2)

    def _convolutions_gradient(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """torch's own."""
        groups = len(self.weights)
        wanted = [False, True, False]
        gradients = torch.ops.aten.convolution_backward(
            outer, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], groups, wanted
        )
        of_weight: torch.Tensor = gradients[1]
        return of_weight

    def _pixels(self, x: torch.Tensor) -> torch.Tensor:
        """[groups, pixels of all samples, channels of a group]: a view, if channels are last."""
        groups = len(self.weights)
        return x.permute(0, 2, 3, 1).reshape(-1, groups, x.shape[1] // groups).transpose(0, 1)


@dataclass(frozen=True)
class Norms:
    """BNs that train and have no weights, each of its own part of the channels of one map."""

    bns: tuple[nn.BatchNorm2d, ...]

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None, trained: int
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The result, and the mean and one over the deviation of every part of the batch.

        Samples to train on are normalised by themselves, and so are the others. `scale` has a
        number for every channel.
        """
        y = torch.empty_like(x, memory_format=torch.channels_last)
        statistics = self._normalise(x[:trained], scale, y[:trained])
        if trained < x.shape[0]:
            statistics += self._normalise(x[trained:], scale, y[trained:])
        return y, statistics

    def backward(
        self,
        outer: torch.Tensor,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        statistics: Sequence[torch.Tensor],
        reach: Reach,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The gradient of its input as far as it reaches, and the one of `scale` of all samples."""
        trained = reach.trained
        of_x, of_scale = self._gradients(outer[:trained], x[:trained], scale, statistics[:2], True)
        if len(statistics) == 2:
            return of_x, of_scale
        reaches_others = reach.inward > trained
        if not reaches_others and scale is None:
            return of_x, None
        of_others, others_of_scale = self._gradients(
            outer[trained:], x[trained:], scale, statistics[2:], reaches_others
        )
        if scale is not None:
            of_scale = of_scale + others_of_scale
        if reaches_others:
            of_x = torch.cat([of_x, of_others])
        return of_x, of_scale

    def differentiable(self, x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """By torch's own, of one part of a batch."""
        return functional.batch_norm(x, None, None, scale, None, True, 0.0, self.bns[0].eps)

    def _normalise(
        self, x: torch.Tensor, scale: torch.Tensor | None, y: torch.Tensor
    ) -> list[torch.Tensor]:
        statistics = [x.new_empty(x.shape[1]), x.new_empty(x.shape[1])]
        torch.native_batch_norm(
            x, scale, None, None, None, True, 0.0, self.bns[0].eps, out=(y, *statistics)
        )
        return statistics

    def _gradients(
        self,
        outer: torch.Tensor,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        statistics: Sequence[torch.Tensor],
        inward: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = [inward, scale is not None, False]
        of_x, of_scale, _ = torch.ops.aten.native_batch_norm_backward(
            outer, x, scale, None, None, *statistics, True, self.bns[0].eps, wanted
        )
        return of_x, of_scale


class Note(NamedTuple):
    """What BNs side by side have seen of samples to train on."""

    bns: tuple[nn.BatchNorm2d, ...]
    values: int  # of every channel
    mean: torch.Tensor
    deviation: torch.Tensor  # one over it, as BN computes it, with eps


@torch.no_grad()
def note_down(notes: Sequence[Note]) -> None:
    """Moves running statistics, those of all layers at once, as BN does it layer by layer."""
    notes = [note for note in notes if note.bns[0].track_running_stats]
    if not notes:
        return
    bns = [bn for note in notes for bn in note.bns]
    momentum = bns[0].momentum
    assert momentum is not None
    channels = [bn.num_features for bn in bns]
    unbiased = [note.values / (note.values - 1) for note in notes for _ in note.bns]
    means = torch.cat([note.mean for note in notes]).split(channels)
    variances = torch.cat([note.deviation for note in notes]).pow_(-2).sub_(bns[0].eps)
    own_variances = variances.split(channels)
    torch._foreach_mul_(own_variances, unbiased)
    torch._foreach_lerp_([bn.get_buffer("running_mean") for bn in bns], means, momentum)
    torch._foreach_lerp_([bn.get_buffer("running_var") for bn in bns], own_variances, momentum)
    torch._foreach_add_([bn.get_buffer("num_batches_tracked") for bn in bns], 1)


@dataclass(frozen=True)
class Block:
    """Convolutions and BN."""

    convs: tuple[Convs, ...]
    norms: Norms


@dataclass(frozen=True)
class Chain:
    """Blocks with ReLU between them. What comes out of the last may be multiplied by numbers."""

    blocks: tuple[Block, ...]
    reach: Reach
    notes: list[Note]  # is added to

    def __call__(self, x: torch.Tensor, scales: Sequence[torch.Tensor] | None) -> torch.Tensor:
        """`scales`: a number for each of the BNs that it ends in."""
        numbers = None
        if scales is not None:
            numbers = torch.stack(list(scales))
        weights = [weight for convs in self.convs() for weight in convs.weights]
        y: torch.Tensor = ChainStep.apply(self, x, numbers, *weights)  # type: ignore[no-untyped-call]
        return y

    def a_number_a_channel(self, numbers: torch.Tensor | None) -> torch.Tensor | None:
        """Of those for each of the last BNs."""
        if numbers is None:
            return None
        channels = self.blocks[-1].norms.bns[0].num_features
        # contiguous: torch's channels-last kernel reads them by their address
        return numbers.unsqueeze(1).expand(-1, channels).contiguous().view(-1)

    def convs(self) -> Iterator[Convs]:
        for block in self.blocks:
            yield from block.convs

    def differentiable(
        self, x: torch.Tensor, numbers: torch.Tensor | None, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """By torch's own operations, for gradients that are to be differentiated again."""
        scale = self.a_number_a_channel(numbers)
        trained = self.reach.trained
        y = self._part(x[:trained], scale, weights)
        if trained == x.shape[0]:
            return y
        others = x[trained:]
        if self.reach.inward <= trained:
            others = others.detach()
        constants = [weight.detach() for weight in weights]
        return torch.cat([y, self._part(others, scale, constants)])

    def _part(
        self, x: torch.Tensor, scale: torch.Tensor | None, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Of one part of a batch."""
        coming = iter(weights)
        for block in self.blocks:
            for convs in block.convs:
                x = convs.forward(x, joined([next(coming) for _ in convs.weights], dim=0))
            if block is self.blocks[-1]:
                return block.norms.differentiable(x, scale)
            x = block.norms.differentiable(x, None).relu()
        return x


class ChainStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        chain: Chain,
        x: torch.Tensor,
        numbers: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.chain = chain
        scale = chain.a_number_a_channel(numbers)
        trained = chain.reach.trained
        kept: list[torch.Tensor] = []  # of every layer what its backward pass needs
        source = x
        for block in chain.blocks:
            for convs in block.convs:
                weight = joined(convs.weights, dim=0)
                kept += [x, weight]
                x = convs.forward(x, weight)
                products.tell(x.numel() * weight[0].numel())
            is_last = block is chain.blocks[-1]
            y, statistics = block.norms.forward(x, scale if is_last else None, trained)
            values = trained * x.shape[2] * x.shape[3]
            chain.notes.append(Note(block.norms.bns, values, *statistics[:2]))
            kept += [x, *statistics]
            x = y
            if not is_last:
                x.relu_()
                kept.append(x)
        ctx.save_for_backward(source, numbers, *weights, *kept)
        return x

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        chain: Chain = ctx.chain
        count = len(ctx.needs_input_grad) - 3
        source, numbers, *rest = ctx.saved_tensors
        weights = rest[:count]
        if torch.is_grad_enabled():
            return differentiable_gradients(ctx, source, numbers, weights, outer[0])
        return once(chain, ctx.needs_input_grad, rest[count:], numbers, outer[0])


def once(
    chain: Chain,
    wanted: Sequence[bool],
    kept: list[torch.Tensor],
    numbers: torch.Tensor | None,
    outer: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients, from the last layer to the first; layers take from `kept` what is theirs."""
    reach = chain.reach
    samples = outer.shape[0]
    scale = chain.a_number_a_channel(numbers)
    of_numbers = None
    of_weights: list[torch.Tensor | None] = []
    still_wanted = list(wanted[3:])
    for number, block in reversed(list(enumerate(chain.blocks))):
        is_last = number == len(chain.blocks) - 1
        if not is_last:
            result = kept.pop()
            outer = torch.ops.aten.threshold_backward(outer, result[: outer.shape[0]], 0)
        parts = 2 if reach.trained < samples else 1
        statistics = kept[-2 * parts :]
        del kept[-2 * parts :]
        x = kept.pop()
        outer, found = block.norms.backward(outer, x, scale if is_last else None, statistics, reach)
        if found is not None:
            of_numbers = found.view(len(block.norms.bns), -1).sum(1)
        for convs in reversed(block.convs):
            weight = kept.pop()
            x = kept.pop()
            own = still_wanted[-len(convs.weights) :]
            del still_wanted[-len(convs.weights) :]
            a_sample = outer[0].numel() * weight[0].numel()
            if any(own):
                of_all = convs.of_weight(outer[: reach.trained], x[: reach.trained], weight)
                of_weights = [*of_all.chunk(len(own)), *of_weights]
                products.tell(a_sample * reach.trained)
            else:
                of_weights = [*[None] * len(own), *of_weights]
            if not wanted[1] and not any(still_wanted):
                return None, None, of_numbers, *[None] * len(still_wanted), *of_weights
            outer = convs.of_input(outer, x[: outer.shape[0]], weight)
            products.tell(a_sample * outer.shape[0])
    return None, with_zeros(outer, samples), of_numbers, *of_weights


def differentiable_gradients(
    ctx: Any,
    x: torch.Tensor,
    numbers: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    outer: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    y = ctx.chain.differentiable(x, numbers, weights)
    wanted: list[torch.Tensor] = []
    for tensor, is_wanted in zip((x, numbers, *weights), ctx.needs_input_grad[1:], strict=True):
        if tensor is not None and is_wanted:
            wanted.append(tensor)
    found = iter(torch.autograd.grad(y, wanted, outer, create_graph=True))
    gradients = [next(found) if is_wanted else None for is_wanted in ctx.needs_input_grad[1:]]
    return None, *gradients


def joined(tensors: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Side by side; one alone is not copied."""
    if len(tensors) == 1:
        return tensors[0]
    return torch.cat(list(tensors), dim=dim)


def with_zeros(gradient: torch.Tensor, samples: int) -> torch.Tensor:
    """For samples that it does not reach."""
    missing = samples - gradient.shape[0]
    if not missing:
        return gradient
    return functional.pad(gradient, (0, 0, 0, 0, 0, 0, 0, missing))

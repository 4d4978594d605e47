"""Convolutions and BN over a batch in which only the first samples are training samples.

A search step computes two batches with the same weights. Side by side they need half as many calls.
A `BlockSequence` computes all samples at once, and in its backward pass only what is needed: the
gradients of weights for the training samples, and the gradients of its input for as many samples as
`Reach` says. It is a single autograd function, because for small maps the number of functions
matters too, and it reports the MACs that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets import depthwise, reported_macs

# With fewer input channels, oneDNN's convolution is faster than a product of matrices.
LEAST_FOR_PRODUCTS = 16


@dataclass(frozen=True)
class BlockSequence:
    """Blocks with ReLU between them. The results of the last BNs may be multiplied by numbers."""

    blocks: tuple[Block, ...]
    reach: Reach
    training_statistics: list[TrainingStatistics]  # each call appends its statistics

    def __call__(self, x: torch.Tensor, scales: Sequence[torch.Tensor] | None) -> torch.Tensor:
        """`scales` has a number for each BN of the last block."""
        bn_scales = None
        if scales is not None:
            bn_scales = torch.stack(list(scales))
        weights: list[torch.Tensor] = []
        for convs in self.convs():
            weights.extend(convs.weights)
        y: torch.Tensor = SequenceFunction.apply(  # type: ignore[no-untyped-call]
            self, x, bn_scales, *weights
        )
        return y

    def channel_scales(self, bn_scales: torch.Tensor | None) -> torch.Tensor | None:
        """Repeats the scale of each BN of the last block for each of its channels."""
        if bn_scales is None:
            return None
        channels = self.blocks[-1].norms.bns[0].num_features
        # contiguous: torch's channels-last kernel reads them by their address
        return bn_scales.unsqueeze(1).expand(-1, channels).contiguous().view(-1)

    def convs(self) -> Iterator[Convs]:
        for block in self.blocks:
            yield from block.convs

    def differentiable(
        self, x: torch.Tensor, bn_scales: torch.Tensor | None, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Computes the same with torch's own operations, for double differentiation."""
        scale = self.channel_scales(bn_scales)
        trained = self.reach.trained
        y = self._part(x[:trained], scale, weights)
        if trained == x.shape[0]:
            return y
        others = x[trained:]
        if self.reach.grad_samples <= trained:
            others = others.detach()
        constants = [weight.detach() for weight in weights]
        return torch.cat([y, self._part(others, scale, constants)])

    def _part(
        self, x: torch.Tensor, scale: torch.Tensor | None, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Computes one part of a batch with torch's own operations."""
        next_weights = iter(weights)
        for block in self.blocks:
            for convs in block.convs:
                own_weights = [next(next_weights) for _ in convs.weights]
                x = convs.forward(x, joined(own_weights, dim=0))
            if block is self.blocks[-1]:
                return block.norms.differentiable(x, scale)
            x = block.norms.differentiable(x, None).relu()
        return x


@dataclass(frozen=True)
class Block:
    """Convolutions, one after the other, followed by BN."""

    convs: tuple[Convs, ...]
    norms: Norms


class Reach(NamedTuple):
    """The numbers of samples, counted from the first, for which gradients are needed."""

    trained: int  # samples that the weights learn from
    grad_samples: int  # samples for which the gradient of the input is needed


class TrainingStatistics(NamedTuple):
    """The statistics of training samples in several BNs that were computed side by side."""

    bns: tuple[nn.BatchNorm2d, ...]
    values: int  # the number of values per channel
    mean: torch.Tensor
    deviation: torch.Tensor  # its inverse, as BN computes it, with eps


@dataclass(frozen=True)
class Convs:
    """Convolutions of one kind without bias, each on its own part of the channels of one map.

    The argument `weight` of the methods is the concatenation of `weights`; `outer` is the gradient
    of the result.
    """

    weights: tuple[torch.Tensor, ...]

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def input_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        raise NotImplementedError

    def weight_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class DepthwiseConvs(Convs):
    """Depthwise convolutions, with the padding of `nets.depthwise.DepthwiseConv`."""

    stride: int
    dilation: int

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        padding = weight.shape[-1] // 2 * self.dilation
        channels = weight.shape[0]
        return functional.conv2d(x, weight, None, self.stride, padding, self.dilation, channels)

    def input_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        gradients = self._gradients(outer, x, weight, depthwise.ONLY_X)
        assert gradients.x is not None
        return gradients.x

    def weight_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        gradients = self._gradients(outer, x, weight, depthwise.ONLY_WEIGHT)
        assert gradients.weight is not None
        return gradients.weight

    def _gradients(
        self,
        outer: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        wanted: depthwise.Wanted,
    ) -> depthwise.Gradients:
        return depthwise.gradients(outer, x, weight, self.stride, self.dilation, wanted)


@dataclass(frozen=True)
class PointwiseConvs(Convs):
    """1×1 convolutions of stride 1; pixels that a stride skips are sliced out before."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._convolved(x, weight)

    def input_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of the input is a 1×1 convolution from outputs to inputs."""
        groups = len(self.weights)
        outputs, inputs = weight.shape[:2]
        matrices = weight.reshape(groups, outputs // groups, inputs).transpose(1, 2)
        return self._convolved(outer, matrices.reshape(groups * inputs, outputs // groups, 1, 1))

    def weight_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        outputs, inputs = weight.shape[:2]
        if inputs < LEAST_FOR_PRODUCTS:
            return self._torch_weight_grad(outer, x, weight)
        matrices = torch.bmm(self._pixels(outer).transpose(1, 2), self._pixels(x))
        # in memory like the weight of a channels-last network
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

    def _torch_weight_grad(
        self, outer: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        groups = len(self.weights)
        wanted = [False, True, False]
        gradients = torch.ops.aten.convolution_backward(
            outer, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], groups, wanted
        )
        weight_grad: torch.Tensor = gradients[1]
        return weight_grad

    def _pixels(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [groups, pixels of all samples, channels per group], a view if channels-last."""
        groups = len(self.weights)
        return x.permute(0, 2, 3, 1).reshape(-1, groups, x.shape[1] // groups).transpose(0, 1)


@dataclass(frozen=True)
class Norms:
    """BNs in training mode without weights, each on its own part of the channels of one map."""

    bns: tuple[nn.BatchNorm2d, ...]

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None, trained: int
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Returns the result, and the mean and inverse deviation of both parts of the batch.

        The training samples and the other samples are normalised separately. `scale` has one number
        per channel.
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
        """Returns the gradient of the input within `reach`, and of `scale` over all samples."""
        trained = reach.trained
        x_grad, scale_grad = self._gradients(
            outer[:trained], x[:trained], scale, statistics[:2], True
        )
        if len(statistics) == 2:
            return x_grad, scale_grad
        reaches_others = reach.grad_samples > trained
        if not reaches_others and scale is None:
            return x_grad, None
        others_x_grad, others_scale_grad = self._gradients(
            outer[trained:], x[trained:], scale, statistics[2:], reaches_others
        )
        if scale is not None:
            scale_grad = scale_grad + others_scale_grad
        if reaches_others:
            x_grad = torch.cat([x_grad, others_x_grad])
        return x_grad, scale_grad

    def differentiable(self, x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        """Normalises one part of a batch by torch's own function."""
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
        needs_input_grad: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = [needs_input_grad, scale is not None, False]
        x_grad, scale_grad, _ = torch.ops.aten.native_batch_norm_backward(
            outer, x, scale, None, None, *statistics, True, self.bns[0].eps, wanted
        )
        return x_grad, scale_grad


@torch.no_grad()
def update_running_statistics(training_statistics: Sequence[TrainingStatistics]) -> None:
    """Updates the running statistics of all layers at once, as BN does it layer by layer."""
    training_statistics = [note for note in training_statistics if note.bns[0].track_running_stats]
    if not training_statistics:
        return
    bns = []
    unbiased = []  # for each BN, the factor that makes its variance unbiased
    for note in training_statistics:
        for bn in note.bns:
            bns.append(bn)
            unbiased.append(note.values / (note.values - 1))
    momentum = bns[0].momentum
    assert momentum is not None
    channels = [bn.num_features for bn in bns]
    means = torch.cat([note.mean for note in training_statistics]).split(channels)
    variances = (
        torch.cat([note.deviation for note in training_statistics]).pow_(-2).sub_(bns[0].eps)
    )
    variances_by_bn = variances.split(channels)
    torch._foreach_mul_(variances_by_bn, unbiased)
    torch._foreach_lerp_([bn.get_buffer("running_mean") for bn in bns], means, momentum)
    torch._foreach_lerp_([bn.get_buffer("running_var") for bn in bns], variances_by_bn, momentum)
    torch._foreach_add_([bn.get_buffer("num_batches_tracked") for bn in bns], 1)


class SequenceFunction(torch.autograd.Function):
    """A `BlockSequence` as one autograd function, which supports double differentiation."""

    @staticmethod
    def forward(
        ctx: Any,
        sequence: BlockSequence,
        x: torch.Tensor,
        bn_scales: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.sequence = sequence
        scale = sequence.channel_scales(bn_scales)
        trained = sequence.reach.trained
        kept: list[torch.Tensor] = []  # the tensors that the backward pass of each layer needs
        source = x
        for block in sequence.blocks:
            for convs in block.convs:
                weight = joined(convs.weights, dim=0)
                kept += [x, weight]
                x = convs.forward(x, weight)
                reported_macs.report_macs(x.numel() * weight[0].numel())
            is_last = block is sequence.blocks[-1]
            y, statistics = block.norms.forward(x, scale if is_last else None, trained)
            values = trained * x.shape[2] * x.shape[3]
            sequence.training_statistics.append(
                TrainingStatistics(block.norms.bns, values, *statistics[:2])
            )
            kept += [x, *statistics]
            x = y
            if not is_last:
                x.relu_()
                kept.append(x)
        ctx.save_for_backward(source, bn_scales, *weights, *kept)
        return x

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        sequence: BlockSequence = ctx.sequence
        weight_count = len(ctx.needs_input_grad) - 3
        source, bn_scales, *weights_and_kept = ctx.saved_tensors
        weights = weights_and_kept[:weight_count]
        kept = weights_and_kept[weight_count:]
        if torch.is_grad_enabled():
            return differentiable_gradients(ctx, source, bn_scales, weights, outer[0])
        return single_gradients(sequence, ctx.needs_input_grad, kept, bn_scales, outer[0])


def single_gradients(
    sequence: BlockSequence,
    wanted: Sequence[bool],
    kept: list[torch.Tensor],
    bn_scales: torch.Tensor | None,
    outer: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Computes gradients that are not differentiated again, from the last layer to the first.

    `wanted` and the result follow the arguments of `SequenceFunction.forward`. Each layer pops the
    tensors that it needs from the end of `kept`.
    """
    reach = sequence.reach
    samples = outer.shape[0]
    scale = sequence.channel_scales(bn_scales)
    scales_grad = None
    weight_grads: list[torch.Tensor | None] = []
    still_wanted = list(wanted[3:])  # whether the weights of layers yet to come need a gradient
    for number, block in reversed(list(enumerate(sequence.blocks))):
        is_last = number == len(sequence.blocks) - 1
        if not is_last:
            result = kept.pop()
            outer = torch.ops.aten.threshold_backward(outer, result[: outer.shape[0]], 0)
        parts = 2 if reach.trained < samples else 1
        statistics = kept[-2 * parts :]
        del kept[-2 * parts :]
        x = kept.pop()
        outer, channel_grads = block.norms.backward(
            outer, x, scale if is_last else None, statistics, reach
        )
        if channel_grads is not None:
            scales_grad = channel_grads.view(len(block.norms.bns), -1).sum(1)
        for convs in reversed(block.convs):
            weight = kept.pop()
            x = kept.pop()
            weights_wanted = still_wanted[-len(convs.weights) :]
            del still_wanted[-len(convs.weights) :]
            macs_per_sample = outer[0].numel() * weight[0].numel()
            if any(weights_wanted):
                joined_grad = convs.weight_grad(outer[: reach.trained], x[: reach.trained], weight)
                weight_grads = [*joined_grad.chunk(len(weights_wanted)), *weight_grads]
                reported_macs.report_macs(macs_per_sample * reach.trained)
            else:
                weight_grads = [*[None] * len(weights_wanted), *weight_grads]
            if not wanted[1] and not any(still_wanted):
                return None, None, scales_grad, *[None] * len(still_wanted), *weight_grads
            outer = convs.input_grad(outer, x[: outer.shape[0]], weight)
            reported_macs.report_macs(macs_per_sample * outer.shape[0])
    return None, with_zeros(outer, samples), scales_grad, *weight_grads


def differentiable_gradients(
    ctx: Any,
    x: torch.Tensor,
    bn_scales: torch.Tensor | None,
    weights: Sequence[torch.Tensor],
    outer: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Computes gradients that can be differentiated again."""
    y = ctx.sequence.differentiable(x, bn_scales, weights)
    wanted: list[torch.Tensor] = []
    for tensor, is_wanted in zip((x, bn_scales, *weights), ctx.needs_input_grad[1:], strict=True):
        if tensor is not None and is_wanted:
            wanted.append(tensor)
    wanted_grads = iter(torch.autograd.grad(y, wanted, outer, create_graph=True))
    gradients: list[torch.Tensor | None] = []
    for is_wanted in ctx.needs_input_grad[1:]:
        if is_wanted:
            gradients.append(next(wanted_grads))
        else:
            gradients.append(None)
    return None, *gradients


def joined(tensors: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Concatenates tensors; a single tensor is not copied."""
    if len(tensors) == 1:
        return tensors[0]
    return torch.cat(list(tensors), dim=dim)


def with_zeros(gradient: torch.Tensor, samples: int) -> torch.Tensor:
    """Appends zeros to a gradient, for the samples that it does not cover."""
    missing = samples - gradient.shape[0]
    if not missing:
        return gradient
    return functional.pad(gradient, (0, 0, 0, 0, 0, 0, 0, missing))

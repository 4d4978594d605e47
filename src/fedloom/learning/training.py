"""Local training by SGD, shared by the methods whose clients do just that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import cos, isfinite, pi
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import nn

from fedloom.cost.repeated import RepeatedSteps
from fedloom.data.augmenting.augment import augmenter, parse
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.loss import training_loss
from fedloom.learning.optimizers import Sgd, clip_gradients, remembered
from fedloom.nets.heads import HeadChoice
from fedloom.nets.model import Model
from fedloom.networks.building import build_model
from fedloom.options import Absent, Options
from fedloom.spaces.paths import training_scores
from fedloom.types import Task, Tensors

# Prefixes of optimiser state inside a client's state.
MOMENTUM = "momentum/"
ADAM = "adam/"

BnPolicy = Literal["averaged", "received", "frozen"]
RECEIVED: BnPolicy = "received"
BN_POLICIES = (
    "BN statistics in evaluation: averaged: mean of the clients' training statistics; received: "
    "mean of those that clients measure on the network they received; frozen: constants"
)

AfterBackward = Callable[[nn.Module], None]


class Epochs(Options):
    epochs: int = Field(1, ge=1, description="local epochs per round")


class StepOptions(Options):
    """Local training by SGD, however long it lasts."""

    batch: int = Field(32, ge=1, description="samples per step")
    lr: float = Field(0.05, gt=0, description="learning rate of the clients' SGD")
    schedule: Literal["cosine", "constant"] = Field(
        "cosine",
        description="how the learning rate changes over the stage",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the clients' SGD")
    weight_decay: float = Field(3e-4, ge=0, description="L2 decay of the weights")
    clip: float = Field(5.0, gt=0, description="largest norm of a gradient")
    bn: BnPolicy = Field("averaged", description=BN_POLICIES)
    augment: str = Field(
        "none",
        description="augmentation of training batches: crop:4+flip+cutout:16, randaugment:2:9, …",
    )

    # Whether clients can send the statistics of the network that they received.
    measures_received: ClassVar[bool] = False

    @field_validator("bn")
    @classmethod
    def _bn_is_possible(cls, bn: BnPolicy) -> BnPolicy:
        if bn == RECEIVED and not cls.measures_received:
            raise ValueError("averaged or frozen: this method does not average one whole network")
        return bn

    @field_validator("augment")
    @classmethod
    def _augmentation_exists(cls, text: str) -> str:
        parse(text)
        return text

    def rate(self, progress: float) -> float:
        """Returns the learning rate at this point of the budget."""
        if self.schedule == "constant":
            return self.lr
        return cosine(self.lr, progress)

    def batches(self, data: Samples, shuffle: torch.Generator) -> Iterator[Samples]:
        """Yields what a client trains on in one order. A subclass says how much that is."""
        raise NotImplementedError


class SgdOptions(StepOptions, Epochs):
    """Local training by SGD, in epochs."""

    def batches(self, data: Samples, shuffle: torch.Generator) -> Iterator[Samples]:
        for _ in range(self.epochs):
            yield from data.batches(self.batch, shuffle)


class IterationOptions(StepOptions):
    """Local training by SGD, in iterations."""

    lambda1: int = Field(5, ge=1, description="local iterations before each mean in a cluster")

    def batches(self, data: Samples, shuffle: torch.Generator) -> Iterator[Samples]:
        return repeated_batches(data, self.batch, self.lambda1, shuffle)

    def samples_seen(self, samples: int) -> int:
        """Returns how many samples a client that has `samples` trains on in λ₁ iterations.

        `batches` leaves out a last batch of one sample.
        """
        sizes = [self.batch] * (samples // self.batch)
        last = samples % self.batch
        if last > 1 or samples == 1:
            sizes.append(last)
        epochs, further_batches = divmod(self.lambda1, len(sizes))
        return epochs * sum(sizes) + sum(sizes[:further_batches])

    def work_of(self, samples: int) -> int:
        """Returns the work of λ₁ iterations in samples, with the pass that measures BN statistics.

        That pass, if there is one, has no gradients: it is a third of the work of training on the
        same samples.
        """
        seen = self.samples_seen(samples)
        if self.bn == RECEIVED:
            seen += samples // 3
        return seen


def repeated_batches(
    data: Samples,
    size: int,
    count: int,
    shuffle: torch.Generator,
) -> Iterator[Samples]:
    """Yields batches, epoch after epoch, until there were `count` of them."""
    seen = 0
    while seen < count and len(data):
        for batch in data.batches(size, shuffle):
            yield batch
            seen += 1
            if seen == count:
                return


def cosine(lr: float, done: float, of: float = 1.0) -> float:
    """Returns the rate that falls from `lr` to 0 along half a cosine as `done` goes to `of`."""
    return lr * 0.5 * (1 + cos(pi * done / of))


class NetworkOptions(Options):
    """A fixed network."""

    network: str | None = Field(
        None,
        description="a network's name, path/file.py:Name, cells:FILE (a genotype) or space:NAME "
        "(drawn by the seed); by default cnn, lstm for text, mlp for tables",
    )
    width: float = Field(1.0, gt=0, le=1000, description="width factor of the network's channels")
    head: Annotated[HeadChoice, Absent("old")] = Field(
        "auto",
        description="what the classifier sees of the network's last map: its mean, or a grid of "
        "2×2 means; auto: grid; old: as in runs from before this option (a grid for the cnn, "
        "else the mean)",
    )


class TrainingOptions(SgdOptions, NetworkOptions):
    """Options of every method that trains a fixed network by SGD."""


class Trained(NamedTuple):
    loss: float  # mean over the samples seen
    momentum: dict[str, torch.Tensor]  # by parameter name, for methods that keep it


def model(task: Task, options: NetworkOptions, weights: Tensors | None = None) -> Model:
    """Returns the options' network, with the given weights or with those that the seed draws."""
    return build_model(task, options.network, options.width, weights=weights, head=options.head)


def weights_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """Returns a copy of the weights, so the network may be trained further."""
    return {name: tensor.clone() for name, tensor in final_weights(net).items()}


def final_weights(net: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the network's own tensors, for a reply.

    The network must not be trained any further in this order.
    """
    return {name: tensor.detach().cpu() for name, tensor in net.state_dict().items()}


def train(
    net: nn.Module,
    data: Samples,
    options: StepOptions,
    lr: float,
    run: ClientRun,
    *,
    momentum: Mapping[str, torch.Tensor] | None = None,
    after_backward: AfterBackward | None = None,
    resting: Collection[nn.Module] = (),
) -> Trained:
    """Trains `net` by SGD, in place, for as many epochs or iterations as the options say.

    `resting` are parts of it that stay in evaluation mode.
    """
    if run.device != "cpu":  # every network is built on the CPU
        net.to(run.device)
    optimizer = sgd(net, options, lr, momentum)
    losses: list[torch.Tensor] = []  # of batches; they stay on the device until the end
    sizes: list[int] = []
    training_mode(net, options.bn)
    for part in resting:
        part.eval()
    steps = RepeatedSteps(net, optimizer.parameters, (options.bn, len(resting)))
    for batch in training_batches(data, options, run):
        optimizer.zero_grad()
        with steps.metered(batch.x.shape):
            loss = training_loss(training_scores(net, batch.x), batch)
            loss.backward()
        if after_backward is not None:
            after_backward(net)
        clip_gradients(optimizer.parameters.values(), options.clip)
        optimizer.step()
        losses.append(loss.detach())
        sizes.append(len(batch))
    optimizer.zero_grad()  # frees the gradients, which are as large as the weights
    loss_per_sample = converging(mean_loss(losses, sizes), net.state_dict())
    return Trained(loss_per_sample, remembered(optimizer))


def mean_loss(losses: Sequence[torch.Tensor], sizes: Sequence[int]) -> float:
    """Returns the mean over samples, from the mean losses of batches of these sizes."""
    if not losses:
        return 0.0
    total = 0.0
    for loss, size in zip(torch.stack(list(losses)).tolist(), sizes, strict=True):
        total += loss * size
    return total / sum(sizes)


def training_batches(data: Samples, options: StepOptions, run: ClientRun) -> Iterator[Samples]:
    """Yields as many shuffled and augmented batches as the options say, on the run's device.

    It is for training only. Shuffling and augmenting have separate random streams, so another
    augmentation does not change the batches.
    """
    augment = augmenter(options.augment, run.task.kind, run.task.mean, data.x)
    shuffle = run.rng("batches")
    amounts = run.rng("augment")
    for batch in options.batches(data.to(run.device), shuffle):
        yield Samples(augment(batch.x, amounts), batch.y)


def converging(loss: float, weights: Tensors) -> float:
    """Returns the loss, if training did not diverge. Else it raises FloatingPointError.

    Its message is the reason with which the client's reply is refused. No loss was computed after
    the last step, so the weights are checked too.
    """
    if not isfinite(loss) or not all_finite(weights):
        reason = "the loss or a weight is not finite: training diverged, try a smaller lr"
        raise FloatingPointError(reason)
    return loss


def all_finite(weights: Tensors) -> bool:
    """Whether all weights are finite. Numpy checks in one pass, for which torch needs several."""
    return all(np.isfinite(tensor.numpy(force=True)).all() for tensor in weights.values())


def least_samples(train_share: float) -> int:
    """Returns how many samples a client needs if it divides them into training and validation.

    Because of BN, both parts need two samples.
    """
    samples = 4
    while True:
        for_training = round(train_share * samples)
        if for_training >= 2 and samples - for_training >= 2:
            return samples
        samples += 1


@torch.no_grad()
def recalibrate(net: nn.Module, data: Samples, options: StepOptions, run: ClientRun) -> None:
    """Replaces the BN running statistics by those of `data` alone, in place.

    This is for weights that were trained in another network.
    """
    if options.bn == "frozen":
        return
    norms = batch_norms(net)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over the batches
    net.train()
    for batch in data.batches(options.batch, run.rng("recalibrate")):
        net(batch.x.to(run.device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def training_mode(net: nn.Module, bn: str) -> None:
    """Puts all of a network into training mode, but BN only if its statistics are not frozen."""
    net.train()
    if bn == "frozen":
        for norm in batch_norms(net):
            norm.eval()


def batch_norms(net: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [part for part in net.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def sgd(
    net: nn.Module,
    options: StepOptions,
    lr: float,
    momentum: Mapping[str, torch.Tensor] | None = None,
) -> Sgd:
    """Returns an SGD that continues with `momentum`, which is by parameter name."""
    return Sgd(
        dict(net.named_parameters()),
        lr,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        memory=momentum,
    )

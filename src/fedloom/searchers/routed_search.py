"""A client's training of a guided network: its weights by SGD, its guide by Adam.

A minibatch goes through the network on random routes. With anticipation (Eq. 5 of FedPNAS), it goes
twice, on routes that are drawn separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.loss import training_loss
from fedloom.learning.optimizers import Adam, Sgd, clip_gradients, forget_gradients
from fedloom.learning.training import SgdOptions, mean_loss, training_batches
from fedloom.nets.model import Model
from fedloom.searchers.anticipation import Anticipated, Hessian, anticipate
from fedloom.searchers.guides import DrawFor, Drawing, Guide, GuideFigures

BETAS = (0.5, 0.999)  # Adam's, as for FedNAS's α
IsPersonal = Callable[[str], bool]  # whether the tensor of this name is personal


def train_routed(
    model: Model,
    guide: Guide,
    data: Samples,
    training: RoutedTraining,
    is_personal: IsPersonal,
    run: ClientRun,
) -> Progress:
    """Trains model and guide in place. Tensors that require no gradient are not changed."""
    weights = trainable(dict(model.named_parameters()))
    guide_tensors: dict[str, torch.Tensor] = {}
    if training.trains_guide:
        guide_tensors = trainable(guide.named_tensors())
    w_optimizer = Sgd(
        weights,
        training.lr,
        momentum=training.steps.momentum,
        weight_decay=training.steps.weight_decay,
    )
    guide_optimizer = Adam(
        guide_tensors, training.guide_lr, betas=BETAS, weight_decay=training.guide_decay
    )
    everything = {**weights, **guide_tensors}
    progress = Progress()
    generator = run.rng("ways")
    for batch in training_batches(data, training.steps, run):
        forget_gradients(everything)

        def loss_now(batch: Samples = batch) -> torch.Tensor:
            return loss_of(model, guide, batch, training, generator, progress)

        set_gradients(loss_now, everything, training, is_personal, progress)
        progress.losses.append(progress.last_loss)
        progress.sizes.append(len(batch))
        clip_gradients(everything.values(), training.steps.clip)
        w_optimizer.step()
        guide_optimizer.step()
    forget_gradients(everything)
    return progress


@dataclass(frozen=True)
class Inner:
    """The step that is anticipated."""

    lr: float
    hessian: Hessian


@dataclass(frozen=True)
class RoutedTraining:
    """The settings of training a guided network."""

    steps: SgdOptions  # batches, momentum, weight decay and clipping
    lr: float
    guide_lr: float
    guide_decay: float
    tau: float
    draw: DrawFor
    balance: float = 0.0
    trains_guide: bool = True
    inner: Inner | None = None  # None: plain gradients


@dataclass
class Progress:
    """The figures of a client's training."""

    losses: list[torch.Tensor] = field(default_factory=list)  # without the balance of samplers
    last_loss: torch.Tensor = field(default_factory=lambda: torch.zeros(()))  # of the last pass
    sizes: list[int] = field(default_factory=list)
    watched: GuideFigures = field(default_factory=GuideFigures)
    bend: float = 0.0  # the largest η₁‖g‖²
    aligned: list[float] = field(default_factory=list)

    @property
    def loss(self) -> float:
        return mean_loss(self.losses, self.sizes)

    @property
    def align(self) -> float | None:
        """The mean cosine of g and g̃."""
        if not self.aligned:
            return None
        return sum(self.aligned) / len(self.aligned)

    def note(self, anticipated: Anticipated) -> None:
        self.bend = max(self.bend, anticipated.bend)
        if anticipated.align is not None:
            self.aligned.append(anticipated.align)


def set_gradients(
    loss_now: Callable[[], torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    training: RoutedTraining,
    is_personal: IsPersonal,
    progress: Progress,
) -> None:
    """Computes the gradients and stores them in `.grad`."""
    if training.inner is None:
        loss_now().backward()
        return
    base = {}
    personal = {}
    for name, tensor in parameters.items():
        if is_personal(name):
            personal[name] = tensor
        else:
            base[name] = tensor
    anticipated = anticipate(loss_now, base, personal, training.inner.lr, training.inner.hessian)
    progress.note(anticipated)


def loss_of(
    model: Model,
    guide: Guide,
    batch: Samples,
    training: RoutedTraining,
    generator: torch.Generator,
    progress: Progress,
) -> torch.Tensor:
    """Returns the loss of a minibatch whose samples take random routes."""
    drawing = Drawing(guide, training.tau, training.draw, generator, progress.watched)
    loss = training_loss(model(batch.x, drawing), batch)
    progress.last_loss = loss.detach()
    if not training.balance:
        return loss
    return loss - training.balance * information(drawing.log_pi)


def information(log_pi: list[torch.Tensor]) -> torch.Tensor:
    """Returns the mutual information of samples and operations, in nats, as a mean over edges.

    It is the entropy of the operations of the whole minibatch minus the mean entropy per sample. It
    is 0 if all samples take one route, and if the logits prefer no operation for any sample. It is
    largest if every sample is sure of its operation and all operations are used.
    """
    amounts = []
    for rows in log_pi:
        mean = rows.exp().mean(dim=0)
        batch_entropy = -(mean * mean.clamp_min(1e-12).log()).sum(dim=-1)
        sample_entropy = -(rows.exp() * rows).sum(dim=-1).mean(dim=0)
        amounts.append(batch_entropy - sample_entropy)
    return torch.cat(amounts).mean()


def trainable(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the parameters that are not fixed."""
    trained = {}
    for name, tensor in parameters.items():
        if tensor.requires_grad:
            trained[name] = tensor
    return trained

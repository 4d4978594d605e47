"""A client's training of a guided network: weights by SGD, what guides by Adam.

A minibatch goes through the network on drawn ways. With anticipation (Eq. 5 of FedPNAS) it goes
twice, on ways that are drawn anew.
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
from fedloom.searchers.guides import DrawFor, Drawing, Guide, Watched

BETAS = (0.5, 0.999)  # of Adam, as for FedNAS's α
IsPersonal = Callable[[str], bool]  # of a tensor, by its name


@dataclass(frozen=True)
class Inner:
    """The step that is anticipated."""

    lr: float
    hessian: Hessian


@dataclass(frozen=True)
class RoutedTraining:
    """How a guided network is trained."""

    steps: SgdOptions  # batches, momentum, decay and clip
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
    """What a client may tell of its training."""

    losses: list[torch.Tensor] = field(default_factory=list)  # without what samplers are told
    last_loss: torch.Tensor = field(default_factory=lambda: torch.zeros(()))  # of the last pass
    sizes: list[int] = field(default_factory=list)
    watched: Watched = field(default_factory=Watched)
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


def train_routed(
    model: Model,
    guide: Guide,
    data: Samples,
    how: RoutedTraining,
    is_personal: IsPersonal,
    run: ClientRun,
) -> Progress:
    """In place. What does not require a gradient stays as it is."""
    weights = trainable(dict(model.named_parameters()))
    guiding: dict[str, torch.Tensor] = {}
    if how.trains_guide:
        guiding = trainable(guide.named_tensors())
    w_optimizer = Sgd(
        weights, how.lr, momentum=how.steps.momentum, weight_decay=how.steps.weight_decay
    )
    guide_optimizer = Adam(guiding, how.guide_lr, betas=BETAS, weight_decay=how.guide_decay)
    everything = {**weights, **guiding}
    progress = Progress()
    generator = run.rng("ways")
    for batch in training_batches(data, how.steps, run):
        forget_gradients(everything)

        def loss_now(batch: Samples = batch) -> torch.Tensor:
            return loss_of(model, guide, batch, how, generator, progress)

        set_gradients(loss_now, everything, how, is_personal, progress)
        progress.losses.append(progress.last_loss)
        progress.sizes.append(len(batch))
        clip_gradients(everything.values(), how.steps.clip)
        w_optimizer.step()
        guide_optimizer.step()
    forget_gradients(everything)
    return progress


def set_gradients(
    loss_now: Callable[[], torch.Tensor],
    parameters: Mapping[str, torch.Tensor],
    how: RoutedTraining,
    is_personal: IsPersonal,
    progress: Progress,
) -> None:
    """Leaves them in `.grad`."""
    if how.inner is None:
        loss_now().backward()
        return
    base = {name: tensor for name, tensor in parameters.items() if not is_personal(name)}
    personal = {name: tensor for name, tensor in parameters.items() if is_personal(name)}
    anticipated = anticipate(loss_now, base, personal, how.inner.lr, how.inner.hessian)
    progress.note(anticipated)


def loss_of(
    model: Model,
    guide: Guide,
    batch: Samples,
    how: RoutedTraining,
    generator: torch.Generator,
    progress: Progress,
) -> torch.Tensor:
    """Of a minibatch whose samples take drawn ways."""
    drawing = Drawing(guide, how.tau, how.draw, generator, progress.watched)
    loss = training_loss(model(batch.x, drawing), batch)
    progress.last_loss = loss.detach()
    if not how.balance:
        return loss
    return loss - how.balance * information(drawing.log_pi)


def information(log_pi: list[torch.Tensor]) -> torch.Tensor:
    """How much a sample tells of its way, in nats, mean over edges.

    The entropy of the operations that a minibatch takes all together, without that of a single
    sample's. It is 0 where all samples take one way, and where nothing is chosen for any of them;
    it is largest where every sample is sure of its operation and all operations are taken.
    """
    amounts = []
    for rows in log_pi:
        mean = rows.exp().mean(dim=0)
        together = -(mean * mean.clamp_min(1e-12).log()).sum(dim=-1)
        each = -(rows.exp() * rows).sum(dim=-1).mean(dim=0)
        amounts.append(together - each)
    return torch.cat(amounts).mean()


def trainable(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}

"""Supernets as methods use them: built from options, weighted by α, cut to an architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from fedloom.nets import reuse
from fedloom.nets.heads import Head
from fedloom.nets.model import Model, check_kind, constants, laid_out, seeded
from fedloom.rng import key, torch_rng
from fedloom.spaces import SPACES, chosen_space, space_for
from fedloom.spaces.asking import shown
from fedloom.spaces.choice import Mixture
from fedloom.spaces.options import SpaceChoice, SpaceOptions
from fedloom.spaces.paths import training_scores
from fedloom.spaces.space import OpId, Size, Slot, Space
from fedloom.spaces.supernet import BothScores, Supernet
from fedloom.types import ALPHA, Arch, Json, Task, Tensors

SPREAD = 1e-3  # the standard deviation of the initial α


def supernet_model(
    task: Task,
    options: SpaceOptions,
    *,
    arch: Arch | None = None,
    weights: Tensors | None = None,
    affine: bool = False,
) -> Model:
    """Returns the supernet, or the part of it that `arch` names.

    Its weights are those that are given, or else initialised from the seed.
    """
    return model_of_space(
        task,
        space_for(options),
        options.size,
        arch=arch,
        weights=weights,
        affine=affine,
    )


def model_of_space(
    task: Task,
    space: Space,
    size: Size,
    *,
    arch: Arch | None = None,
    weights: Tensors | None = None,
    affine: bool = False,
) -> Model:
    """Returns a space's network with its input normalisation.

    Its weights are those that are given, or else initialised from the seed.
    """
    classes = len(task.labels)
    reuse_key = None
    if space.refillable:
        reuse_key = ("space", space.name, size, arch, affine, task.kind, task.shape, classes)

    def build() -> Model:
        with seeded(key(task.seed, "init")):
            net = space.network(task.shape, classes, size, arch=arch, affine=affine)
        model = Model(laid_out(net, task.kind), task.mean, task.std)
        if space.family in SPACES.builtin:
            model.same_cost = reuse_key
        return model

    name = f"the search space {shown(space.family)}"
    check_kind(name, task.kind, space.kinds, "use a method that trains a fixed network")
    model = reuse.network(reuse_key, build, weights, constants(task.mean, task.std))
    assert isinstance(model, Model)
    return model


def plain(model: Model) -> Model:
    """Replaces the supernet in a model by plain torch modules, without a choice left in it."""
    assert isinstance(model.net, Supernet)
    model.net = model.net.cut(model.net.arch)
    return model


def fresh_alpha(options: SpaceChoice, seed: int) -> dict[str, torch.Tensor]:
    """Draws the initial α of every slot from the seed."""
    generator = torch_rng(seed, "alpha")
    alpha = {}
    for number, slot in enumerate(chosen_space(options).slots):
        row = torch.randn(len(slot.options), generator=generator)
        alpha[alpha_key(number, slot)] = SPREAD * row
    return alpha


def alpha_key(number: int, slot: Slot) -> str:
    """Returns a name such as `alpha/003.normal.1-3`. Names sort in the order of the slots."""
    return f"{ALPHA}{number:03d}.{slot.name}"


def alpha_in(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns α by name, in the order of the slots."""
    alpha = {}
    for name in sorted(tensors):
        if name.startswith(ALPHA):
            alpha[name.removeprefix(ALPHA)] = tensors[name]
    return alpha


def live_alpha(alpha: Mapping[str, torch.Tensor], arch: Arch) -> dict[str, torch.Tensor]:
    """Returns, for every slot, the entries of α of the operations in `arch`, in that order."""
    entries = {}
    for (name, row), live in zip(alpha.items(), arch.choice, strict=True):
        entries[name] = row[list(live)]
    return entries


class Mixed(nn.Module):
    """A supernet in which every edge is the mixture of its operations by α."""

    def __init__(self, model: Model, alpha: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.alpha = dict(alpha)

    @classmethod
    def of(cls, task: Task, options: SpaceOptions, tensors: Tensors) -> Mixed:
        return cls(supernet_model(task, options, weights=tensors), alpha_in(tensors))

    def mixture(self, alpha: Sequence[torch.Tensor]) -> Mixture:
        return Mixture.softmax(alpha)

    def mix(self, x: torch.Tensor, alpha: Sequence[torch.Tensor]) -> torch.Tensor:
        scores: torch.Tensor = self.model(x, self.mixture(alpha))
        return scores

    def mix_to_train(self, x: torch.Tensor, alpha: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the scores for a training loss: for text, those of every position."""
        return training_scores(self.model, x, self.mixture(alpha))

    def mix_both_to_train(
        self, train: torch.Tensor, validation: torch.Tensor, alpha: Sequence[torch.Tensor]
    ) -> BothScores | None:
        """Returns the scores of two batches in one pass, or None: see `Supernet.forward_both`."""
        net = self.model.net
        if not isinstance(net, Supernet):
            return None
        batches = (self.model.normalised(train), self.model.normalised(validation))
        return net.forward_both(*batches, self.mixture(alpha))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x, [row.to(x.device) for row in self.alpha.values()])

    def owner(self, name: str) -> OpId | None:
        assert isinstance(self.model.net, Supernet)
        return self.model.net.owner(name.removeprefix("model.").removeprefix("net."))

    @property
    def head(self) -> Head | None:
        return self.model.head

    @property
    def architecture(self) -> Json:
        """The architecture that the current α would derive."""
        assert isinstance(self.model.net, Supernet)
        mixture = self.mixture(list(self.alpha.values()))
        strength = [row.numpy() for row in mixture.weights]
        return self.model.net.space.derive(strength).to_plain()


class MixedPart(Mixed):
    """A part of a supernet with several operations per slot, and α of these operations only."""

    def mixture(self, alpha: Sequence[torch.Tensor]) -> Mixture:
        net = self.model.net
        assert isinstance(net, Supernet)
        return Mixture.softmax_of_live(alpha, net.arch, net.space.slots)

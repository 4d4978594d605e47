"""What the stages of FedPNAS and its variants share: the two stacks, and the guide of a path.

A guide chooses the operations: it is either Π or samplers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method
from fedloom.methods.fedpnas_options import Anticipating, ContextOptions, VariantOptions
from fedloom.nets.model import Model, seeded
from fedloom.records.result import SupernetFacts
from fedloom.records.sections import Sections
from fedloom.rng import key, rng
from fedloom.searchers.guides import HIDDEN, ContextGuide, Draws, Guide, Guided, PathGuide
from fedloom.searchers.routed_search import Inner, RoutedTraining
from fedloom.searchers.routes_taken import one_path, routes_taken, sampler_units
from fedloom.spaces.choice import Place
from fedloom.spaces.mixed import alpha_key, model_of_space
from fedloom.types import Arch, Json, Order, State, Task, Tensors

SAMPLER = "sampler."
GUIDE = "guide.samplers."  # the same prefix in a guided network
PERSONAL = ("net.personal.", "net.classifier.", "sampler.personal-")
# The spread of random logits. Those of samplers are bounded, so some operations stay about equal.
WIDE = 4.0


def is_personal(name: str) -> bool:
    """Whether a tensor is of θ_p: personal cells, their part of the guide, or the classifier."""
    return name.startswith(PERSONAL) or (name.startswith("alpha/") and ".personal." in name)


@dataclass(frozen=True)
class RoutedStage(Method):
    """A stage whose network consists of the two stacks and their guide."""

    options: VariantOptions
    task: Task

    @property
    def has_context(self) -> bool:
        return isinstance(self.options, ContextOptions)

    # Its networks

    def model(self, tensors: Tensors | None = None, arch: Arch | None = None) -> Model:
        """Returns the supernet, or the path that `arch` names."""
        return model_of_space(
            self.task,
            self.options.stack_space,
            self.options.size,
            arch=arch,
            weights=tensors,
            affine=True,
        )

    def guide(self, tensors: Tensors | None = None) -> Guide:
        """Returns Π or samplers, with these tensors or with those that the seed draws."""
        space = self.options.stack_space
        if not isinstance(self.options, ContextOptions):
            rows = {}
            for name, row in (tensors or self._first_rows()).items():
                if name.startswith("alpha/"):
                    rows[name] = row.clone()
            return PathGuide(space, rows)
        places = self.places()
        classes = len(self.task.labels)
        units = sampler_units(space, places, self.task.shape, classes, self.options.size)
        with seeded(key(self.task.seed, "samplers")):
            guide = ContextGuide(
                space,
                self.options.channels,
                self.task.shape,
                places,
                self.options.logit_bound,
                units=units,
                average=self.options.context == "batch",
            )
        if tensors is None:
            self._widen(guide)
        else:
            with torch.no_grad():
                for name, parameter in guide.named_tensors().items():
                    parameter.copy_(tensors[name])
        return guide

    def _first_rows(self) -> dict[str, torch.Tensor]:
        """Returns zeros, which make all operations equally likely; for the control, random rows."""
        rows = {}
        draws = rng(self.task.seed, "by chance")
        for number, slot in enumerate(self.options.stack_space.slots):
            row = torch.zeros(len(slot.options))
            if self.options.search == "random":
                row = torch.tensor(WIDE * draws.standard_normal(len(slot.options))).float()
            rows[alpha_key(number, slot)] = row
        return rows

    def _widen(self, guide: ContextGuide) -> None:
        """Scales the control's samplers, which are never trained, so that their logits differ.

        Samplers with fewer units have larger initial weights, so the same factor makes the logits
        of all samplers as wide.
        """
        if self.options.search != "random":
            return
        with torch.no_grad():
            for name, parameter in guide.named_tensors().items():
                if name.endswith("output.weight"):
                    parameter.mul_(WIDE * HIDDEN**0.5)

    def places(self) -> list[Place]:
        cells = self.options.stack_space.slots_by_cell()
        return [Place(number, slots) for number, slots in enumerate(cells)]

    def likely_path(self, tensors: Tensors) -> Arch:
        guide = self.guide(tensors)
        strength = [row.numpy() for row in guide.named_tensors().values()]
        return self.options.stack_space.derive(strength)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        """Returns what a client deploys: the likeliest path, or with context the guided network."""
        tensors = with_personal_part(order.tensors, own)
        if not self.has_context and not self.options.draws:
            return self.model(tensors, self.likely_path(tensors))
        draws = None
        if self.options.draws:
            draws = Draws(self.options.draws, self.options.tau_end, self.task.seed)
        return Guided(self.model(tensors), self.guide(tensors), draws, self.options.tau_end)

    def routes(self, net: nn.Module, part: Samples, task: Task) -> dict[str, Json] | None:
        if isinstance(net, Guided):
            return routes_taken(net, part, task.labels)
        assert isinstance(net, Model)  # it is the cut path
        arch = Arch.from_plain(net.architecture)
        return one_path(arch, self.options.size, part, task.labels, self.options.stack_space)

    def sections(self, state: State) -> Sections:
        space = self.options.stack_space
        cost = space.cost(
            self.task.shape, len(self.task.labels), space.full(), self.options.size, affine=True
        )
        sampler_params = 0
        for name, tensor in state.tensors.items():
            if name.startswith(SAMPLER):
                sampler_params += tensor.numel()
        return Sections(
            supernet=SupernetFacts(
                space=space.name,
                edges=len(space.slots),
                params=cost.params,
                sampler_params=sampler_params,
            )
        )

    def personal_names(self, net: nn.Module) -> frozenset[str]:
        return frozenset(key for key in net.state_dict() if is_personal(state_name(key)))

    def frozen_names(self, net: nn.Module) -> frozenset[str]:
        """Returns a guided network's samplers: adapting trains only the operations (Table 2)."""
        return frozenset(key for key in net.state_dict() if key.startswith(GUIDE))

    # How it trains

    def training(self, tau: float, lr: float, share: float = 1.0) -> RoutedTraining:
        """Returns how a client trains. All learning rates are multiplied by `share`."""
        options = self.options
        balance = 0.0
        if isinstance(options, ContextOptions):
            balance = options.balance
        inner = None
        if isinstance(options, Anticipating):
            inner = Inner(options.inner_lr, options.hessian)
        return RoutedTraining(
            steps=options,
            lr=share * lr,
            guide_lr=share * options.alpha_lr,
            guide_decay=options.alpha_weight_decay,
            tau=tau,
            draw=options.draw,
            balance=balance,
            trains_guide=options.search == "gradient",
            inner=inner,
        )


def state_name(key: str) -> str:
    """Returns the name in a state of a tensor of a deployed network, guided or not."""
    if key.startswith(GUIDE):
        return SAMPLER + key.removeprefix(GUIDE)
    return key.removeprefix("model.")


def with_personal_part(received: Tensors, own: State | None) -> Tensors:
    """Returns the received tensors, in which a client's own ones replace the personal ones."""
    if own is None:
        return received
    return {**received, **own.tensors}


def guide_tensors(guide: Guide) -> dict[str, torch.Tensor]:
    return {name: row.detach().cpu().clone() for name, row in guide.named_tensors().items()}

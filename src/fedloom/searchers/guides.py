"""Guides choose the route of every sample through a network of edges.

A guide has logits for every edge and operation. They are the same for all samples (Π, `PathGuide`),
or come from a small network that sees a cell's input and the sample itself (φ of FedPNAS §3.4,
`ContextGuide`). In training, an operation is sampled from them (searchers/gumbel.py); in
evaluation, the most likely operation is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets.model import Model
from fedloom.rng import torch_rng
from fedloom.searchers.gumbel import gumbel_noise, straight_through
from fedloom.spaces.choice import Place, Routes
from fedloom.spaces.mixed import alpha_in
from fedloom.spaces.space import Space
from fedloom.types import Arch

HIDDEN = 32  # the most hidden units of a sampler
GRID = 7  # a sampler sees a sample as a grid of means, with about this many along each side
DrawFor = Literal["sample", "batch"]


class Guide(nn.Module):
    """The base class of guides. Subclasses compute the logits."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space = space
        self.average = False  # whether logits are averaged over a minibatch in training

    def logits(self, place: Place, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns [batch, edges, options], or [1, edges, options] if all samples have the same."""
        raise NotImplementedError

    def named_tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the guide learns, by their names in a state."""
        raise NotImplementedError

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        """Returns the most likely operations."""
        likely = self.logits(place, inputs).argmax(dim=-1)
        return self.as_routes(place, inputs, likely, None)

    def as_routes(
        self,
        place: Place,
        inputs: Sequence[torch.Tensor],
        ops: torch.Tensor,
        factors: torch.Tensor | None,
    ) -> Routes:
        """Returns routes; a single row for the whole batch is repeated for each sample."""
        batch = len(inputs[0])
        ops = ops.expand(batch, -1)
        if factors is not None:
            factors = factors.expand(batch, -1)
        options = [len(self.space.slots[slot].options) for slot in place.slots]
        return Routes(ops, factors, options)

    def free_options(self, place: Place) -> torch.Tensor:
        """Returns [options]: 1 for options without a convolution, 0 for all others."""
        names = self.space.slots[place.slots.start].options
        light = [name in self.space.light_options for name in names]
        return torch.tensor(light, dtype=torch.float64)


class PathGuide(Guide):
    """Π: one row of logits for every edge, the same for all samples."""

    def __init__(self, space: Space, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(space)
        self.rows = alpha_in(tensors)

    def logits(self, place: Place, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        rows = list(self.rows.values())[place.slots.start : place.slots.stop]
        return torch.stack([row.to(inputs[0].device) for row in rows]).unsqueeze(0)

    def named_tensors(self) -> dict[str, torch.Tensor]:
        return {f"alpha/{name}": row for name, row in self.rows.items()}


class Sampler(nn.Module):
    """φ_t(v, x), a small network that computes the logits of one cell.

    It sees the cell's input v as its mean over the map, and the sample x as a coarse grid of means.
    Its logits are bounded, so that every operation keeps some probability.
    """

    left_out: torch.Tensor | None

    def __init__(
        self,
        channels: int,
        shape: tuple[int, ...],
        edges: int,
        options: int,
        bound: float,
        units: int,
    ) -> None:
        super().__init__()
        self.step = max(1, min(shape[1:]) // GRID)
        grid_values = shape[0] * (shape[1] // self.step) * (shape[2] // self.step)
        self.hidden = nn.Linear(channels + grid_values, units)
        self.output = nn.Linear(units, edges * options)
        self.edges = edges
        self.options = options
        self.bound = bound
        # [edges, options], added to the logits: −∞ if an operation does not exist, otherwise 0.
        # None: all operations exist.
        self.register_buffer("left_out", None, persistent=False)

    def forward(self, v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        coarse = functional.avg_pool2d(x, self.step).flatten(1)
        context = torch.cat([v.mean((2, 3)), coarse], dim=1)
        raw = self.output(functional.relu(self.hidden(context)))
        logits = self.bound * torch.tanh(raw / self.bound)
        logits = logits.view(-1, self.edges, self.options)
        if self.left_out is None:
            return logits
        return logits + self.left_out


class ContextGuide(Guide):
    """One sampler per cell.

    With `average`, their logits are averaged over the minibatch in training. In evaluation, every
    sample has its own: its answer does not depend on the other samples of the batch.
    """

    def __init__(
        self,
        space: Space,
        channels: int,
        shape: tuple[int, ...],
        places: Sequence[Place],
        bound: float,
        *,
        units: int = HIDDEN,
        average: bool = False,
    ) -> None:
        super().__init__(space)
        self.average = average
        self.places = tuple(places)
        self.samplers = nn.ModuleDict()
        for place in places:
            options = len(space.slots[place.slots.start].options)
            sampler = Sampler(channels, shape, len(place.slots), options, bound, units)
            self.samplers[sampler_name(space, place)] = sampler

    def logits(self, place: Place, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        sampler = self.samplers[sampler_name(self.space, place)]
        logits: torch.Tensor = sampler(*inputs)
        return logits

    def leave_out_all_but(self, arch: Arch) -> None:
        """Makes the guide never take an operation that is not in `arch`."""
        for place in self.places:
            sampler = self.samplers[sampler_name(self.space, place)]
            assert isinstance(sampler, Sampler)
            left_out = torch.full((sampler.edges, sampler.options), -torch.inf)
            for edge, slot in enumerate(place.slots):
                left_out[edge, list(arch.choice[slot])] = 0.0
            sampler.left_out = left_out.to(sampler.output.weight.device)

    def named_tensors(self) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.samplers.named_parameters():
            tensors[f"sampler.{name}"] = parameter
        return tensors


def sampler_name(space: Space, place: Place) -> str:
    """Returns the name of a cell's sampler, such as `base-0`."""
    stack, number, _ = space.slots[place.slots.start].name.split(".")
    return f"{stack}-{number}"


@dataclass
class GuideFigures:
    """Sums of figures of a guide's logits, for a client's reply."""

    entropy: float = 0.0  # in nats
    free: float = 0.0  # the number of edges whose most likely operation has no convolution
    edges: int = 0  # the number of edges, times samples

    def add(self, log_pi: torch.Tensor, free: torch.Tensor) -> None:
        """`log_pi` is [batch or 1, edges, options]; `free` [options] is 1 without a convolution."""
        likely = log_pi.argmax(dim=-1)
        self.entropy += float(-(log_pi.exp() * log_pi).sum())
        self.free += float(free[likely].sum())
        self.edges += likely.numel()

    @property
    def mean_entropy(self) -> float:
        return self.entropy / max(1, self.edges)

    @property
    def share_free(self) -> float:
        return self.free / max(1, self.edges)


@dataclass
class Drawing:
    """A guide in training: it samples operations, for every sample or for the minibatch."""

    guide: Guide
    tau: float
    draw: DrawFor
    generator: torch.Generator
    watched: GuideFigures = field(default_factory=GuideFigures)
    # log π of every place in this pass, for a term of the loss.
    log_pi: list[torch.Tensor] = field(default_factory=list)

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        logits = self.guide.logits(place, inputs)
        if self.guide.average and self.guide.training:
            logits = logits.mean(dim=0, keepdim=True)
        log_pi = torch.log_softmax(logits, dim=-1)
        self.watched.add(log_pi.detach().cpu(), self.guide.free_options(place))
        self.log_pi.append(log_pi)
        rows = 1
        if self.draw == "sample":
            rows = len(inputs[0])
        noise = gumbel_noise((rows, *log_pi.shape[1:]), self.generator).to(log_pi.device)
        drawn = straight_through(log_pi, noise, self.tau)
        return self.guide.as_routes(place, inputs, drawn.ops, drawn.factors)


@dataclass(frozen=True)
class Draws:
    """How many random answers are averaged in evaluation, and the seed that they are drawn from."""

    count: int
    tau: float
    seed: int


class Guided(nn.Module):
    """A network and its guide: every sample takes its most likely route, or several random ones.

    With `tau`, a route is drawn for every sample in training mode, so that all operations are
    trained. It is drawn from torch's global generator, which is seeded for every order. If `tau` is
    None, the most likely route is trained.
    """

    def __init__(
        self, model: Model, guide: Guide, draws: Draws | None = None, tau: float | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.guide = guide
        self.draws = draws
        self.tau = tau

    @property
    def architecture(self) -> str:
        """There is no single architecture: every sample may take another route."""
        return f"per-sample paths in {self.guide.space.name}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor
        if self.training and self.tau is not None:
            drawing = Drawing(self.guide, self.tau, "sample", torch.default_generator)
            scores = self.model(x, drawing)
        elif self.draws is not None:
            scores = self._mean_of(self.draws, x)
        else:
            scores = self.model(x, self.guide)
        return scores

    def _mean_of(self, draws: Draws, x: torch.Tensor) -> torch.Tensor:
        """Returns the logarithm of the mean probabilities over several random answers.

        All samples get the same noise, so that an answer does not depend on the other samples of
        the batch. Each sample has its own logits.
        """
        generator = torch_rng(draws.seed, "evaluation")
        answers = []
        for _ in range(draws.count):
            drawing = Drawing(self.guide, draws.tau, "batch", generator)
            answers.append(torch.softmax(self.model(x, drawing), dim=1))
        return torch.stack(answers).mean(dim=0).log()

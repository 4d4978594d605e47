"""What tells every sample its way through a network of edges.

A guide has logits for every edge and operation: the same for all samples (Π, `PathGuide`), or from
a small network that looks at a cell's input and at the sample itself (φ of FedPNAS §3.4,
`ContextGuide`). In training an operation is drawn from them (searchers/gumbel.py); in evaluation
the most likely one is taken.
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

HIDDEN = 32  # units of a sampler, at most
GRID = 7  # a sample is seen as about so many means along each side
DrawFor = Literal["sample", "batch"]


@dataclass
class Watched:
    """Sums over what a guide said, for a client's reply."""

    entropy: float = 0.0  # in nats
    free: float = 0.0  # edges whose most likely operation has no convolution
    edges: int = 0  # edges, times samples

    def add(self, log_pi: torch.Tensor, free: torch.Tensor) -> None:
        """`log_pi` [batch or 1, edges, options]; `free` [options]: which have no convolution."""
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


class Guide(nn.Module):
    """A subclass says the logits."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space = space
        self.average = False  # over a minibatch, in training

    def logits(self, place: Place, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """[batch, edges, options], or [1, edges, options]: the same for all samples."""
        raise NotImplementedError

    def named_tensors(self) -> dict[str, torch.Tensor]:
        """What it learns, by the names that a state has."""
        raise NotImplementedError

    def routes(self, place: Place, inputs: Sequence[torch.Tensor]) -> Routes:
        """The most likely operations."""
        likely = self.logits(place, inputs).argmax(dim=-1)
        return self.as_routes(place, inputs, likely, None)

    def as_routes(
        self,
        place: Place,
        inputs: Sequence[torch.Tensor],
        ops: torch.Tensor,
        factors: torch.Tensor | None,
    ) -> Routes:
        """One row for the whole batch becomes one for each sample."""
        batch = len(inputs[0])
        ops = ops.expand(batch, -1)
        if factors is not None:
            factors = factors.expand(batch, -1)
        options = [len(self.space.slots[slot].options) for slot in place.slots]
        return Routes(ops, factors, options)

    def free_options(self, place: Place) -> torch.Tensor:
        names = self.space.slots[place.slots.start].options
        light = [name in self.space.light_options for name in names]
        return torch.tensor(light, dtype=torch.float64)


class PathGuide(Guide):
    """Π: one row of logits for every edge."""

    def __init__(self, space: Space, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(space)
        self.rows = alpha_in(tensors)

    def logits(self, place: Place, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        rows = list(self.rows.values())[place.slots.start : place.slots.stop]
        return torch.stack([row.to(inputs[0].device) for row in rows]).unsqueeze(0)

    def named_tensors(self) -> dict[str, torch.Tensor]:
        return {f"alpha/{name}": row for name, row in self.rows.items()}


class Sampler(nn.Module):
    """φ_t(v, x): a cell's input as its mean over the map, the sample as a coarse grid of means.

    Its logits are bounded, so that no operation is ever out of reach.
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
        seen = shape[0] * (shape[1] // self.step) * (shape[2] // self.step)
        self.hidden = nn.Linear(channels + seen, units)
        self.output = nn.Linear(units, edges * options)
        self.edges = edges
        self.options = options
        self.bound = bound
        # [edges, options], added to the logits: −∞ where an operation does not exist, 0 elsewhere.
        # None: all of them exist.
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
    """Samplers, one a cell.

    `average`: in training their logits are averaged over the minibatch. In evaluation every sample
    has its own: an answer does not depend on who else is in the batch.
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
        """From now on an operation that `arch` does not name is never taken."""
        for place in self.places:
            sampler = self.samplers[sampler_name(self.space, place)]
            assert isinstance(sampler, Sampler)
            left_out = torch.full((sampler.edges, sampler.options), -torch.inf)
            for edge, slot in enumerate(place.slots):
                left_out[edge, list(arch.choice[slot])] = 0.0
            sampler.left_out = left_out.to(sampler.output.weight.device)

    def named_tensors(self) -> dict[str, torch.Tensor]:
        return {
            f"sampler.{name}": parameter for name, parameter in self.samplers.named_parameters()
        }


def sampler_name(space: Space, place: Place) -> str:
    """`base-0`: of the cell that its slots belong to."""
    stack, number, _ = space.slots[place.slots.start].name.split(".")
    return f"{stack}-{number}"


@dataclass
class Drawing:
    """A guide in training: operations are drawn, for every sample or for the minibatch."""

    guide: Guide
    tau: float
    draw: DrawFor
    generator: torch.Generator
    watched: Watched = field(default_factory=Watched)
    # Of every place: log π of this pass, for what a loss says of them.
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
    """Drawn answers of which the mean is taken, named by a seed."""

    count: int
    tau: float
    seed: int


class Guided(nn.Module):
    """A network and its guide: every sample takes its most likely way, or several drawn ones.

    `tau`: in training mode a way is drawn for every sample, so that all operations are trained, by
    torch's global generator, which is seeded for every order. None: the most likely one is trained.
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
        """It is no single one: every sample may take another."""
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
        """The logarithm of the mean of the answers' probabilities.

        All samples meet the same noise, so that an answer does not depend on who else is in the
        batch. Their logits are their own.
        """
        generator = torch_rng(draws.seed, "evaluation")
        answers = []
        for _ in range(draws.count):
            drawing = Drawing(self.guide, draws.tau, "batch", generator)
            answers.append(torch.softmax(self.model(x, drawing), dim=1))
        return torch.stack(answers).mean(dim=0).log()

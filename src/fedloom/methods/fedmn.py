"""FedMN: Wang, Cheng, Luo, Yu, Ni, Tong, Chen, Zhang, "Personalized Federated Learning via
Heterogeneous Modular Networks", ICDM 2022.

The server holds a pool: `copies` of every block of the network. Each client has its own router,
which picks one copy of every block, so that clients with similar data come to share modules. In the
first `explore_share` of the budget, a route is drawn for every batch by the straight-through
Gumbel-softmax, and modules and router learn together. Then each client keeps its likeliest route. A
module is averaged only over the samples that went through it.

Our reading: a router makes one decision for a client, so we store that decision's logits, while the
paper computes them from the client's data by a small hypernetwork. One module per block is picked.
The router stays at the client. The weights of its reply reveal which modules it used, because
averaging needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, shared
from fedloom.learning.optimizers import Sgd
from fedloom.learning.training import (
    converging,
    model,
    sgd,
    training_batches,
    training_mode,
    weights_of,
)
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.nets.model import Model
from fedloom.nets.modular import COPY, Pool, along, block_of, blocks
from fedloom.rng import key
from fedloom.types import Fields, Meta, Order, Reply, Round, State, Task, Tensors

ROUTER = "router"
LEAST = 1e-10  # keeps the logarithms of a Gumbel draw finite


class FedMNOptions(FedAvgOptions):
    measures_received = False  # the copies of a module see different batches

    copies: int = Field(
        2,
        ge=1,
        le=100,
        description="modules in the pool for each block of the network",
    )
    explore_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of the budget in which routes are searched",
    )
    router_lr: float = Field(0.5, gt=0, description="learning rate of a client's router")
    temperature: float = Field(1.0, gt=0, description="first temperature of the Gumbel-softmax")
    last_temperature: float = Field(0.1, gt=0, description="its last one, after exploration")

    def temperature_at(self, progress: float) -> float | None:
        """Returns the temperature, which falls geometrically, or None after the exploration."""
        if progress >= self.explore_share:
            return None
        done = progress / self.explore_share
        cooling = self.last_temperature / self.temperature
        return float(self.temperature * cooling**done)


@dataclass(frozen=True)
class FedMN(FedAvg):
    options: FedMNOptions

    fields = {"train": Fields(tensors=("*",), meta=("loss",), writes=True)}
    shares = False  # there are as many networks as routes

    # The server: a pool of modules

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> Pool:
        """Returns the pool. Copy 0 is the seed's network, the others have further seeds."""
        seeds = [task.seed]
        for number in range(1, self.options.copies):
            seeds.append(key(task.seed, "module", number))
        pool = Pool([model(replace(task, seed=seed), self.options) for seed in seeds])
        if weights is not None:
            pool.load_state_dict(dict(weights))
        return pool

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {
            "lr": self.options.rate(r.progress),
            "heat": self.options.temperature_at(r.progress),
        }
        tensors = shared(state)
        return state, [Order(client, "train", tensors, meta) for client in r.cohort()]

    # A client: its modules and its router learn together

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        options = self.options
        pool = self.build(run.task, {})
        pool.load_state_dict(dict(order.tensors))
        pool.to(run.device)
        router = self._router(own, pool).requires_grad_()
        module_optimizer = sgd(pool, options, order.meta["lr"])
        router_optimizer = Sgd({"router": router}, options.router_lr)
        generator = run.rng("routes")
        used = torch.zeros(router.shape, dtype=torch.int64)  # samples through [block, copy]
        training_mode(pool, options.bn)
        total = 0.0
        for batch in training_batches(data, options, run):
            route = route_of(router, order.meta["heat"], generator)
            scores = pool(batch.x, route.copies, route.factors)
            loss = functional.cross_entropy(scores, batch.y)
            module_optimizer.zero_grad()
            router_optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pool.parameters(), options.clip)
            module_optimizer.step()
            router_optimizer.step()
            used[range(len(route.copies)), route.copies] += len(batch)
            total += loss.item() * len(batch)
        seen = max(1, int(used[0].sum()))
        weights = weigh(pool, len(data) * used / seen)
        meta = {"loss": converging(total / seen, pool.state_dict())}
        reply = Reply(order.client, weights_of(pool), weights, meta)
        return reply, State({ROUTER: router.detach()})

    def _router(self, own: State | None, pool: Pool) -> torch.Tensor:
        """Returns the logits of every block's copies: [block, copy]."""
        if own is None:
            return torch.zeros(len(pool.groups), self.options.copies)
        return own.tensors[ROUTER].clone()

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        """Returns the network of the client's own route."""
        net = model(run.task, self.options)
        groups = blocks(net)
        route = [0] * len(groups)
        if own is not None:
            route = likeliest(own.tensors[ROUTER])
        weights = {}
        for name in net.state_dict():
            weights[name] = order.tensors[along(route, name, groups)]
        net.load_state_dict(weights)
        if isinstance(net.architecture, str):
            copies = "-".join(map(str, route))
            net.net.architecture = f"{net.architecture} by {copies}"  # type: ignore[assignment]
        return net


@dataclass(frozen=True)
class Route:
    """The route of one batch through the pool."""

    copies: list[int]  # the copy that is used, for each block
    factors: list[torch.Tensor] | None  # all are 1; through them the router gets its gradient


def route_of(router: torch.Tensor, heat: float | None, generator: torch.Generator) -> Route:
    """Returns a drawn route while routes are explored, then the likeliest."""
    if heat is None:
        return Route(likeliest(router), None)
    return drawn(router, heat, generator)


def drawn(router: torch.Tensor, heat: float, generator: torch.Generator) -> Route:
    """Draws a route by the straight-through Gumbel-softmax.

    The forward pass uses the likeliest module under noise; the gradient is that of the softmax.
    """
    noise = torch.rand(router.shape, generator=generator).clamp_min(LEAST)
    minus_gumbel = (-noise.log()).clamp_min(LEAST).log()
    soft = torch.softmax((router - minus_gumbel) / heat, dim=1)
    route = soft.argmax(1)
    chosen = soft.gather(1, route[:, None])[:, 0]
    factors = 1 + chosen - chosen.detach()
    return Route(route.tolist(), list(factors.unbind()))


def likeliest(router: torch.Tensor) -> list[int]:
    copies: list[int] = router.argmax(1).tolist()
    return copies


def weigh(pool: Pool, samples: torch.Tensor) -> dict[str, float]:
    """Returns the weight of each tensor: the samples through its module, from [block, copy]."""
    weights = {}
    for name in pool.state_dict():
        copy, _, plain_name = name.removeprefix(COPY).partition(".")
        block = block_of(plain_name, pool.groups)
        weights[name] = float(samples[block, int(copy)])
    return weights


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", FedMN(FedMNOptions(**task.options))),)


fedmn = Recipe(
    "FedMN (Wang et al. 2022): a pool of modules, and a route through it for each client",
    FedMNOptions,
    stages,
)

"""Aging evolution, after Real, Aggarwal, Huang, Le, "Regularized Evolution for Image Classifier
Architecture Search", 2019, on a supernet that clients train together.

Each round the server proposes one architecture. Clients train its part of the supernet and count
right answers on samples that they did not train on. The best architecture is trained by FedAvg.
"""

from dataclasses import dataclass

import torch
from pydantic import Field

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.method import Method, Recipe, Stage
from fedloom.learning.averaging import Averaged, AveragedOptions
from fedloom.learning.training import least_samples, train, weights_of
from fedloom.rng import rng
from fedloom.spaces import space_for
from fedloom.spaces.mixed import supernet_model
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Arch, Fields, Order, Reply, State, Task

# The searcher: no clients, no server, no files


@dataclass(frozen=True)
class Candidate:
    arch: Arch
    accuracy: float


def propose(space, population, size, contestants, draws):
    """A random architecture until the population is full, then a mutation of a contest's winner."""
    if len(population) < size:
        return space.sample(draws)
    numbers = draws.choice(len(population), size=min(contestants, size), replace=False)
    return space.mutate(best([population[number] for number in numbers]), draws)


def with_newcomer(population, newcomer, size):
    """The oldest candidate leaves, however good it was."""
    return [*population, newcomer][-size:]


def best(population):
    return max(population, key=lambda candidate: candidate.accuracy).arch


# The method: who computes what, and what crosses


class EvolutionOptions(AveragedOptions, SpaceOptions):
    population: int = Field(10, ge=1, description="architectures that are remembered")
    contestants: int = Field(3, ge=1, description="of these, how many compete to be the parent")
    train_share: float = Field(0.7, ge=0.05, le=0.95, description="of a client's samples for w")
    search_share: float = Field(0.6, gt=0, lt=1, description="of the budget, for the search")


@dataclass(frozen=True)
class Search(Method):
    options: EvolutionOptions
    task: Task

    counts = {"loss": float, "right": int, "judged": int}
    fields = {"search": Fields(tensors=("*",), meta=counts, writes=False)}

    @property
    def least_samples(self):
        return least_samples(self.options.train_share)

    def init(self, setup, previous):
        supernet = supernet_model(self.task, self.options)
        return State(weights_of(supernet), {"population": [], "candidate": None})

    def plan(self, state, r):
        arch = propose(
            space_for(self.options),
            population_in(state),
            self.options.population,
            self.options.contestants,
            r.rng("candidate"),
        )
        weights = self.part(state, arch)
        meta = {"arch": arch.to_plain(), "lr": self.options.rate(r.progress)}
        orders = [Order(client, "search", weights, meta) for client in r.cohort()]
        return State(state.tensors, {**state.meta, "candidate": arch.to_plain()}), orders

    def part(self, state, arch):
        """The weights of the supernet that this architecture uses."""
        net = supernet_model(self.task, self.options, arch=arch)
        return {name: state.tensors[name] for name in net.state_dict()}

    def client(self, order, data, own, run):
        net = self.network(order, data, own, run)
        train_part, held_out = data.split(self.options.train_share)
        trained = train(net, train_part, self.options, order.meta["lr"], run)
        counts = {"right": right_answers(net, held_out.to(run.device)), "judged": len(held_out)}
        meta = {"loss": trained.loss, **counts}
        return Reply(order.client, weights_of(net), len(train_part), meta), None

    def check_reply(self, order, reply, samples):
        if not 0 <= reply.meta["right"] <= reply.meta["judged"] <= samples:
            return "the counts must be right ≤ judged ≤ the client's samples"
        return None

    def merge(self, state, orders, replies, r):
        """The mean of the part that was trained; the rest of the supernet stays as it is."""
        tensors = aggregate(state.tensors, replies, orders)
        judged = sum(reply.meta["judged"] for reply in replies)
        if judged == 0:
            return State(tensors, state.meta)
        accuracy = sum(reply.meta["right"] for reply in replies) / judged
        newcomer = Candidate(Arch.from_plain(state.meta["candidate"]), accuracy)
        population = with_newcomer(population_in(state), newcomer, self.options.population)
        return State(tensors, {**state.meta, "population": to_plain(population)})

    def serve(self, state, client):
        arch = chosen(state, self.options, self.task)
        return Order(client, "evaluate", self.part(state, arch), {"arch": arch.to_plain()})

    def network(self, order, data, own, run):
        arch = Arch.from_plain(order.meta["arch"])
        return supernet_model(run.task, self.options, arch=arch, weights=order.tensors)

    def note(self, state, r):
        return {"candidate": state.meta["candidate"]}


@dataclass(frozen=True)
class TrainBest(Averaged):
    """FedAvg of the best architecture, from new weights."""

    options: EvolutionOptions

    def init(self, setup, previous):
        arch = chosen(previous, self.options, setup.task)
        return self.begin(setup.task, {"arch": arch.to_plain()})

    def build(self, task, about, weights=None):
        arch = Arch.from_plain(about["arch"])
        return supernet_model(task, self.options, arch=arch, weights=weights, affine=True)


def chosen(state, options, task):
    population = population_in(state)
    if population:
        return best(population)
    return space_for(options).sample(rng(task.seed, "nothing was judged"))


def population_in(state):
    """States hold tensors and JSON, so candidates are kept as JSON."""
    population = []
    for plain in state.meta["population"]:
        population.append(Candidate(Arch.from_plain(plain["arch"]), plain["accuracy"]))
    return population


def to_plain(population):
    plain = []
    for candidate in population:
        plain.append({"arch": candidate.arch.to_plain(), "accuracy": candidate.accuracy})
    return plain


@torch.no_grad()
def right_answers(net, part):
    net.eval()
    return int((net(part.x).argmax(dim=1) == part.y).sum())


def stages(task):
    options = EvolutionOptions(**task.options)
    search = Stage("search", Search(options, task), options.search_share)
    return search, Stage("train", TrainBest(options))


summary = "Aging evolution (after Real et al. 2019) on a federated supernet"
evolution = Recipe(summary, EvolutionOptions, stages)

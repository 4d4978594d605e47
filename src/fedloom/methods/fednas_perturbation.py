"""FedNAS by perturbation: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over
Heterogeneous Distributions", TMLR 2023, appendix D.1.

One network for all, searched as SPIDER searches, but by the server on a central validation set.

Clients train the supernet by FedAvg. After a warm-up the server decides one edge after the other,
with rounds of training in between on SPIDER's schedule (3 % and 2 % of the budget). Then it prunes,
and FedAvg goes on with what is alive. Scoring is the server's own work: the ledger, which books
what clients compute, does not have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import SERVER
from fedloom.learning.averaging import Averaged
from fedloom.learning.training import training_mode
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.searchers import perturbation
from fedloom.searchers.perturbation import Scorer
from fedloom.searchers.schedule import PHASES, Schedule, phase_of
from fedloom.spaces import space_for
from fedloom.spaces.mixed import supernet_model
from fedloom.types import Arch, Meta, Order, Round, Setup, State, Task, Tensors


@dataclass(frozen=True)
class ServerSearch(Averaged):
    options: FedNASOptions

    def build(self, task: Task, about: Meta, weights: Tensors | None = None) -> nn.Module:
        arch = Arch.from_plain(about["arch"])
        return supernet_model(task, self.options, arch=arch, weights=weights)

    @property
    def edges(self) -> list[tuple[int, ...]]:
        return perturbation.edges(space_for(self.options), paired=True)

    def due(self, progress: float) -> int:
        """How many of all edges and the pruning must be decided by now."""
        return Schedule.of_percent(self.events).due(100 * progress)

    @property
    def events(self) -> int:
        """The moments at which something is decided: every edge, and the pruning."""
        return len(self.edges) + 1

    def check_rounds(self, rounds: float | None) -> None:
        last = 1.0
        if rounds is not None:
            last = (rounds - 1) / rounds
        if self.due(last) < self.events:
            edges = f"{len(self.edges)} edges"
            rule = f"a search must have time to decide {edges} and to train what is left"
            advice = "ask for more rounds, or for a space with less to decide"
            raise FedloomError(rule, "the run is over before", advice)

    def init(self, setup: Setup, previous: State | None) -> State:
        if setup.server_data is None or len(setup.server_data) < 2:
            rule = "search=perturbation must have a central validation set"
            advice = "try --set data.server_share=0.1, in a simulation"
            raise FedloomError(rule, "the server has no data", advice)
        state = self.begin(setup.task, {"arch": space_for(self.options).full().to_plain()})
        search = {
            "task": json.loads(
                json.dumps(asdict(setup.task)),
            ),  # as a checkpoint would bring it back
            "open": list(range(len(self.edges))),
            "pruned": False,
        }
        return State(state.tensors, {**state.meta, **search})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        return super().plan(self._searched(state, r), r)

    def _searched(self, state: State, r: Round) -> State:
        """All that has fallen due: SPIDER's Algorithm 2 on the server's data.

        It is decided before the round's training.
        """
        due = self.due(r.progress)
        undecided = list(state.meta["open"])
        prunes = due == self.events and not state.meta["pruned"]
        edges_due = undecided and len(self.edges) - len(undecided) < due
        if not prunes and not edges_due:
            return state
        assert r.server_data is not None  # init saw to it
        score = self._scorer(state, r.server_data)
        arch = arch_of(state)
        draw = r.rng("edges")
        while undecided and len(self.edges) - len(undecided) < due:
            position = int(draw.integers(len(undecided)))
            slots = self.edges[undecided.pop(position)]
            arch, _ = perturbation.decide(arch, slots, score, "impact")
        if prunes:
            arch, _ = perturbation.prune(space_for(self.options), arch, score, "impact")
        return self._cut(state, arch, {"open": undecided, "pruned": prunes})

    def _scorer(self, state: State, data: Samples) -> Scorer:
        net = supernet_model(task_of(state), self.options, arch=arch_of(state))
        net.load_state_dict({name: state.tensors[name] for name in net.state_dict()})
        training_mode(net, self.options.bn)
        return perturbation.by_validation(net, data, self.options.batch)

    def _cut(self, state: State, arch: Arch, search: Meta) -> State:
        """What is alive, and the memory of a server optimiser for it."""
        about = {"arch": arch.to_plain()}
        net = self.build(task_of(state), about)
        alive = set(net.state_dict())
        tensors = {}
        for name, tensor in state.tensors.items():
            if weight_behind(name) in alive:
                tensors[name] = tensor
        parameters = [name for name, _ in net.named_parameters()]
        meta = {**state.meta, **search, "build": about, "parameters": parameters}
        return State(tensors, meta)

    def note(self, state: State, r: Round) -> Meta:
        return phase_of(self.due(r.progress), self.events)

    @property
    def phases(self) -> Mapping[str, float]:
        return PHASES


def arch_of(state: State) -> Arch:
    return Arch.from_plain(state.meta["build"]["arch"])


def weight_behind(name: str) -> str:
    """The weight that a tensor of the state is, or is the server optimiser's memory of."""
    if not name.startswith(SERVER):
        return name
    return name.split("/", 2)[2]


def task_of(state: State) -> Task:
    values: dict[str, Any] = {}
    for name, value in state.meta["task"].items():
        if isinstance(value, list):  # JSON has no tuples
            value = tuple(value)
        values[name] = value
    return Task(**values)

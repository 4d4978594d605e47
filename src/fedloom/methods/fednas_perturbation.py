"""FedNAS by perturbation: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over
Heterogeneous Distributions", TMLR 2023, appendix D.1.

One network for all is searched as in SPIDER, but by the server on a central validation set.

Clients train the supernet by FedAvg. After a warm-up the server decides one edge after the other,
with rounds of training in between, on SPIDER's schedule (3 % and 2 % of the budget). Then it
prunes, and FedAvg continues with the operations that are left. The server scores by itself, so the
ledger, which counts what clients compute, does not include it.
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
from fedloom.types import Arch, Json, Meta, Order, Round, Setup, State, Task, Tensors


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
        """Returns how many of the events (all edges, and the pruning) must have happened by now."""
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
            rule = f"a search must have time to decide {edges} and to train the final network"
            advice = "ask for more rounds, or for a space with less to decide"
            raise FedloomError(rule, "this run ends before that", advice)

    def init(self, setup: Setup, previous: State | None) -> State:
        if setup.server_data is None or len(setup.server_data) < 2:
            rule = "search=perturbation must have a central validation set"
            advice = "try --set data.server_share=0.1, in a simulation"
            raise FedloomError(rule, "the server has no data", advice)
        state = self.begin(setup.task, {"arch": space_for(self.options).full().to_plain()})
        search = {
            "task": as_in_checkpoint(asdict(setup.task)),
            "open": list(range(len(self.edges))),
            "pruned": False,
        }
        return State(state.tensors, {**state.meta, **search})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        return super().plan(self._searched(state, r), r)

    def _searched(self, state: State, r: Round) -> State:
        """Decides all that is due before the round's training.

        It is SPIDER's Algorithm 2 on the server's data.
        """
        due = self.due(r.progress)
        undecided = list(state.meta["open"])
        prunes = due == self.events and not state.meta["pruned"]
        edges_due = undecided and len(self.edges) - len(undecided) < due
        if not prunes and not edges_due:
            return state
        assert r.server_data is not None  # `init` has checked it
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
        """Returns the tensors of live operations, with the server optimiser's memory of them."""
        build = {"arch": arch.to_plain()}
        net = self.build(task_of(state), build)
        alive = set(net.state_dict())
        tensors = {}
        for name, tensor in state.tensors.items():
            if weight_behind(name) in alive:
                tensors[name] = tensor
        parameters = [name for name, _ in net.named_parameters()]
        meta = {**state.meta, **search, "build": build, "parameters": parameters}
        return State(tensors, meta)

    def note(self, state: State, r: Round) -> Meta:
        return phase_of(self.due(r.progress), self.events)

    @property
    def phases(self) -> Mapping[str, float]:
        return PHASES


def as_in_checkpoint(values: Json) -> Json:
    """Returns the values as they would come back from a checkpoint, with lists for tuples."""
    return json.loads(json.dumps(values))


def arch_of(state: State) -> Arch:
    return Arch.from_plain(state.meta["build"]["arch"])


def weight_behind(name: str) -> str:
    """Returns the name of the weight that a tensor is, or is the optimiser's memory of."""
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

"""FedNAS by perturbation: Mushtaq, He, Ding, Avestimehr, "Distributed Architecture Search Over Heterogeneous
Distributions", TMLR 2023, appendix D.1.

One network for all, searched as SPIDER searches, but by the server on a central validation set.

Clients train the supernet by FedAvg. After a warm-up the server decides one edge after the other, with rounds of
training in between on SPIDER's schedule (3 % and 2 % of the budget), prunes, and FedAvg goes on with what is left.
Scoring is the server's own work: the ledger, which books what clients compute, does not have it.
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
        return supernet_model(task, self.options, arch=Arch.from_plain(about["arch"]), weights=weights)

    @property
    def edges(self) -> list[tuple[int, ...]]:
        return perturbation.edges(space_for(self.options), paired=True)

    def due(self, progress: float) -> int:
        """Of all edges and the pruning."""
        return Schedule.of_percent(len(self.edges) + 1).due(100 * progress)

    def check_rounds(self, rounds: float | None) -> None:
        last = 1.0 if rounds is None else (rounds - 1) / rounds
        if self.due(last) <= len(self.edges):
            must = f"a search must have time to decide {len(self.edges)} edges and to train what is left"
            raise FedloomError(must, "the run is over before", "ask for more rounds, or for fewer nodes")

    def init(self, setup: Setup, previous: State | None) -> State:
        if setup.server_data is None or len(setup.server_data) < 2:
            must = "search=perturbation must have a central validation set"
            raise FedloomError(must, "the server has no data", "try --set data.server_share=0.1, in a simulation")
        state = self.begin(setup.task, {"arch": space_for(self.options).full().to_plain()})
        task = json.loads(json.dumps(asdict(setup.task)))  # as a checkpoint would bring it back
        return State(state.tensors, {**state.meta, "task": task, "open": list(range(len(self.edges))), "pruned": False})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        return super().plan(self._searched(state, r), r)

    def _searched(self, state: State, r: Round) -> State:
        """All that has fallen due, before the round's training: SPIDER's Algorithm 2 on the server's data."""
        due, undecided = self.due(r.progress), list(state.meta["open"])
        prunes = due > len(self.edges) and not state.meta["pruned"]
        if not prunes and (not undecided or len(self.edges) - len(undecided) >= due):
            return state
        assert r.server_data is not None  # init saw to it
        arch, draw = Arch.from_plain(state.meta["build"]["arch"]), r.rng("edges")
        score = self._scorer(state, r.server_data)
        while undecided and len(self.edges) - len(undecided) < due:
            slots = self.edges[undecided.pop(int(draw.integers(len(undecided))))]
            arch, _ = perturbation.decide(arch, slots, score, "impact")
        if prunes:
            arch, _ = perturbation.prune(space_for(self.options), arch, score, "impact")
        return self._left(state, arch, {"open": undecided, "pruned": prunes})

    def _scorer(self, state: State, data: Samples) -> Scorer:
        net = supernet_model(task_of(state), self.options, arch=Arch.from_plain(state.meta["build"]["arch"]))
        net.load_state_dict({name: state.tensors[name] for name in net.state_dict()})
        training_mode(net, self.options.bn)
        return perturbation.by_validation(net, data, self.options.batch)

    def _left(self, state: State, arch: Arch, meta: Meta) -> State:
        """What is alive, and the memory of a server optimiser for it."""
        about = {"arch": arch.to_plain()}
        net = self.build(task_of(state), about)
        alive, trained = set(net.state_dict()), [name for name, _ in net.named_parameters()]
        kept = {
            name: tensor for name, tensor in state.tensors.items()
            if (name.split("/", 2)[2] if name.startswith(SERVER) else name) in alive
        }  # fmt: skip
        return State(kept, {**state.meta, **meta, "build": about, "parameters": trained})

    def note(self, state: State, r: Round) -> Meta:
        return phase_of(self.due(r.progress), len(self.edges) + 1)

    @property
    def phases(self) -> Mapping[str, float]:
        return PHASES


def task_of(state: State) -> Task:
    values: Any = {name: tuple(v) if isinstance(v, list) else v for name, v in state.meta["task"].items()}
    return Task(**values)

"""`fedloom profile check RUN`: the sum of a profile's operations beside the time that the whole network takes.

Every client's network is cut from the run's supernet as an export would cut it. Weights do not change the time, so it
has fresh ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from fedloom.cost.limits import Estimator, Figures, Limit
from fedloom.cost.profile import Profile, this_machine
from fedloom.cost.steps import model_of
from fedloom.cost.timing import Timing, Told, in_turns
from fedloom.errors import FedloomError
from fedloom.nets.model import Model
from fedloom.records.opening import FinishedRun, one_run
from fedloom.records.result import ClientResult
from fedloom.report.latency_tables import LatencyLine, latency_table
from fedloom.runs.experiment import reopen
from fedloom.runs.profiles import find
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json, Task


@dataclass(frozen=True)
class Checked:
    run: Path
    profile: str
    limit: Limit | None
    lines: tuple[LatencyLine, ...]

    @property
    def ratio(self) -> float:
        return median(line.ratio for line in self.lines)

    def to_json(self) -> Json:
        return {
            "run": str(self.run), "profile": self.profile, "limit": None if self.limit is None else vars(self.limit),
            "ratio": self.ratio, "clients": [line.to_json() for line in self.lines],
        }  # fmt: skip

    def table(self) -> None:
        from rich.console import Console

        title = f"{self.run} on profile {self.profile}"
        table = latency_table(title, self.lines, self.ratio, limited=self.limit is not None)
        Console(markup=False).print(table)


def check(path: Path | str, profile: str, limit: Limit | None, repeats: int, tell: Told) -> Checked:
    """Estimate every client's network on a profile of this machine, and measure it beside that."""
    task, run = task_of(path), FinishedRun.open(path)
    found, model = find(profile), model_of(task)
    assert model is not None
    check_machine(found, profile)
    estimator, clients = Estimator(model, found, f"profile {profile}"), searched(run)
    sums = [estimator.latency_ms(Arch.from_plain(client.architecture)) for client in clients]
    times = measured(
        model, task.shape, [client.architecture for client in clients], found.machine.device, repeats, tell
    )
    lines = []
    for client, total, took in zip(clients, sums, times, strict=True):
        assert client.params is not None
        figures = Figures(client.params, client.macs, total)
        over = tuple(limit.over(figures)) if limit else ()
        lines.append(LatencyLine(client.client, figures, *took, over))
    return Checked(run.path, profile, limit, tuple(lines))


def task_of(path: Path | str) -> Task:
    """The task of a run whose networks are of a search space."""
    folder = one_run(path)
    if folder.config().is_federated:
        must, todo = (
            "a profile must be checked against a simulation",
            "a site's networks stay with it: check them there",
        )
        raise FedloomError(must, f"{path} ran on a federation", todo)
    task = reopen(folder).task
    if model_of(task) is None:
        must, todo = "a profile must be of networks of a search space", "use a search, or --network with a genotype"
        raise FedloomError(must, f"{path} trained another network", todo)
    return task


def check_machine(found: Profile, name: str) -> None:
    here = this_machine(found.machine.device)
    if found.machine != here:
        must = f"profile {name} must be of this machine and torch to be checked here"
        raise FedloomError(must, f"it is of {found.machine}, and this is {here}", "measure one here: `fedloom profile`")


def searched(run: FinishedRun) -> list[ClientResult]:
    """The clients whose network is known to be of a search space; others never answered."""
    clients = [client for client in run.record.clients if client.is_searched]
    if not clients:
        must, todo = "a run must have found a network of a search space", "see its table for the reasons"
        raise FedloomError(must, f"{run.path} has none", todo)
    return clients


def measured(
    model: Model, shape: tuple[int, ...], architectures: Sequence[Json], device: str, repeats: int, tell: Told
) -> list[Timing]:
    """Milliseconds and their spread; equal architectures are measured once."""
    assert isinstance(model.net, Supernet)
    names = [json.dumps(dict(each)) for each in architectures]
    kinds = dict(zip(names, architectures, strict=True))
    image = torch.rand(1, *shape, device=device)
    cuts = [Model(model.net.cut(Arch.from_plain(each)), (), ()) for each in kinds.values()]
    for cut in cuts:
        cut.mean, cut.std = model.mean, model.std
    works = [partial(cut.to(device).eval(), image) for cut in cuts]
    times = dict(zip(kinds, in_turns(works, repeats, device, tell), strict=True))
    return [times[name] for name in names]

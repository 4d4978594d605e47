"""`fedloom profile check RUN`: the sum of a profile's operations beside the measured time.

The time is that of the whole network. Every client's network is cut from the run's supernet as an
export would cut it. Weights do not change the time, so it has fresh ones.
"""

from __future__ import annotations

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
from fedloom.methods import searched
from fedloom.nets.model import Model
from fedloom.records.opening import FinishedRun, one_run
from fedloom.records.result import NAME as RESULT
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
        limit = None
        if self.limit is not None:
            limit = vars(self.limit)
        return {
            "run": str(self.run),
            "profile": self.profile,
            "limit": limit,
            "ratio": self.ratio,
            "clients": [line.to_json() for line in self.lines],
        }

    def table(self) -> None:
        from rich.console import Console

        title = f"{self.run} on profile {self.profile}"
        table = latency_table(title, self.lines, self.ratio, limited=self.limit is not None)
        Console(markup=False).print(table)


def check(path: Path | str, profile: str, limit: Limit | None, repeats: int, tell: Told) -> Checked:
    """Estimate every client's network on a profile of this machine, and measure it beside that."""
    task = task_of(path)
    run = FinishedRun.open(path)
    measured_profile = find(profile)
    model = model_of(task, searched(task))
    assert model is not None
    check_machine(measured_profile, profile)
    networks = [network_of(client, model, run.path) for client in searched_clients(run)]
    estimator = Estimator(model, measured_profile, f"profile {profile}")
    sums = [estimator.latency_ms(network.arch) for network in networks]
    archs = [network.arch for network in networks]
    times = measured(model, task.shape, archs, measured_profile.machine.device, repeats, tell)
    lines = []
    for network, latency_ms, timing in zip(networks, sums, times, strict=True):
        figures = Figures(network.params, network.macs, latency_ms)
        over: tuple[str, ...] = ()
        if limit is not None:
            over = tuple(limit.over(figures))
        lines.append(LatencyLine(network.client, figures, timing.ms, timing.spread_ms, over))
    return Checked(run.path, profile, limit, tuple(lines))


@dataclass(frozen=True)
class FoundNetwork:
    """What result.json tells of a client's network, checked: a person may have edited the file."""

    client: int
    arch: Arch
    params: int
    macs: int | None


def network_of(client: ClientResult, model: Model, run: Path) -> FoundNetwork:
    assert isinstance(model.net, Supernet)
    advice = f"delete the file, and `fedloom resume {run}` makes it again"
    if client.params is None:
        network = f"the network of client {client.client}"
        rule = f"{run / RESULT} must tell how many parameters {network} has"
        raise FedloomError(rule, "it says null", advice)
    try:
        arch = Arch.from_plain(client.architecture)
        model.net.space.check(arch)
    except FedloomError as error:
        architecture = f"an architecture of {model.net.space.title} for client {client.client}"
        rule = f"{run / RESULT} must tell {architecture}"
        raise FedloomError(rule, str(error).rstrip("."), advice) from None
    return FoundNetwork(client.client, arch, client.params, client.macs)


def task_of(path: Path | str) -> Task:
    """The task of a run whose networks are of a search space."""
    folder = one_run(path)
    if folder.config().is_federated:
        rule = "a profile must be checked against a simulation"
        advice = "a site's networks stay with it: check them there"
        raise FedloomError(rule, f"{path} ran on a federation", advice)
    task = reopen(folder).task
    if model_of(task, searched(task)) is None:
        rule = "a profile must be of networks of a search space"
        advice = "use a search, or --network with a genotype"
        raise FedloomError(rule, f"{path} trained another network", advice)
    return task


def check_machine(profile: Profile, name: str) -> None:
    here = this_machine(profile.machine.device)
    if profile.machine != here:
        raise FedloomError(
            f"profile {name} must be of this machine and torch to be checked here",
            f"it is of {profile.machine}, and this is {here}",
            "measure one here: `fedloom profile`",
        )


def searched_clients(run: FinishedRun) -> list[ClientResult]:
    """The clients whose network is known to be of a search space; others never answered."""
    clients = [client for client in run.record.clients if client.is_searched]
    if not clients:
        rule = "a run must have found a network of a search space"
        raise FedloomError(rule, f"{run.path} has none", "see its table for the reasons")
    return clients


def measured(
    model: Model,
    shape: tuple[int, ...],
    archs: Sequence[Arch],
    device: str,
    repeats: int,
    tell: Told,
) -> list[Timing]:
    """Milliseconds and their spread; equal architectures are measured once."""
    assert isinstance(model.net, Supernet)
    different = list(dict.fromkeys(archs))
    image = torch.rand(1, *shape, device=device)
    passes = []
    for arch in different:
        cut = Model(model.net.cut(arch), (), ())
        cut.mean = model.mean
        cut.std = model.std
        passes.append(partial(cut.to(device).eval(), image))
    times = dict(zip(different, in_turns(passes, repeats, device, tell), strict=True))
    return [times[arch] for arch in archs]

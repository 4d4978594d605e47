"""`fedloom profile check RUN`: compares a profile's estimate with the measured latency.

The estimate is the sum over a network's operations; the measurement is of the whole network. Every
client's network is cut from the run's supernet as an export would cut it, with fresh weights, which
do not change the time.
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
from fedloom.cost.timing import Progress, Timing, in_turns
from fedloom.errors import FedloomError
from fedloom.methods import searched
from fedloom.nets.model import Model
from fedloom.records.opening import FinishedRun, one_run
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import ClientResult
from fedloom.records.searches import ANSWER, SEARCHES, read_answer
from fedloom.report.latency_tables import LatencyLine, latency_table
from fedloom.runs.preparing import reopen
from fedloom.runs.profiles import find
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json, Task


@dataclass(frozen=True)
class LatencyCheck:
    """Estimated and measured latencies of a run's networks."""

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


def check(
    path: Path | str,
    profile: str,
    limit: Limit | None,
    repeats: int,
    tell: Progress,
    *,
    tier: int | None = None,
    search: str | None = None,
) -> LatencyCheck:
    """Estimate the latency of every client's network by a profile of this machine, and measure it.

    With `tier` or `search`, only the network of that tier or the one that this search found.
    """
    task = task_of(path)
    run = FinishedRun.open(path)
    measured_profile = find(profile)
    model = model_of(task, searched(task))
    assert model is not None
    check_machine(measured_profile, profile)
    networks = networks_in(run, model, tier, search)
    estimator = Estimator(model, measured_profile, f"profile {profile}")
    archs = [network.arch for network in networks]
    # Before measuring, which takes long: the profile may lack an operation.
    estimates_ms = [estimator.latency_ms(arch) for arch in archs]
    timings = measure(model, task.shape, archs, measured_profile.machine.device, repeats, tell)
    lines = []
    for network, estimated_ms, timing in zip(networks, estimates_ms, timings, strict=True):
        figures = Figures(network.params, network.macs, estimated_ms)
        over: tuple[str, ...] = ()
        if limit is not None:
            over = tuple(limit.over(figures))
        line = LatencyLine(
            client=network.client,
            figures=figures,
            measured_ms=timing.ms,
            spread_ms=timing.spread_ms,
            over=over,
            model=network.model,
        )
        lines.append(line)
    return LatencyCheck(run.path, profile, limit, tuple(lines))


@dataclass(frozen=True)
class FoundNetwork:
    """A network as result.json describes it, validated because users may edit that file."""

    client: int | None  # None: the network of a tier or a search
    arch: Arch
    params: int
    macs: int | None
    model: str | None = None  # name of the network of a tier or a search


def networks_in(
    run: FinishedRun,
    model: Model,
    tier: int | None,
    search: str | None,
) -> list[FoundNetwork]:
    """The networks of all clients, or that of the given tier or search."""
    if tier is not None and search is not None:
        raise FedloomError("one of --tier and --search must be given", "got both", "leave one out")
    if tier is not None:
        return [network_of_tier(run, tier, model)]
    if search is not None:
        answer = read_answer(run.path, search)
        file = run.path / SEARCHES / search / ANSWER
        arch = checked_arch(answer.architecture, model, file)
        return [FoundNetwork(None, arch, answer.params, answer.macs, f"search {search}")]
    return [network_of(client, model, run.path) for client in searched_clients(run)]


def network_of_tier(run: FinishedRun, tier: int, model: Model) -> FoundNetwork:
    for row in run.record.tiers:
        if row.tier == tier:
            arch = checked_arch(row.architecture, model, run.path / RESULT)
            return FoundNetwork(None, arch, row.params, row.macs, f"tier {tier}")
    numbers = [row.tier for row in run.record.tiers]
    if not numbers:
        rule = "--tier must be of a run whose method has a network for every tier of devices"
        raise FedloomError(rule, f"{run.path} is not one", "leave --tier out")
    rule = f"--tier must be one of the run's, from 1 to {max(numbers)}"
    raise FedloomError(rule, f"got {tier}", "choose one of them")


def network_of(client: ClientResult, model: Model, run: Path) -> FoundNetwork:
    advice = f"delete the file, and `fedloom resume {run}` writes it again"
    if client.params is None:
        network = f"the network of client {client.client}"
        rule = f"{run / RESULT} must say how many parameters {network} has"
        raise FedloomError(rule, "it says null", advice)
    owner = f" for client {client.client}"
    arch = checked_arch(client.architecture, model, run / RESULT, owner, advice)
    return FoundNetwork(client.client, arch, client.params, client.macs)


def checked_arch(
    architecture: Json,
    model: Model,
    file: Path,
    owner: str = "",
    advice: str = "restore it, or create it again",
) -> Arch:
    """An architecture that a file of the run contains; it must be of the run's own space."""
    assert isinstance(model.net, Supernet)
    try:
        arch = Arch.from_plain(architecture)
        model.net.space.check(arch)
    except FedloomError as error:
        rule = f"{file} must contain an architecture of {model.net.space.title}{owner}"
        raise FedloomError(rule, str(error).rstrip("."), advice) from None
    return arch


def task_of(path: Path | str) -> Task:
    """The task of a run; runs whose networks are not of a search space are refused."""
    folder = one_run(path)
    if folder.config().is_federated:
        rule = "a profile must be checked against a simulation"
        advice = "a site's networks stay with it: check them there"
        raise FedloomError(rule, f"{path} ran in a federation", advice)
    task = reopen(folder).task
    if model_of(task, searched(task)) is None:
        rule = "a profile must be for networks of a search space"
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
    """The clients whose network of a search space is known; others never replied."""
    clients = [client for client in run.record.clients if client.is_searched]
    if not clients:
        rule = "a run must have found a network of a search space"
        raise FedloomError(rule, f"{run.path} has none", "see its table for the reasons")
    return clients


def measure(
    model: Model,
    shape: tuple[int, ...],
    archs: Sequence[Arch],
    device: str,
    repeats: int,
    tell: Progress,
) -> list[Timing]:
    """Measure latencies in milliseconds and their spread; equal architectures are measured once."""
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

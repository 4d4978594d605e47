"""Exporting networks whose samples take their own paths.

`--path each` writes the whole network: samplers choose a path for every sample. `--path likely`
writes a single path: the one that most test samples take. `--prune` writes the whole network
without the operations that no training sample takes.

Two numbers describe the result. `share` is the share of the test samples that take the same path in
the written network as in the run's own, and `accuracy` is the accuracy of the written network on
all test samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from fedloom.cost.meter import Meter
from fedloom.cost.timing import in_turns
from fedloom.data.samples import Samples
from fedloom.errors import FedloomError, unknown
from fedloom.export.finished import Finished
from fedloom.export.predicting import scores_in_batches
from fedloom.export.tracing import Whole, guide_of
from fedloom.metrics.metric import metric_of
from fedloom.nets.model import Model
from fedloom.searchers.guides import Guided
from fedloom.searchers.routes_taken import paths_of
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json, Task

PathName = Literal["each", "likely"]
PATHS: tuple[PathName, ...] = get_args(PathName)
TIMED_BATCHES = (1, 32)  # batch sizes to measure latencies with
TIMED_TURNS = 10
COMPARED = 64  # samples on which the written network and the run's own must agree
COMPARED_ALONE = 8  # of these, samples that are also compared one by one
# The relative tolerance of scores: networks that group samples differently also add up numbers in a
# different order.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class PathRequest:
    """Which paths of the network are asked for; `path` is None if none was named."""

    path: str | None = None
    prune: bool = False
    format: str = "torch"

    @property
    def likely(self) -> bool:
        return self.path == "likely"

    @property
    def path_name(self) -> PathName:
        if self.likely:
            return "likely"
        return "each"

    def check(self, network: nn.Module, whose: str) -> None:
        """Refuse, before anything is written, what is impossible for this network."""
        if self.path is not None and self.path not in PATHS:
            raise unknown("--path", self.path, PATHS)
        if self.prune and self.likely:
            rule = "--prune must be used with --path each"
            problem = "with --path likely every edge already has one operation only"
            raise FedloomError(rule, problem, "leave one of them out")
        if isinstance(network, Guided):
            self._check_guided(network)
            return
        for flag, given in {"--path": self.path is not None, "--prune": self.prune}.items():
            if given:
                rule = f"{flag} must be used with a model whose samples take their own paths"
                problem = f"{whose} has one path for all samples"
                raise FedloomError(rule, problem, f"leave {flag} out")

    def _check_guided(self, network: Guided) -> None:
        guide_of(network)
        if self.format == "executorch" and not self.likely:
            raise FedloomError(
                "--format executorch must be used with a network that has one path",
                "here the number of samples that an operation computes depends on their values, "
                "and ExecuTorch plans its memory before it has any samples",
                "add --path likely, or use --format onnx",
            )


@dataclass(frozen=True)
class OwnSamples:
    """The samples of the model's users: one client's, or all that are here for a shared model."""

    train: Samples
    test: Samples

    @classmethod
    def of(cls, finished: Finished, client: int | None) -> OwnSamples:
        if finished.site is None:
            x = torch.zeros(0, *finished.task.shape)
            no_samples = Samples(x, torch.zeros(0, dtype=torch.int64))
            return cls(no_samples, no_samples)
        clients = finished.clients_here
        if client is not None:
            clients = range(client, client + 1)
        parts = [finished.site.data(number) for number in clients]
        train = together([part.train for part in parts])
        test = together([part.test for part in parts])
        return cls(train, test)

    def check(self, request: PathRequest) -> None:
        """Refuse what would need samples that are not here."""
        problem = "there are none here"
        advice = "export the model where the clients' samples are, or leave that flag out"
        if request.likely and not len(self.test):
            raise FedloomError("--path likely must have test samples", problem, advice)
        if request.prune and not len(self.train):
            raise FedloomError("--prune must have training samples", problem, advice)


def own_samples(
    network: nn.Module, request: PathRequest, finished: Finished, client: int | None
) -> OwnSamples | None:
    """The samples that the export needs; a request that cannot be fulfilled is refused.

    None: the network has one path for all samples, so that none of them are needed.
    """
    request.check(network, finished.whose(client))
    if not isinstance(network, Guided):
        return None
    own = OwnSamples.of(finished, client)
    own.check(request)
    return own


def together(parts: list[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    return Samples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


# What is written


@dataclass(frozen=True)
class PathFacts:
    """What a user must know about a written network whose run's samples take their own paths."""

    path: PathName
    share: float | None  # None: there are no test samples here
    accuracy: float | None
    samples: int  # how many test samples these two are measured on
    operations: int  # of the run's own network, on all edges
    left_out: int | None  # how many of them were pruned; None: --prune was not given
    macs: int | None  # the mean over test samples
    latency_ms: Mapping[PathName, Mapping[int, float]]  # by batch size

    def to_json(self) -> dict[str, Json]:
        latency = {}
        for name, by_batch in self.latency_ms.items():
            latency[name] = {str(batch): ms for batch, ms in by_batch.items()}
        return {
            "path": self.path,
            "share": self.share,
            "accuracy": self.accuracy,
            "left_out": self.left_out,
            "latency_ms": latency,
        }


NO_PATHS: dict[str, Json] = {
    "path": None,
    "share": None,
    "accuracy": None,
    "left_out": None,
    "latency_ms": None,
}


@dataclass(frozen=True)
class NetworkToWrite:
    """The network to write, and the facts about its paths."""

    network: nn.Module
    facts: PathFacts | None = None  # None: all samples take the same path


def network_to_write(
    network: nn.Module,
    request: PathRequest,
    own: OwnSamples | None,
    task: Task,
    samples: torch.Tensor,
) -> NetworkToWrite:
    """The network with the paths that are asked for, and the facts about them.

    `samples` exist even where no client's samples do.
    """
    if own is None:
        return NetworkToWrite(network)
    assert isinstance(network, Guided)
    likely = None
    if len(own.test):
        arch = likely_path(paths_of(network, own.test), space_name(network))
        likely = restricted_to(network, arch)
    written: Guided | Model = network
    if request.likely:
        assert likely is not None
        written = likely
    elif request.prune:
        written = pruned(network, own.train)
    check_against_run(network, written, own, samples)
    return NetworkToWrite(written, facts_of(network, written, likely, request, own, task, samples))


def facts_of(
    network: Guided,
    written: Guided | Model,
    likely: Model | None,
    request: PathRequest,
    own: OwnSamples,
    task: Task,
    samples: torch.Tensor,
) -> PathFacts:
    """The facts about `written`, where `network` is the run's own.

    `likely` is None where there are no test samples to find the most likely path with.
    """
    timed: dict[PathName, nn.Module] = {"each": written}
    if likely is not None:
        timed = {"each": network, "likely": likely}
    if request.prune:
        timed["each"] = written
    operations = operations_of(network)
    left_out = None
    if request.prune:
        left_out = operations - operations_of(written)
    share = None
    accuracy = None
    macs = None
    if len(own.test):
        share = float(is_unchanged(network, written, own.test).mean())
        accuracy = accuracy_of(written, own.test, task)
        macs = mean_macs(written, own.test)
    return PathFacts(
        path=request.path_name,
        share=share,
        accuracy=accuracy,
        samples=len(own.test),
        operations=operations,
        left_out=left_out,
        macs=macs,
        latency_ms=latencies(timed, samples),
    )


def supernet_of(network: Guided | Model) -> Supernet:
    if isinstance(network, Guided):
        network = network.model
    assert isinstance(network.net, Supernet)
    return network.net


def space_name(network: Guided) -> str:
    return supernet_of(network).space.name


def operations_of(network: Guided | Model) -> int:
    return sum(len(options) for options in supernet_of(network).arch.choice)


def likely_path(paths: np.ndarray, space: str) -> Arch:
    """The path that most samples take, as a whole; `paths` is [samples, slots].

    Of several paths that are equally common it is the one whose options come first in the space,
    slot by slot.
    """
    counts = Counter(map(tuple, paths.tolist()))
    most = max(counts.values())
    path = min(path for path, count in counts.items() if count == most)
    return Arch(space, tuple((option,) for option in path))


def restricted_to(network: Guided, arch: Arch) -> Model:
    """The network with only the operations of `arch`, and the same weights."""
    net = supernet_of(network)
    with torch.device("meta"):  # no fresh weights are drawn
        part = net.smaller(arch)
    weights = net.state_dict()
    # Clones keep the memory format, on which the last bits depend.
    inherited = {name: weights[name].clone() for name in part.state_dict()}
    part.load_state_dict(inherited, assign=True)
    mean = network.model.mean.flatten().tolist()
    std = network.model.std.flatten().tolist()
    return Model(part, mean, std).eval()


def pruned(network: Guided, train: Samples) -> Guided:
    """The network without the operations that none of these samples takes.

    A new sample that would have taken one of them takes the most likely of the remaining ones.
    """
    paths = paths_of(network, train)
    used_options = []
    for slot in range(paths.shape[1]):
        used_options.append(tuple(sorted(set(paths[:, slot].tolist()))))
    arch = Arch(space_name(network), tuple(used_options))
    guide = deepcopy(guide_of(network))
    guide.leave_out_all_but(arch)
    return Guided(restricted_to(network, arch), guide).eval()


# The facts about it


def is_unchanged(network: Guided, written: Guided | Model, part: Samples) -> np.ndarray:
    """For each sample, whether the written network has all operations of the sample's path."""
    paths = paths_of(network, part)
    unchanged = np.ones(len(paths), dtype=bool)
    for slot, options in enumerate(supernet_of(written).arch.choice):
        unchanged &= np.isin(paths[:, slot], options)
    return unchanged


def accuracy_of(network: nn.Module, part: Samples, task: Task) -> float | None:
    scores = scores_in_batches(network, part.x, "cpu")
    measured = metric_of(task.kind).measure(scores.numpy(), part.y.numpy(), len(task.labels))
    return measured.value


def mean_macs(network: nn.Module, part: Samples) -> int:
    """The mean cost of a sample, where each one costs what its own path costs."""
    with Meter() as meter:
        scores_in_batches(network, part.x, "cpu")
    return round(meter.macs / len(part))


def latencies(
    networks: Mapping[PathName, nn.Module], samples: torch.Tensor
) -> dict[PathName, dict[int, float]]:
    """The milliseconds of one call, by batch size; see cost/timing.py.

    Every turn uses other samples, because their paths take different times.
    """
    works = []
    for network in networks.values():
        whole = Whole(network)
        for batch in TIMED_BATCHES:
            works.append(Turns(whole, samples, batch))
    timings = iter(in_turns(works, TIMED_TURNS, "cpu", lambda what, done, total: None))
    measured: dict[PathName, dict[int, float]] = {}
    for name in networks:
        measured[name] = {batch: next(timings).ms for batch in TIMED_BATCHES}
    return measured


class Turns:
    """Calls a network with the next batch of the samples each time."""

    def __init__(self, whole: Whole, samples: torch.Tensor, batch: int) -> None:
        self.whole = whole
        self.batch = batch
        self.samples = cycle(samples)

    def __call__(self) -> torch.Tensor:
        batch = torch.stack([next(self.samples) for _ in range(self.batch)])
        scores: torch.Tensor = self.whole(batch)
        return scores


# Whether its answers are right


@torch.no_grad()
def check_against_run(
    network: Guided, written: Guided | Model, own: OwnSamples, samples: torch.Tensor
) -> None:
    """Check the written network against the run's own, in batches and one sample at a time.

    Both must give equal scores to samples that take the same path in both.
    """
    whole = Whole(written)
    at_hand = Samples(samples, torch.zeros(len(samples), dtype=torch.int64))
    for part in (own.test, own.train, at_hand):
        if not len(part):
            continue
        same_path = torch.from_numpy(is_unchanged(network, written, part))
        x = part.x[same_path][:COMPARED]
        if not len(x):
            continue
        for batch in (x, *x[:COMPARED_ALONE].split(1)):
            check_answers(network(batch), whole(batch))


def check_answers(expected: torch.Tensor, answers: torch.Tensor) -> None:
    largest = float((expected - answers).abs().max())
    if largest > TOLERANCE * max(1.0, float(expected.abs().max())):
        raise FedloomError(
            "an exported network must give the same scores as the run's own",
            f"for samples of the same path its scores differ by up to {largest:.3g}",
            "report this, with the run's folder",
            code=1,
        )

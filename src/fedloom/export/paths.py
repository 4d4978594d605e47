"""Networks whose samples take their own paths, as they leave.

`--path each` writes the whole network: samplers look at every sample and send it on. `--path
likely` writes one path alone: the one that most test samples take. `--prune` leaves out of the
whole network the operations that no training sample takes.

All three are told with two numbers. `share` is the share of the test samples that go the way that
the run's own network gives them, and `accuracy` is that of the written network on all of them.
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
from fedloom.export.predicting import answered
from fedloom.export.tracing import Whole, guide_of
from fedloom.metrics.metric import metric_of
from fedloom.nets.model import Model
from fedloom.searchers.guides import Guided
from fedloom.searchers.routes_taken import paths_of
from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch, Json, Task

PathName = Literal["each", "likely"]
PATHS: tuple[PathName, ...] = get_args(PathName)
TIMED_BATCHES = (1, 32)  # samples at a time
TIMED_TURNS = 10
COMPARED = 64  # samples on which the written network and the run's own must agree
COMPARED_ALONE = 8  # of these, one by one
TOLERANCE = 1e-4  # of their scores, relative: networks that group samples otherwise add otherwise


@dataclass(frozen=True)
class Wish:
    """What was asked for. `path` None: nothing."""

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
        """Refuses, before anything is written, what this network cannot be written as."""
        if self.path is not None and self.path not in PATHS:
            raise unknown("--path", self.path, PATHS)
        if self.prune and self.likely:
            rule = "--prune must be with --path each"
            found = "--path likely has one operation an edge already"
            raise FedloomError(rule, found, "leave one of them out")
        if isinstance(network, Guided):
            self._check_guided(network)
            return
        for flag, given in {"--path": self.path is not None, "--prune": self.prune}.items():
            if given:
                rule = f"{flag} must be for a model whose samples take their own paths"
                raise FedloomError(rule, f"{whose} has one path for all", f"leave {flag} out")

    def _check_guided(self, network: Guided) -> None:
        guide_of(network)
        if self.format == "executorch" and not self.likely:
            raise FedloomError(
                "--format executorch must be of a network with one path",
                "here every operation computes as many samples as take it, which only their "
                "values tell, and ExecuTorch plans its memory before it has any",
                "add --path likely, or use --format onnx",
            )


@dataclass(frozen=True)
class OwnSamples:
    """Those that the model is for: a client's, or, for the shared model, all that are here."""

    train: Samples
    test: Samples

    @classmethod
    def of(cls, finished: Finished, client: int | None) -> OwnSamples:
        if finished.site is None:
            x = torch.zeros(0, *finished.task.shape)
            none = Samples(x, torch.zeros(0, dtype=torch.int64))
            return cls(none, none)
        clients = finished.clients_here
        if client is not None:
            clients = range(client, client + 1)
        parts = [finished.site.data(number) for number in clients]
        train = together([part.train for part in parts])
        test = together([part.test for part in parts])
        return cls(train, test)

    def check(self, wish: Wish) -> None:
        """Refuses what would have to be told from samples that are not here."""
        found = "there are none here"
        advice = "export it where the clients' samples are, or leave that flag out"
        if wish.likely and not len(self.test):
            raise FedloomError("--path likely must have test samples", found, advice)
        if wish.prune and not len(self.train):
            raise FedloomError("--prune must have training samples", found, advice)


def own_samples(
    network: nn.Module, wish: Wish, finished: Finished, client: int | None
) -> OwnSamples | None:
    """Refuses a wish that cannot be fulfilled, before anything is written.

    None: the network has one path for all samples, and needs none of them.
    """
    wish.check(network, finished.whose(client))
    if not isinstance(network, Guided):
        return None
    own = OwnSamples.of(finished, client)
    own.check(wish)
    return own


def together(parts: list[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    return Samples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


# What is written


@dataclass(frozen=True)
class PathFacts:
    """What a reader must know of a written network whose run's samples take their own paths."""

    path: PathName
    share: float | None  # None: there are no test samples here
    accuracy: float | None
    samples: int  # test samples that these two are of
    operations: int  # of the run's own network, on all edges
    left_out: int | None  # of them; None: nothing was pruned
    macs: int | None  # of one test sample, the mean
    latency_ms: Mapping[PathName, Mapping[int, float]]  # by the number of samples at a time

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
class Leaving:
    """A network on its way out, and what is said of its paths; None: all samples take one."""

    network: nn.Module
    facts: PathFacts | None = None


def leaving(
    network: nn.Module,
    wish: Wish,
    own: OwnSamples | None,
    task: Task,
    samples: torch.Tensor,
) -> Leaving:
    """The network as it is wished for; `samples` are there even where nobody's own ones are."""
    if own is None:
        return Leaving(network)
    assert isinstance(network, Guided)
    likely = None
    if len(own.test):
        arch = likely_path(paths_of(network, own.test), space_name(network))
        likely = along(network, arch)
    written: Guided | Model = network
    if wish.likely:
        assert likely is not None
        written = likely
    elif wish.prune:
        written = pruned(network, own.train)
    check_against_run(network, written, own, samples)
    return Leaving(written, facts_of(network, written, likely, wish, own, task, samples))


def facts_of(
    network: Guided,
    written: Guided | Model,
    likely: Model | None,
    wish: Wish,
    own: OwnSamples,
    task: Task,
    samples: torch.Tensor,
) -> PathFacts:
    """`network` is the run's own; `likely` None: no test samples tell the most likely path."""
    timed: dict[PathName, nn.Module] = {"each": written}
    if likely is not None:
        timed = {"each": network, "likely": likely}
    if wish.prune:
        timed["each"] = written
    operations = operations_of(network)
    left_out = None
    if wish.prune:
        left_out = operations - operations_of(written)
    share = None
    accuracy = None
    macs = None
    if len(own.test):
        share = float(is_unchanged(network, written, own.test).mean())
        accuracy = accuracy_of(written, own.test, task)
        macs = mean_macs(written, own.test)
    return PathFacts(
        path=wish.path_name,
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
    """The path that most samples take, [samples, slots]: of all its operations together.

    Of several that are as common, the one whose options come first in the space, slot by slot.
    """
    counts = Counter(map(tuple, paths.tolist()))
    most = max(counts.values())
    path = min(path for path, count in counts.items() if count == most)
    return Arch(space, tuple((option,) for option in path))


def along(network: Guided, arch: Arch) -> Model:
    """The network with the operations of `arch` alone, and the same weights."""
    net = supernet_of(network)
    with torch.device("meta"):  # no fresh weights are drawn
        part = net.smaller(arch)
    weights = net.state_dict()
    # clones keep the memory format, which decides the last bits
    inherited = {name: weights[name].clone() for name in part.state_dict()}
    part.load_state_dict(inherited, assign=True)
    mean = network.model.mean.flatten().tolist()
    std = network.model.std.flatten().tolist()
    return Model(part, mean, std).eval()


def pruned(network: Guided, train: Samples) -> Guided:
    """Without the operations that none of these samples takes.

    Another sample that would have taken one takes the most likely of those that are left.
    """
    paths = paths_of(network, train)
    taken = []
    for slot in range(paths.shape[1]):
        taken.append(tuple(sorted(set(paths[:, slot].tolist()))))
    arch = Arch(space_name(network), tuple(taken))
    guide = deepcopy(guide_of(network))
    guide.leave_out_all_but(arch)
    return Guided(along(network, arch), guide).eval()


# What is said of it


def is_unchanged(network: Guided, written: Guided | Model, part: Samples) -> np.ndarray:
    """[samples]: whether the written network has all operations of a sample's path."""
    paths = paths_of(network, part)
    unchanged = np.ones(len(paths), dtype=bool)
    for slot, options in enumerate(supernet_of(written).arch.choice):
        unchanged &= np.isin(paths[:, slot], options)
    return unchanged


def accuracy_of(network: nn.Module, part: Samples, task: Task) -> float | None:
    scores = answered(network, part.x, "cpu")
    measured = metric_of(task.kind).measure(scores.numpy(), part.y.numpy(), len(task.labels))
    return measured.value


def mean_macs(network: nn.Module, part: Samples) -> int:
    """Of one sample: each costs what its own path costs."""
    with Meter() as meter:
        answered(network, part.x, "cpu")
    return round(meter.macs / len(part))


def latencies(
    networks: Mapping[PathName, nn.Module], samples: torch.Tensor
) -> dict[PathName, dict[int, float]]:
    """Milliseconds of one call, by the number of samples at a time; see cost/timing.py.

    Every turn takes other samples: their paths take different times.
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
    """Calls a network with one batch of the samples after the other."""

    def __init__(self, whole: Whole, samples: torch.Tensor, batch: int) -> None:
        self.whole = whole
        self.batch = batch
        self.samples = cycle(samples)

    def __call__(self) -> torch.Tensor:
        batch = torch.stack([next(self.samples) for _ in range(self.batch)])
        scores: torch.Tensor = self.whole(batch)
        return scores


# Whether it is right


@torch.no_grad()
def check_against_run(
    network: Guided, written: Guided | Model, own: OwnSamples, samples: torch.Tensor
) -> None:
    """Where a sample goes its own way in both, both must answer alike, in a batch and alone."""
    whole = Whole(written)
    at_hand = Samples(samples, torch.zeros(len(samples), dtype=torch.int64))
    for part in (own.test, own.train, at_hand):
        if not len(part):
            continue
        same_way = torch.from_numpy(is_unchanged(network, written, part))
        x = part.x[same_way][:COMPARED]
        if not len(x):
            continue
        for batch in (x, *x[:COMPARED_ALONE].split(1)):
            check_answers(network(batch), whole(batch))


def check_answers(expected: torch.Tensor, answers: torch.Tensor) -> None:
    largest = float((expected - answers).abs().max())
    if largest > TOLERANCE * max(1.0, float(expected.abs().max())):
        raise FedloomError(
            "a network that leaves must answer as the run's own does",
            f"for samples of the same path its scores differ by up to {largest:.3g}",
            "report this, with the run's folder",
            code=1,
        )

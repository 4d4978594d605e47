"""The user's device profiles.

`fedloom profile` measures them. They are stored by name, and found by name or file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean

from fedloom.cost.limits import Estimator
from fedloom.cost.profile import Entry, Machine, Profile, read_profile, this_machine
from fedloom.cost.steps import Piece, Steps, model_of
from fedloom.cost.timing import Progress, in_turns
from fedloom.data.fetching.places import home
from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.methods import searched
from fedloom.nets.model import Model
from fedloom.types import Arch, Json, Task

NAME = "this-machine"  # default name of a profile
P95 = 0.95  # the quantile of latencies over a client's samples


def folder() -> Path:
    return home() / "profiles"


def place(name: str) -> Path:
    """The path of a profile: a file as it is, or a name in the user's data folder."""
    if "/" in name or name.endswith(".json"):
        return Path(name)
    if not re.fullmatch(r"\w[\w.-]*", name):
        advice = "use letters, digits, - and _, or a file ending in .json"
        raise FedloomError("a profile must have a plain name", f"got {name!r}", advice)
    return folder() / f"{name}.json"


def find(name: str) -> Profile:
    path = place(name)
    if not path.exists():
        names = ", ".join(file.stem for file in stored()) or "none yet"
        advice = f"measure it with `fedloom profile`, or choose from: {names}"
        raise FedloomError(f"profile {name} must be there", "there is no such file", advice)
    return read_profile(path)


def stored() -> list[Path]:
    return sorted(folder().glob("*.json"))


@dataclass(frozen=True)
class Measured:
    """A profile, its file, and how many of its entries are new."""

    path: Path
    profile: Profile
    new: int

    def to_json(self) -> Json:
        return {"profile": str(self.path), "new": self.new, **self.profile.to_json()}

    def table(self) -> None:
        """Print the profile's file, and its slowest operations."""
        from rich.console import Console

        from fedloom.report.latency_tables import profile_table

        title = f"{self.path}: {self.new} operations measured"
        measured_before = len(self.profile.entries) - self.new
        if measured_before:
            title = f"{title}, {measured_before} known before"
        Console(markup=False).print(profile_table(self.profile, title, most=10))


def measure(model: Model, path: Path, device: str, repeats: int, tell: Progress) -> Measured:
    """Measure the operations of `model` that the file does not have yet, and add them to it.

    The file is written completely or not at all.
    """
    machine = this_machine(device)
    steps = Steps(model.to(device))
    entries = entries_before(path, machine)
    missing = sorted(steps.all_pieces() - {entry.piece for entry in entries})
    passes = []
    for piece in missing:
        operation, inputs = steps.examples[piece]
        passes.append(partial(operation, *steps.tensors(inputs)))
    times = in_turns(passes, repeats, device, tell)
    for piece, timing in zip(missing, times, strict=True):
        entries.append(Entry(**piece._asdict(), **timing._asdict(), repeats=repeats))
    entries.sort(key=lambda entry: entry.piece)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    profile = Profile(machine=machine, made=now, entries=tuple(entries))
    save(profile, path)
    return Measured(path, profile, len(missing))


def entries_before(path: Path, machine: Machine) -> list[Entry]:
    """The entries of an existing profile, which must be of this machine."""
    if not path.exists():
        return []
    profile = read_profile(path)
    if profile.machine != machine:
        raise FedloomError(
            f"{path} must be of this machine and torch to be added to",
            f"it is of {profile.machine}, and this is {machine}",
            "name another with --name or --out",
        )
    return list(profile.entries)


def save(profile: Profile, path: Path) -> None:
    text = json.dumps(profile.to_json(), indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [text.encode()], durable=True)
    except OSError as error:
        rule = f"{path} must be a file that can be written"
        reason = error.strerror or type(error).__name__
        raise FedloomError(rule, reason, "name another with --out") from None


def possible_pieces(task: Task) -> set[Piece]:
    """The operations of all networks that a run of this task may end with.

    The set is empty if they are not networks of a search space.
    """
    model = model_of(task, searched(task))
    if model is None:
        return set()
    return Steps(model).all_pieces()


def check_covers(task: Task, name: str) -> None:
    """Refuse a profile that does not cover every network that the run may find.

    A method without a search space passes, as it may be part of a comparison.
    """
    find(name).latency_ms(dict.fromkeys(possible_pieces(task), 1), f"profile {name}")


def check_searchable(task: Task) -> None:
    """Refuse --profile for a single run whose network is not of a search space."""
    if not possible_pieces(task):
        raise FedloomError(
            "--profile must be given to networks of a search space",
            f"{task.method} trains another one here",
            "leave --profile out, or search, or name a genotype",
        )


@dataclass(frozen=True)
class SampleLatency:
    """The latency per sample in milliseconds, over the samples of a client."""

    mean: float | None  # None: the network is not of a search space
    p95: float | None = None  # None if all samples take the same path; `worst` too
    worst: float | None = None


class Latencies:
    """Latencies of networks as sums over a profile's operations, without samplers and dispatch."""

    def __init__(self, task: Task, name: str) -> None:
        model = model_of(task, searched(task))
        self.estimator: Estimator | None = None
        if model is not None:
            self.estimator = Estimator(model, find(name), f"profile {name}")

    def of_network(self, architecture: Json) -> SampleLatency:
        if self.estimator is None or not isinstance(architecture, Mapping):
            return SampleLatency(None)
        return SampleLatency(self.estimator.latency_ms(Arch.from_plain(architecture)))

    def of_paths(self, paths: Sequence[Json]) -> SampleLatency:
        """The latency over samples that take different paths.

        Every path has its operations and the number of its samples.
        """
        if self.estimator is None:
            return SampleLatency(None)
        space = self.estimator.steps.net.space
        latencies: list[float] = []
        for path in paths:
            arch = Arch(space.name, tuple((option,) for option in path["path"]))
            latency = self.estimator.latency_ms(arch)
            assert latency is not None  # the estimator has a profile
            latencies += [latency] * path["samples"]
        latencies.sort()
        place = math.ceil(P95 * len(latencies)) - 1
        return SampleLatency(fmean(latencies), latencies[place], latencies[-1])

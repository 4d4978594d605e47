"""The runs that are evidence for FedorAS: one trial per row, and how its command line is made.

Most trials need the finished run of `fedoras` of the same partition and seed: its architectures,
its tiers' limits, or the MACs that it spent. So the matrix says what a trial needs, and the command
line is made once that exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch import nn

from fedloom.cost.count import macs
from fedloom.networks import NETWORKS
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult

# Sizes, chosen so that the whole takes at most two hours on two idle cores (evidence_fedoras.py has
# the estimate).
IMAGES = 4000
PIXELS = 16
CLIENTS = 10
LIMITS = "300k,max"  # by the paper's rule two tiers would be 828k and 1,361k MACs: hardly two
TIERS = 2
EPOCHS = 2
SUPERNET_ROUNDS = 24
TUNE_ROUNDS = 6
SERVER_SHARE = 0.1
MODELS = 64
POOL = 32
SAMPLE = 16
SCORING_ROUNDS = 3  # generations of --models paths, where clients score
TOP = 6  # paths per tier that are tuned to compare their scores with their final figures
TOP_ROUNDS = 2  # of each of them

ROUNDS = SUPERNET_ROUNDS + TUNE_ROUNDS
PARTITIONS = ("dirichlet:1.0", "dirichlet:0.1")
SKEWED = PARTITIONS[1]
SIXTEENTHS = 16
BASE = "fedoras"

Flags = dict[str, object]


@dataclass(frozen=True)
class Setting:
    """Where the data is, and where runs are kept."""

    out: Path
    images: Path
    speech: Path | None = None
    text: Path | None = None

    def folder(self, trial: str, partition: str, seed: int) -> Path:
        return self.out / trial / partition.replace(":", "-") / f"seed-{seed}"


@dataclass(frozen=True)
class Case:
    """One run: a trial with one partition and one seed."""

    trial: Trial
    partition: str
    seed: int

    @property
    def title(self) -> str:
        return f"{self.trial.name} {self.partition} seed {self.seed}"

    def folder(self, setting: Setting) -> Path:
        return setting.folder(self.trial.name, self.partition, self.seed)

    def base(self, setting: Setting) -> Path:
        return setting.folder(BASE, self.partition, self.seed)


FlagsOf = Callable[[Case, Setting], Flags]


@dataclass(frozen=True)
class Trial:
    """A method with its options; `needs_base`: it can start once the run of `fedoras` is done."""

    name: str
    method: str
    flags: FlagsOf
    needs_base: bool = False
    partitions: tuple[str, ...] = PARTITIONS
    most_seeds: int | None = None  # None: all

    def seeds(self, asked: Sequence[int]) -> Sequence[int]:
        return asked[: self.most_seeds]


class NotPossible(Exception):
    """The reason why a trial has nothing to run, such as a tier without a control."""


# Runs


def is_finished(folder: Path) -> bool:
    return (folder / RESULT).exists()


def finished_result(folder: Path) -> RunResult | None:
    if not is_finished(folder):
        return None
    return RunResult.read(folder / RESULT)


def command_of(case: Case, setting: Setting) -> list[str]:
    """The arguments of `fedloom` for a case. An interrupted run is resumed."""
    folder = case.folder(setting)
    if (folder / "config.toml").exists():
        return ["resume", str(folder), "--quiet"]
    command = ["run", case.trial.method]
    for name, value in case.trial.flags(case, setting).items():
        flag = f"--{name.replace('_', '-')}"
        if name.startswith("set "):
            flag = "--set"
            value = f"{name.removeprefix('set ')}={value}"
        command += [flag, str(value)]
    return [*command, "--workers", "1", "--quiet", "--out", str(folder)]


def cases_of(trials: Sequence[Trial], seeds: Sequence[int]) -> list[Case]:
    """All cases, trial after trial, so that the most important ones are complete first."""
    cases = []
    for trial in trials:
        for seed in trial.seeds(seeds):
            for partition in trial.partitions:
                cases.append(Case(trial, partition, seed))
    return cases


# Flags that several trials share


def data_flags(case: Case, setting: Setting) -> Flags:
    return {
        "data": setting.images,
        "resize": PIXELS,
        "clients": CLIENTS,
        "partition": case.partition,
        "seed": case.seed,
        "set data.server_share": SERVER_SHARE,
        "evaluate_every": 1000,
    }


def search_flags(case: Case, setting: Setting) -> Flags:
    return {
        **data_flags(case, setting),
        "space": "cnn-tiny",
        "tiers": LIMITS,
        "rounds": ROUNDS,
        "supernet_share": SUPERNET_ROUNDS / ROUNDS,
        "epochs": EPOCHS,
        "models": MODELS,
        "pool": POOL,
        "sample": SAMPLE,
    }


def searched(**options: object) -> FlagsOf:
    """FedorAS with some options other than the defaults."""

    def flags(case: Case, setting: Setting) -> Flags:
        return {**search_flags(case, setting), **options}

    return flags


def scored_by_clients(clients: int) -> FlagsOf:
    """As many rounds of the supernet as the others, then one round per generation."""
    rounds = SUPERNET_ROUNDS + SCORING_ROUNDS + TIERS

    def flags(case: Case, setting: Setting) -> Flags:
        return {
            **search_flags(case, setting),
            "rounds": rounds,
            "search_share": SCORING_ROUNDS / rounds,
            "supernet_share": SUPERNET_ROUNDS / (rounds - SCORING_ROUNDS),
            "score": "federated",
            "score_clients": clients,
        }

    return flags


def several_tuned() -> FlagsOf:
    rounds = SUPERNET_ROUNDS + TIERS * TOP * TOP_ROUNDS
    return searched(tune_top=TOP, rounds=rounds, supernet_share=SUPERNET_ROUNDS / rounds)


def from_scratch(equal: str) -> FlagsOf:
    """The finished run's architectures with fresh weights, on its data, tiers and budget."""

    def flags(case: Case, setting: Setting) -> Flags:
        return {
            "paths": case.base(setting),
            "start": "random",
            "equal": equal,
            "evaluate_every": 1000,
        }

    return flags


def control_paths(case: Case, setting: Setting) -> Flags:
    """A random path of equal cost for each tier, on the same supernet, tuned for as long."""
    paths = []
    for tier in base_of(case, setting).tiers:
        if tier.control.path is None:
            raise NotPossible(f"tier {tier.tier} has no control: {tier.control.reason}")
        paths.append(tier.control.path)
    file = setting.out / "paths" / f"control-{case.partition.replace(':', '-')}-{case.seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(paths))
    return {**search_flags(case, setting), "paths": file}


# Baselines, for the MACs that the finished run spent


def base_of(case: Case, setting: Setting) -> RunResult:
    result = finished_result(case.base(setting))
    if result is None:
        raise NotPossible("the run of fedoras is not finished")
    return result


def spent(result: RunResult) -> int:
    """The MACs of all clients and of the server."""
    assert result.macs is not None
    return result.macs + result.server_macs


def budget(amount: float) -> Flags:
    return {"equal": "macs", "set budget.amount": amount, "rounds": ROUNDS, "epochs": EPOCHS}


def in_widths(case: Case, setting: Setting) -> Flags:
    """A plain CNN in the largest width that fits each tier's limit."""
    base = base_of(case, setting)
    (unit,) = base.tiers[0].limit
    limits = [f"{tier.limit[unit]:.0f}" for tier in base.tiers]
    return {
        **data_flags(case, setting),
        **budget(spent(base)),
        "network": "cnn",
        "tiers": ",".join(limits),
        "cost": unit,
    }


def in_one_width(case: Case, setting: Setting) -> Flags:
    return {**data_flags(case, setting), **budget(spent(base_of(case, setting))), "network": "cnn"}


def plain_cnn(tier: int) -> FlagsOf:
    """FedAvg of a CNN that costs as much per sample as the tier's network; tiers share the budget.

    All clients train it, those of lower tiers too: that favours the baseline.
    """

    def flags(case: Case, setting: Setting) -> Flags:
        base = base_of(case, setting)
        width = nearest_width(base.tiers[tier - 1].macs)
        return {
            **data_flags(case, setting),
            **budget(spent(base) / TIERS),
            "network": "cnn",
            "width": width,
        }

    return flags


def nearest_width(target: float) -> float:
    """The width with the nearest MACs per sample, in sixteenths."""
    widths = [step / SIXTEENTHS for step in range(1, 2 * SIXTEENTHS + 1)]
    return min(widths, key=lambda width: abs(macs_of_cnn(width) - target))


@cache
def macs_of_cnn(width: float) -> int:
    shape = (3, PIXELS, PIXELS)
    network: nn.Module = NETWORKS.get("cnn")(shape, 10, width)
    return macs(network, shape)


def cells(case: Case, setting: Setting) -> Flags:
    """FedNAS in cells as narrow as cnn-tiny."""
    small: Flags = {"cells": 3, "channels": 8, "nodes": 2}
    return {**data_flags(case, setting), **budget(spent(base_of(case, setting))), **small}


# Smoke: the two other kinds of data


def natural(source: str, folder: Path | None, options: Mapping[str, object]) -> Flags:
    if folder is None:
        raise NotPossible(f"the folder of {source} was not given")
    return {
        "data": source,
        "data_dir": folder,
        "partition": "natural",
        "evaluate_every": 1000,
        **options,
    }


def speech(case: Case, setting: Setting) -> Flags:
    options = {
        "space": "cnn-s",
        "tiers": TIERS,
        "epochs": 1,
        "rounds": 20,
        "supernet_share": 0.7,
        "models": 16,
        "pool": 8,
        "sample": 8,
        "comm": 0.5,
        "seed": case.seed,
        "lr": 0.05,
        "set data.server_share": SERVER_SHARE,
    }
    return natural("fsdd", setting.speech, options)


def text(case: Case, setting: Setting) -> Flags:
    options = {
        "clients": 100,
        "participation": 0.06,
        "space": "rnn",
        "tiers": TIERS,
        "epochs": 1,
        "rounds": 24,
        "supernet_share": 0.7,
        "models": 16,
        "pool": 8,
        "sample": 8,
        "seed": case.seed,
        "set data.server_share": 0.05,
    }
    return natural("shakespeare", setting.text, options)


# In the order of importance
TRIALS = (
    Trial(BASE, "fedoras", searched()),
    Trial("scratch-rounds", "fedoras", from_scratch("rounds"), needs_base=True),
    Trial("control", "fedoras", control_paths, needs_base=True),
    Trial("scratch-macs", "fedoras", from_scratch("macs"), needs_base=True),
    Trial("aggregate-fedavg", "fedoras", searched(aggregate="fedavg")),
    Trial("fjord", "fjord", in_widths, needs_base=True),
    Trial("heterofl", "heterofl", in_widths, needs_base=True),
    Trial("cnn-tier-1", "fedavg", plain_cnn(1), needs_base=True),
    Trial("cnn-tier-2", "fedavg", plain_cnn(2), needs_base=True),
    Trial("comm-1", "fedoras", searched(comm=1)),
    Trial("comm-0.25", "fedoras", searched(comm=0.25)),
    Trial("smoke-speech", "fedoras", speech, partitions=("natural",), most_seeds=1),
    Trial("smoke-text", "fedoras", text, partitions=("natural",), most_seeds=1),
    Trial(
        "zerofl", "zerofl", in_one_width, needs_base=True, partitions=PARTITIONS[:1], most_seeds=1
    ),
    Trial("fednas", "fednas", cells, needs_base=True, partitions=(SKEWED,), most_seeds=1),
    Trial("score-clients-2", "fedoras", scored_by_clients(2), partitions=(SKEWED,)),
    Trial("score-clients-4", "fedoras", scored_by_clients(4), partitions=(SKEWED,)),
    Trial("score-clients-8", "fedoras", scored_by_clients(8), partitions=(SKEWED,)),
    Trial("score-clients-all", "fedoras", scored_by_clients(CLIENTS), partitions=(SKEWED,)),
    Trial("tune-top", "fedoras", several_tuned(), partitions=(SKEWED,)),
    Trial("score-bn-batch", "fedoras", searched(score_bn="batch"), partitions=(SKEWED,)),
    Trial(
        "score-bn-recalibrated", "fedoras", searched(score_bn="recalibrated"), partitions=(SKEWED,)
    ),
    Trial(
        "score-samples-0.2",
        "fedoras",
        searched(score="central", score_samples=0.2),
        partitions=(SKEWED,),
    ),
    Trial(
        "score-samples-0.5",
        "fedoras",
        searched(score="central", score_samples=0.5),
        partitions=(SKEWED,),
    ),
    Trial("search-random", "fedoras", searched(search="random"), partitions=(SKEWED,)),
    Trial("random-tier", "fedoras", searched(paths="random", start="random"), partitions=(SKEWED,)),
    Trial(
        "random-all",
        "fedoras",
        searched(paths="random", start="random", eligible="all"),
        partitions=(SKEWED,),
    ),
)

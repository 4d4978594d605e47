"""What the evidence for FedNAS and SPIDER compares: data sets, methods with rates, and folders.

`evidence_fair.py` makes the runs, `fair_tables.py` the tables of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedloom.records.comparison import folder_name
from fedloom.records.result import RunResult
from fedloom.records.rows import METRICS_FILE, read_rows
from fedloom.runs.result_of_rounds import stage_ends

CELLS = "cells=3,channels=8,nodes=2,epochs=1,batch=32"
SEARCH = f"ops=s2,{CELLS},alpha_lr=0.003"
PLAIN = "epochs=1,batch=32"
GRID = ("0.03", "0.1")  # learning rates that every method is tuned over


@dataclass(frozen=True)
class Trial:
    """A row of the tables: a variant without its rate."""

    name: str
    variant: str
    options: str
    rates: tuple[str, str, str]  # by data set, in the order of DATA_SETS

    def method(self, rate: str) -> str:
        """The variant as `fedloom compare` takes it."""
        return with_options(self.variant, f"lr={rate},{self.options}")


def with_options(variant: str, options: str) -> str:
    if ":" in variant:
        return f"{variant},{options}"
    return f"{variant}:{options}"


@dataclass(frozen=True)
class DataSet:
    name: str
    title: str
    file: str
    seeds: tuple[int, ...]
    rounds: int
    flags: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The place among all data sets, which is also the place of its rates."""
        return [data_set.name for data_set in DATA_SETS].index(self.name)


DATA_SETS = (
    DataSet("digits", "Digits", "digits", (0, 1, 2, 3, 4), 20),
    DataSet(
        "cifar",
        "CIFAR-10 at 16×16",
        "cifar16.npz",
        (0, 1, 2),
        20,
        ("--set", "data.test=0.5", "--min-samples", "40"),
    ),
    DataSet(
        "pneumonia",
        "PneumoniaMNIST at 14×14",
        "pneumonia14.npz",
        (0, 1, 2),
        12,
        ("--set", "data.test=0.75", "--min-samples", "40"),
    ),
)
DIGITS = DATA_SETS[0]

TRIALS = (
    Trial(
        "fednas, personal, adapt", "fednas:personal=true,finish=adapt", SEARCH, (".1", ".1", ".1")
    ),
    Trial(
        "its control (adapt)",
        "fednas:random,personal=true,finish=adapt",
        SEARCH,
        (".1", ".1", ".1"),
    ),
    Trial("fednas, personal, cut", "fednas:personal=true", SEARCH, (".03", ".1", ".03")),
    Trial("its control (cut)", "fednas:random,personal=true", SEARCH, (".03", ".03", ".1")),
    Trial("fednas, one network for all", "fednas", SEARCH, (".1", ".1", ".1")),
    Trial("its control (one for all)", "fednas:random", SEARCH, (".1", ".1", ".03")),
    Trial("spider", "spider", CELLS, (".03", ".03", ".03")),
    Trial("its control (spider)", "spider:random", CELLS, (".1", ".1", ".03")),
    Trial("local-adaptation, CNN", "local-adaptation", PLAIN, (".1", ".1", ".03")),
    Trial("ditto, CNN", "ditto", PLAIN, (".1", ".1", ".1")),
    Trial("fedavg, CNN", "fedavg", PLAIN, (".1", ".1", ".1")),
)


def trial_of(name: str) -> Trial:
    for trial in TRIALS:
        if trial.name == name:
            return trial
    raise KeyError(name)


ADAPT = trial_of("fednas, personal, adapt")
SPIDER = trial_of("spider")

LAMBDAS = ("0", "0.01", "1")  # beside 0.1, which the comparison on digits has
SHARES = ("0.15", "0.25", "0.35", "0.5")
SEARCHERS = {
    "fednas:perturbation": "perturbation",
    "fednas": "MiLeNAS (α)",
    "fednas:random": "by chance",
}


def spider_with(lam: str) -> str:
    return f"spider:lr=0.03,lam={lam},{CELLS}"


def searcher_with(variant: str, rate: str) -> str:
    return with_options(variant, f"lr={rate},{SEARCH}")


def appendix_with(rate: str) -> str:
    """SPIDER's appendix C: MiLeNAS's gradients choose the operations instead of perturbation."""
    return f"spider:lr={rate},searcher=milenas,{CELLS}"


@dataclass(frozen=True)
class EqualMacs:
    """A CNN of the comparison, with the MACs that one of its searches spent with the same seed."""

    plain: Trial
    search: Trial
    data_set: DataSet

    @property
    def label(self) -> str:
        return f"{self.plain.variant}-of-{self.search.variant.partition(':')[0]}"

    def folder(self, out: Path, seed: int) -> Path:
        return out / f"macs-{self.data_set.name}" / f"{self.label}-seed{seed}"

    def runs(self, out: Path) -> Runs:
        return Runs(out / f"macs-{self.data_set.name}")


def equal_macs() -> Iterator[EqualMacs]:
    for data_set in DATA_SETS:
        for name in ("local-adaptation, CNN", "ditto, CNN"):
            for search in (ADAPT, SPIDER):
                yield EqualMacs(trial_of(name), search, data_set)


# Where runs are


class Runs:
    """Finished runs in these folders, by label and seed."""

    def __init__(self, *folders: Path) -> None:
        self.results: dict[str, dict[int, RunResult]] = {}
        for folder in folders:
            for path in sorted(folder.glob("*-seed*/result.json")):
                label = path.parent.name.rpartition("-seed")[0]
                result = read_run(path.parent)
                self.results.setdefault(label, {})[result.seed] = result

    def of(self, method: str, seeds: Sequence[int] | None = None) -> list[RunResult]:
        """The runs in the order of their seeds; an empty list if there are none."""
        by_seed = self.results.get(folder_name(method), {})
        return [by_seed[seed] for seed in sorted(by_seed) if seeds is None or seed in seeds]


def read_run(folder: Path) -> RunResult:
    """The result, with the balanced accuracy of its earlier stages.

    Older files have it only in the rows of their rounds.
    """
    result = RunResult.read(folder / "result.json")
    names = [end.stage for end in result.stages]
    if not names or any(end.beside for end in result.stages):
        return result
    return result.replace(stages=stage_ends(names, read_rows(folder / METRICS_FILE)))


def comparison_of(out: Path, data_set: DataSet) -> Runs:
    return Runs(out / data_set.name)


def lambda_folders(out: Path) -> tuple[Path, Path]:
    """Two folders: the second holds seeds that the first does not have."""
    return out / "lambda", out / "lambda-more"


def searcher_folders(out: Path, data_set: DataSet) -> tuple[Path, Path]:
    """Two folders: the first may hold an earlier comparison with one rate for all methods.

    What is missing there goes into the second.
    """
    return out / f"perturbation-{data_set.name}", out / f"perturbation-{data_set.name}-tuned"


def tuning_folder(out: Path, data_set: DataSet, variant: str, rate: str) -> Path:
    return tuning_run(searcher_folders(out, data_set)[1], searcher_with(variant, rate))


def appendix_folder(out: Path, data_set: DataSet) -> Path:
    return out / f"appendix-{data_set.name}"


def tuning_run(folder: Path, method: str) -> Path:
    return folder / f"tune-{folder_name(method)}"


def chosen_rate(out: Path, data_set: DataSet, variant: str) -> str | None:
    return best_rate({rate: tuning_folder(out, data_set, variant, rate) for rate in GRID})


def appendix_rate(out: Path, data_set: DataSet) -> str | None:
    folder = appendix_folder(out, data_set)
    return best_rate({rate: tuning_run(folder, appendix_with(rate)) for rate in GRID})


def best_rate(runs: Mapping[str, Path]) -> str | None:
    """The best rate on validation data of the first seed; None: no rate could be judged."""
    best = None
    best_figure = -1.0
    for rate, folder in runs.items():
        path = folder / "result.json"
        if not path.exists():
            continue
        figure = RunResult.read(path).validation
        if figure is not None and figure > best_figure:
            best = rate
            best_figure = figure
    return best

"""Evidence for auto: comparisons that can be interrupted, and the tables made of them.

    python bench/evidence_auto.py run --data DATA --out evidence
    python bench/evidence_auto.py plan --data DATA --out evidence
    python bench/evidence_auto.py tables --data DATA --out evidence > tables.md

`evidence_data.py` makes the folder DATA. All runs of a data set have the same splits, seeds and
budget of training MACs: what 20 rounds of FedAvg with fine-tuning take, the usual budget of
`fedloom auto`. A comparison that is finished is not run again; one that was interrupted goes on.

baselines   FedAvg with fine-tuning, and Ditto, each with the rate that is best on validation data
auto        auto, and auto without each of its decisions
draw        the same decisions drawn at random, another draw for every seed
searches    two of the papers' searches at a small size
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from comparisons import Trial, carry_out, finished, paired_difference
from fedloom.records.result import ClientResult, RunResult

SEEDS = (0, 1, 2, 3, 4)
CONTROL = "local-adaptation"
BASELINES = (CONTROL, "ditto")
SEARCHES = ("spider:lr=0.03", "fednas:lr=0.1,personal=true")
SIZES = ("1", "0.7", "0.5", "0.35")
KINDS = ("auto", "baselines", "draw", "searches")
ABLATIONS = ("prior=off", "changes=none", "tune=never", "stop=never")
WITHOUT_CHANGES = ("prior=off", "tune=never", "stop=never")  # where there are none
MANY_ROUNDS = 4000  # the budget ends every run long before
RARELY = 50  # rounds between evaluations, which decide nothing here


@dataclass(frozen=True)
class DataSet:
    """Data, how they are shared out, and what every run on them may spend."""

    name: str
    title: str
    flags: tuple[str, ...]  # of `fedloom compare`
    budget: str  # MACs of training
    rates: tuple[str, ...] = ("0.1", "0.05", "0.03")  # that the baselines are tuned over
    rate: str = ""  # of auto, if not its usual one
    width: str = ""  # of every method's network, if not 1
    changes: tuple[str, ...] = ()  # that may be drawn
    kinds: tuple[str, ...] = ("auto", "baselines", "draw")
    ablations: tuple[str, ...] = ABLATIONS
    percent: bool = True  # figures are shares of right answers


IMAGES = ("flip", "crop:2", "rotate:10")
SOUNDS = ("timeshift:5", "hiss:0.2", "timemask:6", "bandmask:6")
SKEWED = ("--clients", "10", "--partition", "dirichlet:0.3")
BY_NATURE = ("--partition", "natural")

DATA_SETS = (
    DataSet(
        "digits",
        "Digits, 8×8",
        ("--data", "digits", *SKEWED),
        "13.5G",
        changes=IMAGES,
        kinds=KINDS,
    ),
    DataSet(
        "table",
        "Breast cancer, a table",
        ("--data", "breast-cancer", "--clients", "6", "--partition", "dirichlet:0.3"),
        "0.3G",
        ablations=WITHOUT_CHANGES,
    ),
    DataSet(
        "cifar16",
        "CIFAR-10 at 16×16",
        ("--data", "DATA/cifar16.npz", *SKEWED),
        "96G",
        changes=IMAGES,
        kinds=KINDS,
    ),
    DataSet(
        "pneumonia",
        "PneumoniaMNIST at 14×14",
        ("--data", "DATA/pneumonia14.npz", "--clients", "8", "--partition", "dirichlet:0.3"),
        "59G",
        changes=IMAGES,
        kinds=KINDS,
    ),
    DataSet(
        "fsdd",
        "Spoken digits, by speaker",
        ("--data", "fsdd", *BY_NATURE),
        "340G",
        changes=SOUNDS,
        kinds=KINDS,
    ),
    DataSet(
        "cifar32",
        "CIFAR-10 at 32×32",
        ("--data", "DATA/cifar32.npz", *SKEWED),
        "191G",
        changes=IMAGES,
        kinds=KINDS,
    ),
    DataSet(
        "shakespeare",
        "Shakespeare, by role",
        ("--data", "DATA/shakespeare10.txt:16:8", *BY_NATURE),
        "296G",
        rates=("1", "0.5"),
        rate="0.5",
        width="0.25",
        ablations=WITHOUT_CHANGES,
        percent=False,
    ),
)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for auto")
    parser.add_argument("command", choices=["run", "plan", "tables"])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of all comparisons")
    names = [data_set.name for data_set in DATA_SETS]
    parser.add_argument("--only", action="append", choices=names, help="repeatable")
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable")
    arguments = parser.parse_args(words)
    only = arguments.only or names
    chosen = [data_set for data_set in DATA_SETS if data_set.name in only]
    if arguments.command == "tables":
        print("\n".join(tables(chosen, arguments.out)))
        print("\n".join(decisions(chosen, arguments.out)))
        return 0
    titles = {"auto": "auto", "baselines": "tuned", "draw": "drawn", "searches": "searches"}
    kinds = [titles[kind] for kind in arguments.kind or KINDS]
    worst = 0
    for data_set in chosen:
        for comparison in comparisons(data_set):
            if comparison.trial.title not in kinds:
                continue
            command = comparison.command(arguments.data)
            folder = arguments.out / comparison.trial.name
            if arguments.command == "plan":
                print("fedloom", *command, "--out", folder)
            else:
                worst = max(worst, carry_out(command, folder))
    return worst


@dataclass(frozen=True)
class Comparison:
    """One `fedloom compare`."""

    data_set: DataSet
    trial: Trial
    seeds: tuple[int, ...]

    def command(self, data: Path) -> list[str]:
        amount = f"budget.amount={in_macs(self.data_set.budget):g}"
        seeds = ",".join(map(str, self.seeds))
        flags = [flag.replace("DATA/", f"{data}/") for flag in self.data_set.flags]
        return [
            *("compare", *self.trial.methods, *flags, "--data-dir", str(data)),
            *("--rounds", str(MANY_ROUNDS), "--equal", "macs", "--set", amount),
            *("--seeds", seeds, *self.trial.flags),
            *("--evaluate-every", str(RARELY), "--workers", "0", "--quiet"),
        ]


def comparisons(data_set: DataSet) -> Iterator[Comparison]:
    """In the order in which they are run."""
    for kind in data_set.kinds:
        if kind == "auto":
            yield comparison_of(data_set, kind, "auto", variants_of_auto(data_set))
        elif kind == "baselines":
            methods = [variant(method, width_of(data_set)) for method in BASELINES]
            grid = ("--grid", f"lr={','.join(data_set.rates)}")
            yield comparison_of(data_set, kind, "tuned", methods, grid)
        elif kind == "searches":
            yield comparison_of(data_set, kind, "searches", SEARCHES, ("--small",))
        else:
            for seed in SEEDS:
                trial = Trial(f"{data_set.name}-draw{seed}", "drawn", (drawn(data_set, seed),))
                yield Comparison(data_set, trial, (seed,))


def comparison_of(
    data_set: DataSet, kind: str, title: str, methods: Sequence[str], flags: tuple[str, ...] = ()
) -> Comparison:
    trial = Trial(f"{data_set.name}-{kind}", title, tuple(methods), flags)
    return Comparison(data_set, trial, SEEDS)


def variants_of_auto(data_set: DataSet) -> list[str]:
    """Itself, without its race, and without each of its other decisions."""
    variants = []
    for ablation in ("", "sizes=1", *data_set.ablations):
        variants.append(variant("auto", rate_of(data_set), width_of(data_set), ablation))
    return variants


def rate_of(data_set: DataSet) -> str:
    if not data_set.rate:
        return ""
    return f"lr={data_set.rate}"


def width_of(data_set: DataSet) -> str:
    if not data_set.width:
        return ""
    return f"width={data_set.width}"


def drawn(data_set: DataSet, seed: int) -> str:
    """What auto decides, decided by throwing coins."""
    random = Random(f"{data_set.name} {seed}")
    size = random.choice(SIZES)
    prior = random.choice(("on", "off"))
    tune = random.choice(("always", "never"))
    changes = [change for change in data_set.changes if random.random() < 0.5]
    augment = "changes=none"
    if changes:
        augment = f"augment={'+'.join(changes)}"
    decisions = f"sizes={size},prior={prior},tune={tune},{augment},stop=never"
    return variant("auto", rate_of(data_set), width_of(data_set), decisions)


def variant(name: str, *options: str) -> str:
    words = ",".join(words for words in options if words)
    if not words:
        return name
    return f"{name}:{words}"


# Tables


def tables(data_sets: Sequence[DataSet], out: Path) -> Iterator[str]:
    for data_set in data_sets:
        yield f"### {data_set.title}"
        yield ""
        yield from table_of(data_set, out)
        yield ""


def table_of(data_set: DataSet, out: Path) -> Iterator[str]:
    figure = "perplexity"
    if data_set.percent:
        figure = "accuracy %"
    yield (
        f"| | seeds | {figure}, mean ± std over seeds | − fine-tuning | auto − it | worst client | "
        "pooled | parameters | MACs a sample, k | training, GMACs | rounds |"
    )
    yield "|---" * 11 + "|"
    rows = list(rows_of(data_set, out))
    control = figures_by_seed(data_set, runs_named(rows, "FedAvg with fine-tuning, tuned"))
    auto = figures_by_seed(data_set, runs_named(rows, "**auto**"))
    for row in rows:
        runs = row.runs
        if not runs:
            yield f"| {row.name} | not run |" + " |" * 9
            continue
        figures = figures_by_seed(data_set, runs)
        worst = [scale(data_set, run.spread.worst or 0) for run in runs]
        pooled = [scale(data_set, run.spread.pooled or 0) for run in runs]
        cells = [
            row.name,
            str(len(runs)),
            mean_and_std(list(figures.values())),
            paired_with(control, figures),
            paired_with(figures, auto),
            f"{fmean(worst):.1f}",
            f"{fmean(pooled):.1f}",
            f"{mean_over_clients(runs, 'params'):,.0f}",
            f"{mean_over_clients(runs, 'macs') / 1e3:,.0f}",
            f"{fmean((run.macs or 0) / 1e9 for run in runs):.1f}",
            f"{fmean(run.rounds for run in runs):.0f}",
        ]
        yield "| " + " | ".join(cells) + " |"


@dataclass(frozen=True)
class Row:
    """A row of a table, with its finished runs."""

    name: str
    runs: list[RunResult]


def rows_of(data_set: DataSet, out: Path) -> Iterator[Row]:
    by_kind: dict[str, list[Comparison]] = {}
    for comparison in comparisons(data_set):
        by_kind.setdefault(comparison.trial.title, []).append(comparison)
    names = {CONTROL: "FedAvg with fine-tuning, tuned", "ditto": "Ditto, tuned"}
    for comparison in by_kind["tuned"]:
        for method in comparison.trial.methods:
            name = names[method.partition(":")[0]]
            yield Row(name, finished(out, comparison.trial, method))
    for comparison in by_kind["auto"]:
        first, alone, *ablations = comparison.trial.methods
        yield Row("**auto**", finished(out, comparison.trial, first))
        yield Row("without the race (full width)", finished(out, comparison.trial, alone))
        for method, ablation in zip(ablations, data_set.ablations, strict=True):
            yield Row(f"`{ablation}`", finished(out, comparison.trial, method))
    drawings = []
    for comparison in by_kind.get("drawn", []):
        drawings += finished(out, comparison.trial, comparison.trial.methods[0])
    if drawings:
        yield Row("decisions drawn at random", drawings)
    for comparison in by_kind.get("searches", []):
        for method in comparison.trial.methods:
            yield Row(f"`{method}`, small", finished(out, comparison.trial, method))


def runs_named(rows: Sequence[Row], name: str) -> list[RunResult]:
    for row in rows:
        if row.name == name:
            return row.runs
    return []


def scale(data_set: DataSet, figure: float) -> float:
    if data_set.percent:
        return 100 * figure
    return figure


def figures_by_seed(data_set: DataSet, runs: Sequence[RunResult]) -> dict[int, float]:
    """The mean over clients of each seed's run."""
    figures = {}
    for run in runs:
        assert run.spread.mean is not None
        figures[run.seed] = scale(data_set, run.spread.mean)
    return figures


def mean_and_std(figures: Sequence[float]) -> str:
    if len(figures) < 2:
        return f"{fmean(figures):.1f}"
    return f"{fmean(figures):.1f} ± {stdev(figures):.1f}"


def paired_with(before: dict[int, float], after: dict[int, float]) -> str:
    """The second minus the first, over the seeds that both have."""
    seeds = sorted(set(before) & set(after))
    if len(seeds) < 2:
        return ""
    first = [before[seed] for seed in seeds]
    second = [after[seed] for seed in seeds]
    if first == second:
        return ""
    return paired_difference(first, second, 1)


def mean_over_clients(runs: Sequence[RunResult], name: str) -> float:
    figures = []
    for run in runs:
        for client in run.clients:
            figure = amount_of(client, name)
            if figure is not None:
                figures.append(figure)
    return fmean(figures)


def amount_of(client: ClientResult, name: str) -> float | None:
    amount: float | None = getattr(client, name)
    return amount


def decisions(data_sets: Sequence[DataSet], out: Path) -> Iterator[str]:
    """What auto decided on every seed."""
    yield "| | seed | size | augmentation | fine-tuning | rounds | share of the budget % |"
    yield "|---" * 7 + "|"
    for data_set in data_sets:
        comparison = next(comparisons(data_set))
        for run in finished(out, comparison.trial, comparison.trial.methods[0]):
            chosen = {decision.decision: decision.chosen for decision in run.decisions}
            cells = [
                data_set.title,
                str(run.seed),
                last_size(chosen),
                str(chosen.get("augmentation", "")),
                str(chosen.get("fine-tuning", "")),
                str(run.rounds),
                f"{100 * (run.macs or 0) / in_macs(data_set.budget):.0f}",
            ]
            yield "| " + " | ".join(cells) + " |"


def last_size(chosen: Mapping[str, object]) -> str:
    """What the last decision about the size was; nothing if there was none."""
    size = ""
    for decision, choice in chosen.items():
        if decision.startswith("size"):
            size = str(choice)
    return size


def in_macs(budget: str) -> float:
    assert budget.endswith("G")
    return float(budget[:-1]) * 1e9


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Evidence for FedNAS and SPIDER: three comparisons with their controls and plain CNNs, and the tables made of them.

    python bench/evidence_fair.py run digits|cifar|pneumonia|lambda|perturbation|share --data DATA --out OUT
    python bench/evidence_fair.py tables --out OUT > tables.md

DATA holds `cifar16.npz` and `pneumonia14.npz` (docs/results/fednas.md says what is in them). Rates are those that the
grid {0.03, 0.1} gave each method on validation data of seed 0. A comparison or run that was interrupted goes on when
the same command is given again. `share` asks validation data how long FedNAS should search.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedloom.evaluate.paired import Paired, holm, over_seeds, paired
from fedloom.records.result import RunResult

POINTS = 100  # accuracies are shown in points
SIGNIFICANT = 0.05

CELLS = "cells=3,channels=8,nodes=2,epochs=1,batch=32"
SEARCH = f"ops=s2,{CELLS},alpha_lr=0.003"
PLAIN = "epochs=1,batch=32"
BALANCED = "balanced_accuracy"


@dataclass(frozen=True)
class Trial:
    """A row of the tables: a variant without its rate."""

    name: str
    variant: str
    options: str
    rates: tuple[str, str, str]  # by data set, in the order of DATA_SETS

    def method(self, rate: str) -> str:
        """As `fedloom compare` takes it."""
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


DATA_SETS = (
    DataSet("digits", "Digits", "digits", (0, 1, 2, 3, 4), 20),
    DataSet(
        "cifar", "CIFAR-10 at 16×16", "cifar16.npz", (0, 1, 2), 20, ("--set", "data.test=0.5", "--min-samples", "40")
    ),
    DataSet(
        "pneumonia", "PneumoniaMNIST at 14×14", "pneumonia14.npz", (0, 1, 2), 12,
        ("--set", "data.test=0.75", "--min-samples", "40"),
    ),
)  # fmt: skip

TRIALS = (
    Trial("fednas, personal, adapt", "fednas:personal=true,finish=adapt", SEARCH, (".1", ".1", ".1")),
    Trial("its control (adapt)", "fednas:random,personal=true,finish=adapt", SEARCH, (".1", ".1", ".1")),
    Trial("fednas, personal, cut", "fednas:personal=true", SEARCH, (".03", ".1", ".03")),
    Trial("its control (cut)", "fednas:random,personal=true", SEARCH, (".03", ".03", ".1")),
    Trial("fednas, one network for all", "fednas", SEARCH, (".1", ".1", ".1")),
    Trial("its control (one for all)", "fednas:random", SEARCH, (".1", ".1", ".03")),
    Trial("spider", "spider", CELLS, (".03", ".03", ".03")),
    Trial("its control (spider)", "spider:random", CELLS, (".1", ".1", ".03")),
    Trial("local-adaptation, CNN", "local-adaptation", PLAIN, (".1", ".1", ".03")),
    Trial("ditto, CNN", "ditto", PLAIN, (".1", ".03", ".03")),
    Trial("fedavg, CNN", "fedavg", PLAIN, (".1", ".1", ".1")),
)

SPIDER = next(trial for trial in TRIALS if trial.name == "spider")

# What is claimed of each paper: that the second is ahead of the first.
CLAIMS = {
    "FedNAS": (
        ("one network for all against FedAvg's CNN", "fedavg, CNN", "fednas, one network for all"),
        ("`adapt` against local adaptation", "local-adaptation, CNN", "fednas, personal, adapt"),
        ("`adapt` against its control", "its control (adapt)", "fednas, personal, adapt"),
        ("`cut` against its control", "its control (cut)", "fednas, personal, cut"),
        ("one for all against its control", "its control (one for all)", "fednas, one network for all"),
        ("`adapt` against `cut`", "fednas, personal, cut", "fednas, personal, adapt"),
    ),
    "SPIDER": (
        ("against its control", "its control (spider)", "spider"),
        ("against local adaptation of the CNN", "local-adaptation, CNN", "spider"),
        ("against Ditto with the CNN", "ditto, CNN", "spider"),
        ("against FedNAS `adapt`", "fednas, personal, adapt", "spider"),
        ("against FedNAS `cut`", "fednas, personal, cut", "spider"),
        ("against FedNAS for all", "fednas, one network for all", "spider"),
    ),
}

LAMBDAS = ("0", "0.01", "1")  # beside 0.1, which the comparison on digits has
SHARES = ("0.15", "0.25", "0.35", "0.5")
SEARCHERS = ("fednas:perturbation", "fednas", "fednas:random")
WHAT = (*(data.name for data in DATA_SETS), "lambda", "perturbation", "share")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for FedNAS and SPIDER")
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument("what", nargs="?", choices=WHAT)
    parser.add_argument("--data", type=Path, default=Path("."), help="folder of the two .npz files")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    arguments = parser.parse_args(words)
    if arguments.command == "tables":
        print("\n".join(tables(arguments.out)))
        return 0
    if arguments.what is None:
        parser.error("run must be told what to run")
    for command in commands(arguments.what, arguments.data, arguments.out):
        folder = command[command.index("--out") + 1]
        if (Path(folder) / "run.json").exists():  # it was interrupted
            command = ["resume", folder, "--quiet"]
        print("fedloom", *command)
        code = subprocess.run([sys.executable, "-m", "fedloom", *command], check=False).returncode
        if code:
            return code
    return 0


# Runs


def commands(what: str, data: Path, out: Path) -> Iterator[list[str]]:
    """Behind `fedloom`."""
    if what == "share":
        yield from share_commands(out)
        return
    if what == "lambda":
        methods = [f"spider:lr=0.03,lam={value},{CELLS}" for value in LAMBDAS]
        yield compare(methods, DATA_SETS[0], data, out / what, seeds=(0, 1, 2))
        return
    if what == "perturbation":
        methods = [with_options(variant, f"lr=0.1,{SEARCH}") for variant in SEARCHERS]
        for data_set in DATA_SETS[:2]:
            command = compare(methods, data_set, data, out / f"{what}-{data_set.name}")
            yield [*command, "--set", "data.server_share=0.1"]
        return
    number, data_set = next((n, one) for n, one in enumerate(DATA_SETS) if one.name == what)
    methods = [trial.method(trial.rates[number]) for trial in TRIALS]
    yield [*compare(methods, data_set, data, out / what), "--match-params"]


def compare(
    methods: Sequence[str], data_set: DataSet, data: Path, out: Path, seeds: Sequence[int] | None = None
) -> list[str]:
    name = data_set.file
    if name.endswith(".npz"):
        name = str(data / name)
    listed = ",".join(map(str, seeds or data_set.seeds))
    return [
        "compare", *methods, "--data", name, "--clients", "8", "--partition", "dirichlet:0.2", "--seeds", listed,
        "--rounds", str(data_set.rounds), "--evaluate-every", str(data_set.rounds), "--workers", "1", "--quiet",
        "--out", str(out), *data_set.flags,
    ]  # fmt: skip


def share_commands(out: Path) -> Iterator[list[str]]:
    """The demo's search and one network for all, judged by validation data alone."""
    options = SEARCH.replace("=", " ").replace(",", " ").replace("alpha_lr", "alpha-lr").split()
    flags = [word if number % 2 else f"--{word}" for number, word in enumerate(options)]
    for share in SHARES:
        for seed in DATA_SETS[0].seeds:
            for kind, rounds in (("adapt", "12"), ("global", "20")):
                folder = out / f"share-{kind}-{share}-{seed}"
                if (folder / "result.json").exists():
                    continue
                personal = ["--personal", "true", "--finish", "adapt"] if kind == "adapt" else []
                yield [
                    "run", "fednas", *personal, "--search-share", share, *flags, "--lr", "0.1", "--data", "digits",
                    "--clients", "8", "--partition", "dirichlet:0.2", "--rounds", rounds, "--seed", str(seed),
                    "--select", "best", "--evaluate-every", rounds, "--workers", "1", "--quiet", "--out", str(folder),
                ]  # fmt: skip


# Tables


class Runs:
    """Finished runs of a comparison, by method and seed."""

    def __init__(self, folder: Path) -> None:
        self.results: dict[str, dict[int, RunResult]] = {}
        for path in sorted(folder.glob("*-seed*/result.json")):
            method = path.parent.name.rpartition("-seed")[0]
            result = RunResult.read(path)
            self.results.setdefault(method, {})[result.seed] = result

    def of(self, method: str) -> list[RunResult]:
        """In the order of their seeds; none: it was not run."""
        by_seed = self.results.get(method.replace(":", "_"), {})
        return [by_seed[seed] for seed in sorted(by_seed)]


def tables(out: Path) -> Iterator[str]:
    rows: dict[str, dict[str, list[RunResult]]] = {}
    for number, data_set in enumerate(DATA_SETS):
        runs = Runs(out / data_set.name)
        rows[data_set.name] = {trial.name: runs.of(trial.method(trial.rates[number])) for trial in TRIALS}
        yield from comparison_table(number, data_set, rows[data_set.name])
    yield from claims_tables(rows)
    yield from within_runs_table(rows)
    yield from lambda_table(out)
    yield from perturbation_tables(out)
    yield from share_table(out)


def by_seed(runs: Sequence[RunResult], name: str) -> dict[int, float]:
    """Means over clients, of the runs that have such a figure."""
    values = {}
    for run in runs:
        mean = run.spread.mean if name == "accuracy" else run.spread_of(name).mean
        if mean is not None:
            values[run.seed] = POINTS * mean
    return values


def figures(runs: Sequence[RunResult], name: str) -> list[float]:
    return list(by_seed(runs, name).values())


def in_words(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, std = over_seeds(values)
    return f"{mean:.1f} ± {std:.1f}" if std is not None else f"{mean:.1f}"


def differences(pairs: Sequence[tuple[Sequence[RunResult], Sequence[RunResult]]], name: str) -> list[str]:
    """The second minus the first of each pair, with p adjusted for all of them."""
    judged: list[Paired | None] = []
    for first, second in pairs:
        before = by_seed(first, name)
        after = by_seed(second, name)
        common = sorted(before.keys() & after.keys())
        if not common:
            judged.append(None)
            continue
        judged.append(paired([before[seed] for seed in common], [after[seed] for seed in common]))
    adjusted = holm([pair.p if pair is not None else None for pair in judged])
    return [difference_in_words(pair, p) for pair, p in zip(judged, adjusted, strict=True)]


def difference_in_words(pair: Paired | None, p: float | None) -> str:
    if pair is None:
        return "–"
    if pair.low is None or pair.high is None or p is None:
        return f"{signed(pair.difference)}, no interval"
    text = f"{signed(pair.difference)} [{signed(pair.low)}, {signed(pair.high)}]"
    if pair.low > 0 or pair.high < 0:
        text = f"**{text}**"
    told = "*" if p < SIGNIFICANT else ""
    return f"{text}, p {p:.3f}{told}" if p >= 0.001 else f"{text}, p < 0.001*"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def comparison_table(number: int, data_set: DataSet, rows: dict[str, list[RunResult]]) -> Iterator[str]:
    first = rows[TRIALS[0].name]
    if not first:
        return
    present = [trial for trial in TRIALS if rows[trial.name]]
    pairs = [(first, rows[trial.name]) for trial in present[1:]]
    by_accuracy = ["", *differences(pairs, "accuracy")]
    by_balance = ["", *differences(pairs, BALANCED)]
    two_classes = first[0].has_two_classes
    auc_title = " AUC |" if two_classes else ""
    yield f"### {data_set.title}\n"
    yield (
        "| method | lr | mean over clients | against the first | balanced | against the first |"
        f"{auc_title} std over clients | pooled | worst | shared model | parameters | MACs of the run | MB |"
    )
    yield "|---" * (14 if two_classes else 13) + "|"
    for trial, accuracy, balance in zip(present, by_accuracy, by_balance, strict=True):
        runs = rows[trial.name]
        auc = f" {in_words(figures(runs, 'auc'))} |" if two_classes else ""
        shared = [POINTS * run.shared_pooled for run in runs if run.shared_pooled is not None]
        std = fmean(POINTS * (run.spread.std or 0) for run in runs)
        pooled = fmean(POINTS * (run.spread.pooled or 0) for run in runs)
        worst = fmean(POINTS * (run.spread.worst or 0) for run in runs)
        params = fmean(client.params or 0 for run in runs for client in run.clients)
        giga = fmean((run.macs or 0) / 1e9 for run in runs)
        mega = fmean(run.traffic.of_training / 1e6 for run in runs)
        yield (
            f"| {trial.name} | {trial.rates[number]} | {in_words(figures(runs, 'accuracy'))} | {accuracy} | "
            f"{in_words(figures(runs, BALANCED))} | {balance} |{auc} {std:.1f} | {pooled:.1f} | {worst:.1f} | "
            f"{f'{fmean(shared):.1f}' if shared else ''} | {params / 1e3:.1f} k | {giga:.1f} G | {mega:.0f} |"
        )
    common = fmean(POINTS * (run.most_common_class or 0) for run in first)
    seeds = len(first)
    yield f"\n{seeds} seeds. Answering each client's most common class, whatever is shown, would give {common:.1f} %.\n"


def claims_tables(rows: dict[str, dict[str, list[RunResult]]]) -> Iterator[str]:
    for paper, claims in CLAIMS.items():
        for name, title in (("accuracy", "accuracy"), (BALANCED, "balanced accuracy")):
            yield f"### {paper}, differences by {title}\n"
            yield from claims_table(claims, rows, name)


def claims_table(
    claims: Sequence[tuple[str, str, str]], rows: dict[str, dict[str, list[RunResult]]], name: str
) -> Iterator[str]:
    """The family of an adjusted p is the whole table."""
    pairs = []
    for _, first, second in claims:
        for data_set in DATA_SETS:
            pairs.append((rows[data_set.name][first], rows[data_set.name][second]))
    cells = iter(differences(pairs, name))
    yield "| | " + " | ".join(data_set.title for data_set in DATA_SETS) + " |"
    yield "|---" * (1 + len(DATA_SETS)) + "|"
    for text, _, _ in claims:
        yield f"| {text} | " + " | ".join(next(cells) for _ in DATA_SETS) + " |"
    yield f"\np is adjusted for the {len(pairs)} differences of this table.\n"


def within_runs_table(rows: dict[str, dict[str, list[RunResult]]]) -> Iterator[str]:
    """Two figures of the same runs: does cutting gain, does a model of one's own gain, how unequal are clients?"""
    yield "### Within runs\n"
    yield "| | " + " | ".join(data_set.title for data_set in DATA_SETS) + " |"
    yield "|---" * (1 + len(DATA_SETS)) + "|"
    titles = {
        "FedNAS `cut`: the trained cut minus the tuned supernet, mean over clients": cut_gains,
        "SPIDER: personal models minus its shared one, pooled": personal_gains,
        "SPIDER's std over clients minus Ditto's": spreads_against("ditto, CNN"),
        "SPIDER's std over clients minus local adaptation's": spreads_against("local-adaptation, CNN"),
    }
    pairs = []
    for pairs_of in titles.values():
        pairs += [pairs_of(rows[data_set.name]) for data_set in DATA_SETS]
    judged = [paired(before, after) if before else None for before, after in pairs]
    adjusted = holm([pair.p if pair is not None else None for pair in judged])
    cells = iter([difference_in_words(pair, p) for pair, p in zip(judged, adjusted, strict=True)])
    for title in titles:
        yield f"| {title} | " + " | ".join(next(cells) for _ in DATA_SETS) + " |"
    yield f"\np is adjusted for the {len(pairs)} differences of this table.\n"


Numbers = tuple[list[float], list[float]]  # before and after, a number a seed


def cut_gains(rows: dict[str, list[RunResult]]) -> Numbers:
    runs = rows["fednas, personal, cut"]
    tuned = [next(stage.figure for stage in run.stages if stage.stage == "tune") for run in runs]
    return [POINTS * (figure or 0) for figure in tuned], figures(runs, "accuracy")


def personal_gains(rows: dict[str, list[RunResult]]) -> Numbers:
    runs = rows["spider"]
    shared = [POINTS * (run.shared_pooled or 0) for run in runs]
    return shared, [POINTS * (run.spread.pooled or 0) for run in runs]


def spreads_against(other: str) -> Callable[[dict[str, list[RunResult]]], Numbers]:
    def numbers(rows: dict[str, list[RunResult]]) -> Numbers:
        before = [POINTS * (run.spread.std or 0) for run in rows[other]]
        after = [POINTS * (run.spread.std or 0) for run in rows["spider"]]
        return before, after

    return numbers


def lambda_table(out: Path) -> Iterator[str]:
    others = Runs(out / "lambda")
    usual = Runs(out / "digits").of(SPIDER.method(SPIDER.rates[0]))[:3]
    if not others.results or not usual:
        return
    rows = {value: others.of(f"spider:lr=0.03,lam={value},{CELLS}") for value in LAMBDAS}
    texts = dict(zip(LAMBDAS, differences([(usual, runs) for runs in rows.values()], "accuracy"), strict=True))
    rows["0.1"] = usual
    yield "### λ of SPIDER, digits, three seeds\n"
    yield "| λ | mean over clients | against λ = 0.1 | balanced | worst |\n|---|---|---|---|---|"
    for value in sorted(rows, key=float):
        runs = rows[value]
        worst = fmean(POINTS * (run.spread.worst or 0) for run in runs)
        balanced = in_words(figures(runs, BALANCED))
        yield f"| {value} | {in_words(figures(runs, 'accuracy'))} | {texts.get(value, '')} | {balanced} | {worst:.1f} |"
    yield ""


def perturbation_tables(out: Path) -> Iterator[str]:
    for data_set in DATA_SETS[:2]:
        runs = Runs(out / f"perturbation-{data_set.name}")
        if not runs.results:
            continue
        rows = {variant: runs.of(with_options(variant, f"lr=0.1,{SEARCH}")) for variant in SEARCHERS}
        by_perturbation, by_alpha, by_chance = rows.values()
        texts = differences(
            [(by_alpha, by_perturbation), (by_chance, by_perturbation), (by_chance, by_alpha)], "accuracy"
        )
        yield f"### Perturbation against MiLeNAS, {data_set.title}\n"
        for variant, results in rows.items():
            balanced = in_words(figures(results, BALANCED))
            yield f"- {variant}: {in_words(figures(results, 'accuracy'))}, balanced {balanced}"
        yield f"- perturbation − α's gradients {texts[0]}; perturbation − chance {texts[1]}; α − chance {texts[2]}\n"


def share_table(out: Path) -> Iterator[str]:
    """By validation figures of the reported round."""
    for kind, title in (("adapt", "the demo's (adapt, 12 rounds)"), ("global", "one network for all (20 rounds)")):
        rows: dict[str, list[float]] = {}
        for share in SHARES:
            values = []
            for seed in DATA_SETS[0].seeds:
                path = out / f"share-{kind}-{share}-{seed}" / "result.json"
                if path.exists():
                    value = RunResult.read(path).validation
                    values.append(POINTS * (value or 0))
            rows[share] = values
        if any(len(values) < len(DATA_SETS[0].seeds) for values in rows.values()):
            continue
        yield f"### How long to search: {title}, digits, validation data\n"
        yield "| search_share | % by seed | mean | against 0.25 |\n|---|---|---|---|"
        others = [share for share in SHARES if share != "0.25"]
        judged = {share: paired(rows["0.25"], rows[share]) for share in others}
        adjusted = dict(zip(others, holm([judged[share].p for share in others]), strict=True))
        for share in SHARES:
            by_seed = ", ".join(f"{value:.1f}" for value in rows[share])
            text = difference_in_words(judged[share], adjusted[share]) if share in judged else ""
            yield f"| {share} | {by_seed} | {fmean(rows[share]):.1f} | {text} |"
        yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

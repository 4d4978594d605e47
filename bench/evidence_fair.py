"""Evidence for FedNAS and SPIDER: comparisons with controls and plain CNNs, and their tables.

    python bench/evidence_fair.py run WHAT --data DATA --out OUT
    python bench/evidence_fair.py tables --out OUT > tables.md

DATA holds `cifar16.npz` and `pneumonia14.npz` (docs/results/fednas.md says what is in them). Rates
are those that the grid {0.03, 0.1} gave each method on validation data of seed 0. If the same
command is given again, finished runs are not repeated, and interrupted ones are resumed.

WHAT is one of:

digits, cifar, pneumonia  the comparisons
macs                      CNNs with the MACs that the searches above spent, so it comes after them
lambda                    SPIDER with other λ
perturbation              FedNAS's searchers; the rate of each is tuned first
appendix                  SPIDER by MiLeNAS's gradients (its appendix C); the rate is tuned first
share                     how long FedNAS should search, by validation data

`--seeds` and `--rounds` are for trying a command out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fair_tables import tables
from fair_trials import (
    DATA_SETS,
    DIGITS,
    GRID,
    LAMBDAS,
    SEARCH,
    SEARCHERS,
    SHARES,
    TRIALS,
    DataSet,
    EqualMacs,
    Runs,
    appendix_folder,
    appendix_rate,
    appendix_with,
    chosen_rate,
    comparison_of,
    equal_macs,
    lambda_folders,
    searcher_folders,
    searcher_with,
    spider_with,
    tuning_folder,
    tuning_run,
    with_options,
)
from fedloom.records.comparison import folder_name
from fedloom.records.result import RunResult

WHAT = (*(data.name for data in DATA_SETS), "macs", "lambda", "perturbation", "appendix", "share")
SERVER_SAMPLES = ("--set", "data.server_share=0.1")  # perturbation is judged on them
# At equal MACs a run gets at most four times as many rounds: a number that no run comes near lifts
# that.
MANY_ROUNDS = "1000"
NEVER = "1000000"  # rounds between evaluations; the end of a stage is evaluated nevertheless


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="runs and tables of the evidence for FedNAS and SPIDER"
    )
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument("what", nargs="?", choices=WHAT)
    parser.add_argument("--data", type=Path, default=Path("."), help="folder of the two .npz files")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument(
        "--only", choices=[data.name for data in DATA_SETS], help="one data set alone"
    )
    parser.add_argument("--seeds", help="instead of all: 0,1")
    parser.add_argument("--rounds", type=int, help="instead of what the evidence has")
    arguments = parser.parse_args(argv)
    if arguments.command == "tables":
        print("\n".join(tables(arguments.out)))
        return 0
    if arguments.what is None:
        parser.error("run must be told what to run")
    plan = Plan(arguments.data, arguments.out, data_sets(arguments))
    return carry_out(plan.commands(arguments.what))


def data_sets(arguments: argparse.Namespace) -> list[DataSet]:
    chosen = []
    for data_set in DATA_SETS:
        if arguments.only not in (None, data_set.name):
            continue
        if arguments.seeds is not None:
            data_set = replace(data_set, seeds=tuple(map(int, arguments.seeds.split(","))))
        if arguments.rounds is not None:
            data_set = replace(data_set, rounds=arguments.rounds)
        chosen.append(data_set)
    return chosen


def carry_out(commands: Iterator[list[str]]) -> int:
    """Run the commands one after the other. A failed run is reported, and the others go on."""
    worst = 0
    for command in commands:
        folder = Path(command[command.index("--out") + 1])
        if (folder / "result.json").exists():
            continue
        if (folder / "run.json").exists():  # it was interrupted
            command = ["resume", str(folder), "--quiet"]
        print("fedloom", *command, flush=True)
        code = subprocess.run([sys.executable, "-m", "fedloom", *command], check=False).returncode
        if code:
            print(f"it ended with code {code}: {folder}", flush=True)
            worst = max(worst, abs(code))
    return worst


class Plan:
    """Command lines for `fedloom`. Those that depend on finished runs are made when these exist."""

    def __init__(self, data: Path, out: Path, sets: Sequence[DataSet]) -> None:
        self.data = data
        self.out = out
        self.sets = sets

    def commands(self, part: str) -> Iterator[list[str]]:
        if part == "share":
            yield from self.share()
        elif part == "lambda":
            yield from self.lambdas()
        elif part == "perturbation":
            for data_set in self.sets:
                yield from self.searchers(data_set)
        elif part == "appendix":
            for data_set in self.sets:
                yield from self.appendix(data_set)
        elif part == "macs":
            yield from self.macs()
        else:
            for data_set in self.sets:
                if data_set.name == part:
                    yield self.comparison(data_set)

    def comparison(self, data_set: DataSet) -> list[str]:
        methods = [trial.method(trial.rates[data_set.number]) for trial in TRIALS]
        out = self.out / data_set.name
        return [*self.compare(methods, data_set, out, data_set.seeds), "--match-params"]

    def compare(
        self, methods: Sequence[str], data_set: DataSet, out: Path, seeds: Sequence[int]
    ) -> list[str]:
        listed = ",".join(map(str, seeds))
        rounds = str(data_set.rounds)
        command = ["compare", *methods, *self.of(data_set), "--seeds", listed]
        return [*command, "--rounds", rounds, "--evaluate-every", rounds, "--out", str(out)]

    def run(self, method: str, data_set: DataSet, out: Path, seed: int) -> list[str]:
        command = ["run", method, *self.of(data_set), "--seed", str(seed)]
        rounds = str(data_set.rounds)
        return [*command, "--rounds", rounds, "--evaluate-every", rounds, "--out", str(out)]

    def of(self, data_set: DataSet) -> list[str]:
        """The flags that all runs on a data set share."""
        name = data_set.file
        if name.endswith(".npz"):
            name = str(self.data / name)
        split = ["--data", name, "--clients", "8", "--partition", "dirichlet:0.2", *data_set.flags]
        return [*split, "--workers", "1", "--quiet"]

    def macs(self) -> Iterator[list[str]]:
        """Only seeds that the comparison on the same data set has finished."""
        chosen = {data_set.name: data_set.seeds for data_set in self.sets}
        comparisons = {data_set.name: comparison_of(self.out, data_set) for data_set in self.sets}
        for equal in equal_macs():
            if equal.data_set.name not in chosen:
                continue
            runs = comparisons[equal.data_set.name]
            for seed in chosen[equal.data_set.name]:
                yield self.with_macs(equal, runs, seed)

    def with_macs(self, equal: EqualMacs, runs: Runs, seed: int) -> list[str]:
        number = equal.data_set.number
        plain = finished(runs, equal.plain.method(equal.plain.rates[number]), seed)
        search = finished(runs, equal.search.method(equal.search.rates[number]), seed)
        rate = equal.plain.rates[number]
        method = with_options(
            equal.plain.variant, f"lr={rate},{equal.plain.options},width={plain.options['width']}"
        )
        amount = (search.macs or 0) + search.server_macs
        return [
            "run",
            method,
            *self.of(equal.data_set),
            "--seed",
            str(seed),
            "--equal",
            "macs",
            "--set",
            f"budget.amount={amount}",
            "--rounds",
            MANY_ROUNDS,
            "--evaluate-every",
            NEVER,
            "--out",
            str(equal.folder(self.out, seed)),
        ]

    def lambdas(self) -> Iterator[list[str]]:
        """All seeds in one comparison; seeds that an earlier one did not have go into a second."""
        for data_set in self.sets:
            if data_set.name == DIGITS.name:
                yield from self.lambdas_on(data_set)

    def lambdas_on(self, digits: DataSet) -> Iterator[list[str]]:
        methods = [spider_with(value) for value in LAMBDAS]
        first, second = lambda_folders(self.out)
        seeds = digits.seeds
        if (first / "compare.json").exists():
            planned = json.loads((first / "compare.json").read_text())["seeds"]
            yield self.compare(methods, digits, first, planned)
            seeds = tuple(seed for seed in digits.seeds if seed not in planned)
            first = second
        if seeds:
            yield self.compare(methods, digits, first, seeds)

    def searchers(self, data_set: DataSet) -> Iterator[list[str]]:
        """First every rate of the grid, judged by the first seed's validation data; then runs."""
        for variant in SEARCHERS:
            for rate in GRID:
                folder = tuning_folder(self.out, data_set, variant, rate)
                command = self.run(
                    searcher_with(variant, rate), data_set, folder, data_set.seeds[0]
                )
                yield [*command, *SERVER_SAMPLES, "--set", "evaluate.hold_back=true"]
        earlier, own = searcher_folders(self.out, data_set)
        for variant in SEARCHERS:
            chosen = chosen_rate(self.out, data_set, variant)
            if chosen is None:
                print(
                    f"{variant} on {data_set.title}: no rate of the grid could be judged",
                    flush=True,
                )
                continue
            method = searcher_with(variant, chosen)
            for seed in data_set.seeds:
                name = f"{folder_name(method)}-seed{seed}"
                if not (earlier / name / "result.json").exists():
                    yield [*self.run(method, data_set, own / name, seed), *SERVER_SAMPLES]

    def appendix(self, data_set: DataSet) -> Iterator[list[str]]:
        """SPIDER by MiLeNAS's gradients; the comparison has it by perturbation."""
        folder = appendix_folder(self.out, data_set)
        for rate in GRID:
            method = appendix_with(rate)
            command = self.run(method, data_set, tuning_run(folder, method), data_set.seeds[0])
            yield [*command, "--set", "evaluate.hold_back=true"]
        chosen = appendix_rate(self.out, data_set)
        if chosen is None:
            print(
                f"appendix C on {data_set.title}: no rate of the grid could be judged", flush=True
            )
            return
        method = appendix_with(chosen)
        for seed in data_set.seeds:
            yield self.run(method, data_set, folder / f"{folder_name(method)}-seed{seed}", seed)

    def share(self) -> Iterator[list[str]]:
        """The demo's search, and one network for all, judged by validation data only."""
        for share in SHARES:
            for seed in DIGITS.seeds:
                for kind, rounds in (("adapt", 12), ("global", 20)):
                    options = f"lr=0.1,search_share={share},{SEARCH}"
                    if kind == "adapt":
                        options = f"personal=true,finish=adapt,{options}"
                    out = self.out / f"share-{kind}-{share}-{seed}"
                    command = self.run(
                        f"fednas:{options}", replace(DIGITS, rounds=rounds), out, seed
                    )
                    yield [*command, "--select", "best"]


def finished(runs: Runs, method: str, seed: int) -> RunResult:
    for result in runs.of(method, [seed]):
        return result
    sys.exit(f"`run macs` needs the finished comparison first: it lacks {method} with seed {seed}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Evidence for FedPNAS: comparisons that can be interrupted, and the tables made of them.

    python bench/evidence_fedpnas.py run --digits mnist14.npz --images images.npz --out evidence
    python bench/evidence_fedpnas.py plan       with the same flags
    python bench/evidence_fedpnas.py tables     with the same flags, > tables.md

`mnist14.npz` is a part of MNIST and `images.npz` of CIFAR-10, both at half their side
(docs/results/fedpnas.md says how to make them). A finished comparison is not run again, and an
interrupted one is resumed.

low         five clients, digits turned by −30 to 30 degrees: the four variants, their controls,
            fixed networks
macs        the same variants and networks with as many MACs as the first
high        a different transform for every client: hue, none, a quarter turn
colour      the same on colour images, one seed
unseen      all models of `low` meet digits turned by 90 and by −90 degrees: `fedloom adapt`
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from comparisons import Trial, accuracy, carry_out, difference, finished, mean_of, paired_difference
from fedloom.records.comparison import folder_name
from fedloom.records.result import ClientResult, RunResult

ROUNDS = 12
SEEDS = (0, 1, 2)
CLIENTS = 5
# A smaller network than the paper's, so that a run takes a minute or two.
SIZE = "base_cells=1,channels=8,batch=32"
CHANGES = "hue:-0.33/hue:0.33/none/rotation:-90/rotation:90"
TURNS = ("rotation:90", "rotation:-90")


def routed(name: str, control: str = "") -> str:
    variant = f"{name}:{SIZE}"
    if control:
        return f"{variant},{control}"
    return variant


CONTEXT = routed("ca-fedpnas")
VARIANTS = (CONTEXT, routed("fedpnas"), routed("ca-feddsnas"), routed("feddsnas"))
CONTROLS = (
    routed("ca-fedpnas", "search=random"),
    routed("feddsnas", "search=random"),
    routed("ca-feddsnas", "context=batch"),
    routed("ca-feddsnas", "tune=true"),
    routed("feddsnas", "draw=sample"),
    routed("feddsnas", "tune=true"),
    routed("fedpnas", "hessian=none"),
    routed("fedpnas", "hessian=exact"),
    routed("fedpnas", "tune=false"),
)
# Their width is that of the first method's mean MACs.
FIXED = ("fedavg:batch=32", "local-adaptation:batch=32,adapt_share=0.1")
# Our stand-in for the fixed CNN of the paper's Figure 4, which its text does not describe.
STAND_IN = ("fedavg:batch=32,width=1", "local-adaptation:batch=32,adapt_share=0.1,width=1")


@dataclass(frozen=True)
class Setting:
    """A comparison, the data that it is about, and how many seeds it has."""

    trial: Trial
    partition: str
    data: str = "digits"
    seeds: tuple[int, ...] = SEEDS


LOW = Setting(
    Trial(
        "low",
        "turned by −30 to 30 degrees",
        (*VARIANTS, *CONTROLS, *FIXED, *STAND_IN),
        ("--match-macs",),
    ),
    "iid+rotation:30",
)
SETTINGS = (
    LOW,
    Setting(
        Trial(
            "macs",
            "the same for as many MACs",
            (*VARIANTS, *FIXED),
            ("--match-macs", "--equal", "macs"),
        ),
        "iid+rotation:30",
    ),
    Setting(
        Trial(
            "high",
            "a change of its own for every client",
            (*VARIANTS, routed("ca-fedpnas", "search=random"), *FIXED),
            ("--match-macs",),
        ),
        f"iid+tint+each:{CHANGES}",
    ),
    Setting(
        Trial("colour", "colour images", (*VARIANTS, *FIXED), ("--match-macs",)),
        f"iid+each:{CHANGES}",
        "images",
        (0,),
    ),
)
UNSEEN = "unseen"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for FedPNAS")
    parser.add_argument("command", choices=["run", "plan", "tables"])
    parser.add_argument("--digits", type=Path, required=True, help="the .npz file of digits")
    parser.add_argument("--images", type=Path, required=True, help="the .npz file of colour images")
    parser.add_argument("--out", type=Path, required=True, help="folder of all comparisons")
    names = [setting.trial.name for setting in SETTINGS]
    parser.add_argument("--only", action="append", choices=[*names, UNSEEN], help="repeatable")
    arguments = parser.parse_args(argv)
    only = arguments.only or [*names, UNSEEN]
    chosen = [setting for setting in SETTINGS if setting.trial.name in only]
    files = {"digits": arguments.digits, "images": arguments.images}
    if arguments.command == "tables":
        print("\n".join(tables(chosen, arguments.out)))
        if UNSEEN in only:
            print("\n".join(unseen_table(arguments.out)))
        return 0
    worst = 0
    for setting in chosen:
        folder = arguments.out / setting.trial.name
        command = command_of(setting, files[setting.data])
        if arguments.command == "plan":
            print("fedloom", *command, "--out", folder)
        else:
            worst = max(worst, carry_out(command, folder))
    if UNSEEN in only and arguments.command == "run":
        worst = max(worst, meet_unseen(arguments.out))
    return worst


def command_of(setting: Setting, data: Path) -> list[str]:
    parts = []
    if setting.data == "digits":
        parts = ["--parts", "official"]
    trial = setting.trial
    return [
        "compare",
        *trial.methods,
        "--data",
        str(data),
        *parts,
        "--clients",
        str(CLIENTS),
        "--partition",
        setting.partition,
        *trial.flags,
        "--rounds",
        str(ROUNDS),
        "--evaluate-every",
        "2",
        "--seeds",
        ",".join(map(str, setting.seeds)),
        "--workers",
        "1",
        "--quiet",
    ]


# Tasks that nobody had


def meet_unseen(out: Path) -> int:
    """Adapt the runs of `low` whose methods count in Table 2, seed by seed."""
    worst = 0
    for seed in SEEDS:
        for method in (*VARIANTS, *FIXED):
            for turn in TURNS:
                worst = max(worst, adapt(out, method, seed, turn))
    return worst


def adapt(out: Path, method: str, seed: int, turn: str) -> int:
    answer = answer_of(out, method, seed, turn)
    if answer.exists():
        return 0
    run = out / LOW.trial.name / f"{folder_name(method)}-seed{seed}"
    folder = answer.with_suffix("")
    command = [
        sys.executable,
        "-m",
        "fedloom",
        "adapt",
        str(run),
        "--transform",
        turn,
        "--samples",
        "200",
        "--iterations",
        "100",
        "--from",
        "each",
        "--out",
        str(folder),
        "--json",
        "--quiet",
    ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(*command[2:], flush=True)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    answer.write_text(done.stdout)
    return 0


def answer_of(out: Path, method: str, seed: int, turn: str) -> Path:
    """What `adapt --json` printed."""
    return out / UNSEEN / f"{folder_name(method)}-seed{seed}-{turn.replace(':', '')}.json"


# Tables


def tables(settings: Sequence[Setting], out: Path) -> Iterator[str]:
    for setting in settings:
        yield f"### {setting.trial.name}: {setting.trial.title}"
        yield ""
        yield from table_of(setting.trial, out)
        yield ""


def table_of(trial: Trial, out: Path) -> Iterator[str]:
    yield (
        "| method | seeds | accuracy % | − the first | worst % | pooled % | shared % | shuffled % "
        "| paths | entropy | "
        "free % | params k | MACs k | rounds | GMACs | seconds a round |"
    )
    yield "|---" * 16 + "|"
    first = finished(out, trial, trial.methods[0])
    for method in trial.methods:
        runs = finished(out, trial, method)
        if not runs:
            yield f"| {shown(method)} | not run |" + " |" * 14
            continue
        against_first = ""
        if method != trial.methods[0]:
            against_first = difference(first, runs, accuracy)
        cells = [
            shown(method),
            str(len(runs)),
            mean_of(runs, accuracy),
            against_first,
            f"{100 * fmean(run.spread.worst or 0 for run in runs):.1f}",
            f"{100 * fmean(run.spread.pooled or 0 for run in runs):.1f}",
            percent_of(runs, lambda client: client.shared_figure),
            percent_of(runs, lambda client: client.shuffled_accuracy),
            over_clients(runs, distinct_paths, "{:.0f}"),
            noted(out, trial, method, runs, "entropy", "{:.2f}"),
            noted(out, trial, method, runs, "free", "{:.0%}").rstrip("%"),
            over_clients(runs, lambda client: thousands(client.params), "{:.1f}"),
            over_clients(runs, lambda client: thousands(client.macs), "{:.0f}"),
            f"{fmean(run.rounds for run in runs):.0f}",
            f"{fmean((run.macs or 0) / 1e9 for run in runs):.0f}",
            f"{fmean(run.seconds / run.rounds for run in runs):.1f}",
        ]
        yield "| " + " | ".join(cells) + " |"


def shown(method: str) -> str:
    """A method's name without the options that all methods share."""
    name, _, options = method.partition(":")
    further = [option for option in options.split(",") if option not in SIZE.split(",")]
    return " ".join([f"`{name}`", *further])


def thousands(amount: float | None) -> float | None:
    if amount is None:
        return None
    return amount / 1e3


def distinct_paths(client: ClientResult) -> float | None:
    if client.routes is None:
        return None
    return client.routes.distinct


def over_clients(
    runs: Sequence[RunResult], reading: Callable[[ClientResult], float | None], form: str
) -> str:
    figures = []
    for run in runs:
        for client in run.clients:
            figure = reading(client)
            if figure is not None:
                figures.append(figure)
    if not figures:
        return ""
    return form.format(fmean(figures))


def percent_of(runs: Sequence[RunResult], reading: Callable[[ClientResult], float | None]) -> str:
    text = over_clients(runs, reading, "{:.1%}")
    return text.rstrip("%")


def noted(
    out: Path, trial: Trial, method: str, runs: Sequence[RunResult], note: str, form: str
) -> str:
    """What the last round of the search noted, as the mean over seeds."""
    figures = []
    for run in runs:
        path = out / trial.name / f"{folder_name(method)}-seed{run.seed}" / "metrics.jsonl"
        last = None
        for line in path.read_text().splitlines():
            last = json.loads(line).get(note, last)
        if last is not None:
            figures.append(last)
    if not figures:
        return ""
    return form.format(fmean(figures))


def unseen_table(out: Path) -> Iterator[str]:
    yield "### unseen: digits turned by a quarter, 200 samples, 100 iterations"
    yield ""
    yield "| method | turn | before % | after % | after − the first |"
    yield "|---" * 5 + "|"
    for turn in TURNS:
        first: list[float] = []
        for method in (*VARIANTS, *FIXED):
            answers = []
            for seed in SEEDS:
                path = answer_of(out, method, seed, turn)
                if path.exists():
                    answers.append(json.loads(path.read_text()))
            if not answers:
                continue
            before = [100 * answer["before"]["mean"] for answer in answers]
            after = [100 * answer["after"]["mean"] for answer in answers]
            against_first = ""
            if method == VARIANTS[0]:
                first = after
            elif len(first) == len(after):
                against_first = paired_difference(first, after, 1)
            figures = f"{fmean(before):.1f} | {fmean(after):.1f}"
            yield f"| {shown(method)} | {turn} | {figures} | {against_first} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

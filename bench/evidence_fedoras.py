"""Evidence for FedorAS: a matrix of runs that can be interrupted, and the tables made of them.

    python bench/evidence_fedoras.py run --images FILE --speech DIR --text DIR --out evidence
    python bench/evidence_fedoras.py plan --out evidence --images FILE
    python bench/evidence_fedoras.py tables --out evidence > tables.md

`run` goes through the matrix in order of importance, two runs in parallel with one thread each. A
finished run is not run again, and an interrupted one is resumed: the same command continues where
it stopped. `--only NAME` (repeatable) runs some trials, `--seeds 0,1,2` chooses the seeds, and
after `--minutes` no new run is started. The output of runs is in `OUT/logs`. `plan` lists the runs,
those that are finished and those that are not.

FILE is a file of CIFAR-10's binary version, `data_batch_1.bin`: its first 4,000 images, at 16×16,
are dealt to ten clients by dirichlet:1.0 and dirichlet:0.1; the server keeps a tenth to score
paths. `--speech` is the folder of FSDD, `--text` that of Shakespeare's plays; without them these
two trials are left out.

How long it takes, in CPU seconds of one run, each measured once at the sizes of evidence_matrix.py,
on a machine whose two cores had a load of 10: FedorAS 139 (24 rounds of the supernet, 2 × 64 paths,
6 rounds of tuning), its networks from scratch for as many MACs 114 and for as many rounds 51, FjORD
for as many MACs 42, FedNAS 83, speech 79, text 138. The matrix has 60 runs like the first, 6 like
the second, and 40 that are smaller: about 11,000 seconds, 90 minutes on two cores; an idle machine
should need less. After `--minutes 115` no run is begun, whatever they take.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence_matrix import (
    BASE,
    IMAGES,
    TRIALS,
    Case,
    NotPossible,
    Setting,
    Trial,
    cases_of,
    command_of,
    is_finished,
)
from evidence_tables import report
from fedloom.config.models import DataConfig
from fedloom.data.configured import configured_source

SIDE_BY_SIDE = 2
PAUSE = 0.5  # seconds between two looks at the runs that go on


def main(argv: Sequence[str]) -> int:
    arguments = parsed(argv)
    out = arguments.out.resolve()
    if arguments.command == "tables":
        print(report(out), end="")
        return 0
    cases = cases_of(chosen(arguments.only), arguments.seeds)
    setting = Setting(out, out / "images.npz", arguments.speech, arguments.text)
    if arguments.command == "plan":
        tell_plan(cases, setting)
        return 0
    if not setting.images.exists():
        keep_images(arguments.images, setting.images)
    failures = Matrix(cases, setting, arguments.minutes).run()
    return min(failures, 1)


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="runs and tables of the evidence for FedorAS")
    parser.add_argument("command", choices=["run", "plan", "tables"])
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--images", type=Path, help="a file of CIFAR-10's binary version")
    parser.add_argument("--speech", type=folder, help="the folder of FSDD")
    parser.add_argument("--text", type=folder, help="the folder of Shakespeare's plays")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this trial; repeatable"
    )
    parser.add_argument("--seeds", type=numbers, default=(0, 1, 2), metavar="A,B,…")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no new run after so many"
    )
    arguments = parser.parse_args(argv)
    trial_names = [trial.name for trial in TRIALS]
    for name in arguments.only:
        if name not in trial_names:
            parser.error(
                f"--only must name a trial, but got {name}; there are {', '.join(trial_names)}"
            )
    if (
        arguments.command == "run"
        and arguments.images is None
        and not (arguments.out / "images.npz").exists()
    ):
        parser.error("run must be given --images, a file of CIFAR-10's binary version")
    return arguments


def folder(text: str) -> Path:
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return path


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def chosen(names: Sequence[str]) -> list[Trial]:
    if not names:
        return list(TRIALS)
    return [trial for trial in TRIALS if trial.name in names]


def keep_images(file: Path, path: Path) -> None:
    """The first images of a file, so that every run has the same ones."""
    source = configured_source(DataConfig(name=str(file.resolve())))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=np.asarray(source.x[:IMAGES]), y=np.asarray(source.y[:IMAGES]))


def tell_plan(cases: Sequence[Case], setting: Setting) -> None:
    unfinished = 0
    for case in cases:
        state = "finished"
        if not is_finished(case.folder(setting)):
            state = "to run"
            unfinished += 1
        print(f"{state:9} {case.title}")
    print(f"{len(cases)} runs, {unfinished} of them to run")


@dataclass(frozen=True)
class Going:
    """A run that is in progress."""

    case: Case
    process: subprocess.Popen[bytes]
    began: float


class Matrix:
    """Runs cases in their order, a few in parallel; a case that needs another one waits for it."""

    def __init__(self, cases: Sequence[Case], setting: Setting, minutes: float) -> None:
        self.setting = setting
        self.minutes = minutes
        self.began = time.monotonic()
        self.waiting = [case for case in cases if not is_finished(case.folder(setting))]
        self.going: list[Going] = []
        self.failures = 0
        print(f"{len(cases)} runs, of which {len(self.waiting)} are not finished")

    def run(self) -> int:
        """Run all cases; returns how many runs failed or could not start."""
        while True:
            self._begin_some()
            if not self.going:
                break
            time.sleep(PAUSE)
            self._end_some()
        for case in self.waiting:
            reason = "the time is over"
            if not self.time_is_over:
                reason = f"its run of {BASE} is not there"
                self.failures += 1
            self._tell(f"not begun: {case.title}: {reason}")
        return self.failures

    @property
    def time_is_over(self) -> bool:
        return time.monotonic() - self.began > 60 * self.minutes

    def _begin_some(self) -> None:
        while len(self.going) < SIDE_BY_SIDE and not self.time_is_over:
            case = self._next()
            if case is None:
                return
            self.waiting.remove(case)
            self._begin(case)

    def _next(self) -> Case | None:
        """The first case that has what it needs."""
        for case in self.waiting:
            if not case.trial.needs_base or is_finished(case.base(self.setting)):
                return case
        return None

    def _begin(self, case: Case) -> None:
        try:
            fedloom_arguments = command_of(case, self.setting)
        except NotPossible as reason:
            self._tell(f"left out: {case.title}: {reason}")
            return
        log = self.setting.out / "logs" / f"{case.title.replace(' ', '-').replace(':', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        case.folder(self.setting).parent.mkdir(parents=True, exist_ok=True)
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with log.open("ab") as file:
            command = [sys.executable, "-m", "fedloom", *fedloom_arguments]
            process = subprocess.Popen(command, stdout=file, stderr=file, env=one_thread)
        self.going.append(Going(case, process, time.monotonic()))
        self._tell(f"begun: {case.title}")

    def _end_some(self) -> None:
        for going in list(self.going):
            code = going.process.poll()
            if code is None:
                continue
            self.going.remove(going)
            seconds = time.monotonic() - going.began
            if code == 0 and is_finished(going.case.folder(self.setting)):
                self._tell(f"finished: {going.case.title}: {seconds:.0f} s")
            else:
                self.failures += 1
                self._tell(
                    f"FAILED with {code}: {going.case.title}: see {self.setting.out / 'logs'}"
                )

    def _tell(self, line: str) -> None:
        print(f"{(time.monotonic() - self.began) / 60:6.1f} min  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

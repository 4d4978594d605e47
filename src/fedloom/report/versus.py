"""Several runs on one page: a comparison's folder, finished or not, or any runs beside each other."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.evaluate.method_row import method_row
from fedloom.reading import Unreadable
from fedloom.records.comparison import ComparisonResult, MethodRow, folder_labels
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun
from fedloom.records.plan import Plan, read_plan
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult
from fedloom.report.groups import Group, Versus
from fedloom.report.page import NAME, page
from fedloom.report.sections import methods
from fedloom.report.story import Reader, standing


@dataclass
class Comparing:
    """Reads a comparison's folder, again and again for a live page."""

    folder: RunFolder
    readers: dict[str, Reader] = field(default_factory=dict)

    def read(self) -> Versus:
        plan = read_plan(self.folder)
        result, damage = self._result()
        called = {method: plan.names.get(method, method) for method in plan.methods}
        folders = folder_labels(list(called.values()))
        groups = []
        for method in plan.methods:
            readers = [self._reader(f"{folders[called[method]]}-seed{seed}") for seed in plan.seeds]
            begun = [reader.read() for reader in readers if reader is not None]
            groups.append(Group(called[method].rpartition("/")[2], begun))
        return Versus(
            self.folder.path,
            standing(self.folder, finished=result is not None),
            groups,
            [] if result is None else result.methods,
            command(plan),
            len(plan.seeds),
            damage=damage,
        )

    def _result(self) -> tuple[ComparisonResult | None, str | None]:
        """The figures; without them, what is wrong with the file, if there is one."""
        try:
            return self.folder.read_comparison(), None
        except Unreadable as error:
            if not (self.folder.path / RESULT).exists():
                return None, None
            return None, f"{RESULT} is damaged: {error}. `fedloom resume {self.folder.path}` makes it again."

    def _reader(self, name: str) -> Reader | None:
        """Of a run that has begun."""
        if name not in self.readers and (self.folder.path / name / "config.toml").exists():
            self.readers[name] = Reader(RunFolder.open(self.folder.path / name))
        return self.readers.get(name)


def write_comparison(folder: RunFolder) -> Path:
    """Write or refresh a comparison's report.html."""
    folder.write_text(NAME, versus_page(Comparing(folder).read(), folder.path))
    return folder.path / NAME


def versus_page(versus: Versus, beside: Path, *, live: bool = False) -> str:
    """`beside`: the folder that the page stands in, for links to the runs' own reports."""
    parts = methods.sections(versus, None if live else lambda path: os.path.relpath(path / NAME, beside))
    return page(methods.title(versus), parts, {} if live else methods.LINKS, live=live)


def command(plan: Plan) -> str:
    """What makes this comparison again."""
    words = ["fedloom", "compare", *plan.methods, "--seeds", ",".join(map(str, plan.seeds))]
    words += [part for name, values in plan.grid.items() for part in ("--grid", f"{name}={','.join(map(str, values))}")]
    words += ["--match-params"] if plan.match_params else []
    defaults = dict(leaves(Experiment().model_dump()))
    for path, value in leaves(plan.tree):
        if path not in defaults or value != defaults[path]:
            words += ["--set", f"{path}={text_of(value)}"]
    return shlex.join(words)


def leaves(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        path = f"{above}{name}"
        found += leaves(value, f"{path}.") if isinstance(value, Mapping) else [(path, value)]
    return found


def text_of(value: Any) -> str:
    """As --set reads it."""
    return json.dumps(value) if isinstance(value, list) or value is None else str(value)


def beside_each_other(paths: Sequence[Path]) -> Versus:
    """Finished runs that need not be of one comparison. Those of one method with other seeds are taken together."""
    runs = [FinishedRun.open(path) for path in paths]
    check_metric(runs)
    groups = grouped(runs)
    names = [name_of(group, groups) for group in groups]
    rows = []
    beside = []
    for name, group in zip(names, groups, strict=True):
        rows.append(row_of(name, group, groups[0]))
        beside.append(Group(name, [Reader(RunFolder(run.path)).read() for run in group]))
    alike = all(splits(group) == splits(groups[0]) for group in groups)
    command_line = shlex.join(["fedloom", "report", *map(str, paths)])
    return Versus(None, "finished", beside, rows, command_line, max(map(len, groups)), alike)


def check_metric(runs: Sequence[FinishedRun]) -> None:
    names = {run.metric.name for run in runs}
    if len(names) > 1:
        found = f"got {' and '.join(sorted(names))}"
        raise FedloomError("runs beside each other must be judged by one metric", found, "report them one by one")


def grouped(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Those together that differ by their seed alone; each by itself, where a seed is there twice."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(kind_of(run.record), []).append(run)
    for group in groups.values():
        if len({run.record.seed for run in group}) < len(group):
            return [[run] for run in runs]
    return list(groups.values())


def kind_of(result: RunResult) -> str:
    """Runs that agree in it differ by their seed alone."""
    start = None
    if result.init is not None:
        start = [result.init.hash, result.init.client]
    return json.dumps([result.method, result.options, result.data.name, result.data.partition, start])


def name_of(group: Sequence[FinishedRun], groups: Sequence[Sequence[FinishedRun]]) -> str:
    """The method's name; with its folder's where another has the same."""
    methods = [other[0].record.short_method for other in groups]
    mine = group[0].record.short_method
    return mine if methods.count(mine) == 1 else f"{mine} ({group[0].path.resolve().name})"


def splits(group: Sequence[FinishedRun]) -> list[tuple[int, str]]:
    return sorted((run.record.seed, run.record.data.split) for run in group)


def row_of(name: str, group: Sequence[FinishedRun], first: Sequence[FinishedRun]) -> MethodRow:
    """A difference to the first only where both ran on the same splits."""
    paired = None
    if group is not first and splits(group) == splits(first):
        paired = by_seed(first)
    return method_row(name, name, by_seed(group), paired, None)


def by_seed(group: Sequence[FinishedRun]) -> list[RunResult]:
    return sorted((run.record for run in group), key=lambda record: record.seed)

"""Several runs on one page: those of a comparison, finished or not, or any finished runs."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.evaluate.judgement import judged
from fedloom.evaluate.method_row import method_row, with_holm
from fedloom.evaluate.summary import without_none
from fedloom.evaluate.tier_rows import tiers_with_holm, with_tiers
from fedloom.reading import Unreadable
from fedloom.records.auto import AutoResult
from fedloom.records.comparison import MethodRow, folder_labels
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun
from fedloom.records.plan import Plan, read_plan
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import RunResult
from fedloom.report.groups import Group, Versus
from fedloom.report.page import NAME, page
from fedloom.report.reproducing import command
from fedloom.report.sections import methods
from fedloom.report.story import Reader, standing


def write_comparison(folder: RunFolder) -> Path:
    """Write or refresh a comparison's report.html."""
    folder.write_text(NAME, versus_page(Comparing(folder).read(), folder.path))
    return folder.path / NAME


def versus_page(versus: Versus, beside: Path, *, live: bool = False) -> str:
    """Return the page. `beside` is the folder it is written to, for links to the runs' reports."""
    title = methods.title(versus)
    if live:  # runs have no reports yet, and sections appear and disappear
        return page(title, methods.sections(versus, None), {}, live=True)

    def link(run: Path) -> str:
        return os.path.relpath(run / NAME, beside)

    return page(title, methods.sections(versus, link), methods.links(versus))


@dataclass
class Comparing:
    """Reads a comparison's folder; a live page reads it again and again."""

    folder: RunFolder
    readers: dict[str, Reader] = field(default_factory=dict)  # by the names of the runs' folders

    def read(self) -> Versus:
        plan = read_plan(self.folder)
        result = None
        auto_result = None
        damage = None
        rows: list[MethodRow] = []
        try:
            result = self.folder.read_comparison()
            rows = result.methods
            if plan.contest is not None:
                auto_result = AutoResult.read(self.folder.path / RESULT)
        except Unreadable as error:
            damage = self._damage(error)
            rows = []
        groups = self._groups(plan, rows)
        if len(rows) == len(groups):
            rows = [completed(row, group) for row, group in zip(rows, groups, strict=True)]
        return Versus(
            path=self.folder.path,
            standing=standing(self.folder, finished=result is not None),
            groups=groups,
            rows=rows,
            command=command(plan),
            seeds=len(plan.seeds),
            damage=damage,
            contest=plan.contest,
            auto_result=auto_result,
        )

    def _damage(self, error: Unreadable) -> str | None:
        """Say what is wrong with result.json; None if there is no such file."""
        if not (self.folder.path / RESULT).exists():
            return None
        remedy = f"`fedloom resume {self.folder.path}` makes it again."
        return f"{RESULT} is damaged: {error}. {remedy}"

    def _groups(self, plan: Plan, rows: Sequence[MethodRow]) -> list[Group]:
        """Return one group per method, with those of its runs that have begun.

        A finished contest has only groups of methods that got the whole budget.
        """
        finalists = {row.method for row in rows}
        names = {method: plan.names.get(method, method) for method in plan.methods}
        labels = folder_labels(list(names.values()))
        groups = []
        for method in plan.methods:
            if plan.contest is not None and finalists and method not in finalists:
                continue
            name = names[method]
            stories = []
            for seed in plan.seeds:
                reader = self._reader(f"{labels[name]}-seed{seed}")
                if reader is not None:
                    stories.append(reader.read())
            groups.append(Group(plan.name_of(method), stories))
        return groups

    def _reader(self, name: str) -> Reader | None:
        """Return the reader of a run's folder; None: the run has not begun."""
        path = self.folder.path / name
        if name not in self.readers and (path / "config.toml").exists():
            self.readers[name] = Reader(RunFolder.open(path))
        return self.readers.get(name)


def completed(row: MethodRow, group: Group) -> MethodRow:
    """Fill in a row that an earlier version wrote: its runs have what it lacks."""
    if is_complete(row):
        return row
    results = without_none(story.result for story in group.stories)
    if len(results) != row.runs:
        return row
    return judged(row, results)


def is_complete(row: MethodRow) -> bool:
    """Whether this version wrote the row, judged by its fields."""
    if row.cautions is None or row.cautions.one_class is None:
        return False
    if not row.judged_by.counts_answers:
        return True
    return "pooled_balanced_accuracy" in row.model_fields_set


def beside_each_other(paths: Sequence[Path]) -> Versus:
    """Put finished runs on one page; they need not belong to one comparison.

    Runs that differ in their seed alone form one group.
    """
    runs = [FinishedRun.open(path) for path in paths]
    check_metric(runs)
    grouped_runs = grouped(runs)
    first = grouped_runs[0]
    rows = []
    groups = []
    for group in grouped_runs:
        name = name_of(group, grouped_runs)
        rows.append(row_of(name, group, first))
        stories = []
        for run in group:
            reader = Reader(RunFolder(run.path))
            stories.append(reader.read())
        groups.append(Group(name, stories))
    return Versus(
        path=None,
        standing="finished",
        groups=groups,
        rows=tiers_with_holm(with_holm(rows)),
        command=shlex.join(["fedloom", "report", *map(str, paths)]),
        seeds=max(map(len, grouped_runs)),
        alike=all(splits(group) == splits(first) for group in grouped_runs),
    )


def check_metric(runs: Sequence[FinishedRun]) -> None:
    names = sorted({run.metric.name for run in runs})
    if len(names) > 1:
        raise FedloomError(
            "runs beside each other must be judged by one metric",
            f"got {' and '.join(names)}",
            "report them one by one",
        )


def grouped(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Group the runs that differ in their seed alone.

    If a group would have a seed twice, every run becomes a group by itself.
    """
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(kind_of(run.record), []).append(run)
    for group in groups.values():
        if len({run.record.seed for run in group}) < len(group):
            return [[run] for run in runs]
    return list(groups.values())


def kind_of(result: RunResult) -> str:
    """Return a key: runs with the same key differ in their seed alone."""
    start = None
    if result.init is not None:
        start = [result.init.hash, result.init.client]
    data = [result.data.name, result.data.partition]
    return json.dumps([result.method, result.options, *data, start])


def name_of(group: Sequence[FinishedRun], groups: Sequence[Sequence[FinishedRun]]) -> str:
    """Return the method's name, with the folder's name if another group has the same method."""
    method = group[0].record.short_method
    methods = [other[0].record.short_method for other in groups]
    if methods.count(method) == 1:
        return method
    return f"{method} ({group[0].path.resolve().name})"


def row_of(name: str, group: Sequence[FinishedRun], first: Sequence[FinishedRun]) -> MethodRow:
    """Return a group's row; it has a difference to the first only if both used the same splits."""
    paired = None
    if group is not first and splits(group) == splits(first):
        paired = by_seed(first)
    runs = by_seed(group)
    row = judged(method_row(name, name, runs, paired, None), runs)
    return with_tiers(row, runs, paired)


def splits(group: Sequence[FinishedRun]) -> list[tuple[int, str]]:
    """Return every seed with its split's hash, by increasing seed."""
    return sorted((run.record.seed, run.record.data.split) for run in group)


def by_seed(group: Sequence[FinishedRun]) -> list[RunResult]:
    """Return the results of the runs by increasing seed."""
    results = [run.record for run in group]
    return sorted(results, key=lambda result: result.seed)

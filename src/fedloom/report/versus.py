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
from fedloom.metrics.metric import METRICS, Metric
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan, read_plan
from fedloom.report.groups import Group, Versus
from fedloom.report.page import NAME, page
from fedloom.report.sections import methods
from fedloom.report.story import Reader, standing
from fedloom.runs.comparison import labels, row
from fedloom.runs.results import Run
from fedloom.types import Json


@dataclass
class Comparing:
    """Reads a comparison's folder, again and again for a live page."""

    folder: RunFolder
    readers: dict[str, Reader] = field(default_factory=dict)

    def read(self) -> Versus:
        plan, result = read_plan(self.folder), self.folder.result()
        called = {method: plan.names.get(method, method) for method in plan.methods}
        folders = labels(list(called.values()))
        groups = []
        for method in plan.methods:
            readers = [self._reader(f"{folders[called[method]]}-seed{seed}") for seed in plan.seeds]
            begun = [reader.read() for reader in readers if reader is not None]
            groups.append(Group(called[method].rpartition("/")[2], begun))
        return Versus(
            self.folder.path,
            standing(self.folder, result),
            groups,
            result["methods"] if result else [],
            command(plan),
            len(plan.seeds),
        )

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
    runs = [Run.open(path) for path in paths]
    metric = same_metric(runs)
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(json.dumps(kind_of(run.result)), []).append(run)
    taken = list(grouped.values())
    if any(len({run.result["seed"] for run in group}) < len(group) for group in taken):
        taken = [[run] for run in runs]
    names = [name_of(group, taken) for group in taken]
    rows = [described(group, taken[0], name, metric) for name, group in zip(names, taken, strict=True)]
    groups = [Group(name, [Reader(RunFolder(run.path)).read() for run in group])
              for name, group in zip(names, taken, strict=True)]  # fmt: skip
    alike = len({json.dumps(splits(group)) for group in taken}) == 1
    told = shlex.join(["fedloom", "report", *map(str, paths)])
    return Versus(None, "finished", groups, rows, told, max(map(len, taken)), alike)


def kind_of(result: Mapping[str, Any]) -> list[Json]:
    """Runs that agree in it differ by their seed alone."""
    data, init = result["data"], result.get("init") or {}
    return [result["method"], result["options"], data["name"], data["partition"], init.get("hash"), init.get("client")]


def same_metric(runs: Sequence[Run]) -> Metric:
    names = {run.metric.name for run in runs}
    if len(names) > 1:
        found = f"got {' and '.join(sorted(names))}"
        raise FedloomError("runs beside each other must be judged by one metric", found, "report them one by one")
    return METRICS[names.pop()]


def name_of(group: Sequence[Run], all_groups: Sequence[Sequence[Run]]) -> str:
    """The method's name; with its folder's where another has the same."""
    methods = [str(other[0].result["method"]).rpartition("/")[2] for other in all_groups]
    mine = str(group[0].result["method"]).rpartition("/")[2]
    return mine if methods.count(mine) == 1 else f"{mine} ({group[0].path.resolve().name})"


def splits(group: Sequence[Run]) -> list[Json]:
    return sorted([run.result["seed"], run.result["data"]["split"]] for run in group)


def described(group: Sequence[Run], first: Sequence[Run], name: str, metric: Metric) -> Json:
    """Its row; a difference to the first only where both ran on the same splits."""
    paired = splits(group) == splits(first)
    by_seed = sorted(group, key=lambda run: run.result["seed"])
    others = sorted(first, key=lambda run: run.result["seed"]) if paired and group is not first else by_seed
    return {**row(name, by_seed, others, None), "name": name}

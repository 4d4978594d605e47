"""`fedloom plot RUN…` and `--plots`: pictures of runs as PNG and SVG files, through matplotlib (the extra `plots`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedloom.errors import FedloomError
from fedloom.metrics.metric import Metric
from fedloom.records.folder import RunFolder
from fedloom.types import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedloom.report.charts import Curve
    from fedloom.runs.results import Run

FORMATS = ("png", "svg")
Made = Iterator[tuple[str, "Callable[[], Figure] | str"]]  # a picture's name, and it or why there is none


@dataclass
class Plots:
    """What was drawn, and what could not be."""

    written: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> Json:
        return {"written": [str(path) for path in self.written], "left_out": self.left_out}

    def table(self) -> None:
        """Print where they are."""
        for path in self.written:
            print(path)
        for name, reason in self.left_out.items():
            print(f"no {name}: {reason}")


def require() -> None:
    if find_spec("matplotlib") is None:
        must, todo = "matplotlib must be installed for plots", "install it with `pip install 'fedloom[plots]'`"
        raise FedloomError(must, "it is not", todo)


def parse_formats(text: str) -> tuple[str, ...]:
    formats = tuple(word.strip() for word in text.split(","))
    strange = [word for word in formats if word not in FORMATS]
    if strange or len(set(formats)) != len(formats):
        raise FedloomError("--format must be png, svg or both", f"got {text!r}", "try --format png,svg")
    return formats


def write_plots(
    paths: Sequence[Path | str], out: Path | str | None = None, formats: Sequence[str] = FORMATS
) -> Plots:  # fmt: skip
    """Pictures of one run, of a comparison, or of several runs beside each other.

    They go to `out`, or to plots/ in the folder of the run or comparison; several runs need an `out`.
    """
    require()
    folders = [RunFolder.open(Path(path)) for path in paths]
    if len(folders) > 1 and out is None:
        todo = "name one with --out DIR"
        raise FedloomError("plots of several runs must have a folder", "they belong to none of them", todo)
    place = Path(out) if out is not None else folders[0].path / "plots"
    found = Plots()
    for name, picture in pictures(folders):
        if isinstance(picture, str):
            found.left_out[name] = picture
        else:
            found.written += save(picture, place, name, formats)
    return found


def save(picture: Callable[[], Figure], place: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """The same picture of the same run has the same bytes: no date is written into it."""
    from fedloom.report import charts

    paths = [place / f"{name}.{each}" for each in formats]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with charts.style():
            for path in paths:  # each from its own figure: a layout remembers the resolution it was saved in before
                dated = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                picture().savefig(path, metadata=dated)
    except OSError as error:
        must = f"{place} must be a folder that can be written"
        raise FedloomError(must, error.strerror or type(error).__name__, "name another with --out") from None
    return paths


def pictures(folders: Sequence[RunFolder]) -> Made:
    if len(folders) == 1 and folders[0].kind == "run":
        yield from of_run(folders[0])
        return
    from fedloom.runs.results import Run

    if len(folders) == 1:
        result = folders[0].result()
        if result is None:
            must, todo = f"{folders[0].path} must be finished", f"`fedloom resume {folders[0].path}`"
            raise FedloomError(must, "it has no result yet", todo)
        groups = grouped(folders[0], result)
        yield from of_methods(groups, result["methods"])
        return
    wrong = [folder for folder in folders if folder.kind != "run"]
    if wrong:
        raise FedloomError("plots of several must be of runs", f"{wrong[0].path} is a comparison", "plot it alone")
    runs = [Run.open(folder.path) for folder in folders]
    if len({run.metric.name for run in runs}) > 1:
        raise FedloomError("runs in one plot must have one metric", "they have several", "plot them apart")
    groups = {named(run, runs): [run] for run in runs}
    yield from of_methods(groups, [{"name": name, "difference": None} for name in groups])  # they are not paired


def grouped(folder: RunFolder, result: Json) -> dict[str, list[Run]]:
    """The runs of a comparison by their method's name: seeds after each other, as result.json lists them."""
    from fedloom.runs.results import Run

    groups, rest = {}, list(result["runs"])
    for each in result["methods"]:
        mine, rest = rest[: each["runs"]], rest[each["runs"] :]
        groups[each["name"]] = [Run.open(folder.path / Path(path).name) for path in mine]
    return groups


def named(run: Run, among: Sequence[Run]) -> str:
    """By its method; by its folder where several have the same."""
    method: str = run.result["method"].rpartition("/")[2]
    alike = [other for other in among if other.result["method"] == run.result["method"]]
    return method if len(alike) == 1 else run.path.name


def of_run(folder: RunFolder) -> Made:
    from fedloom.report import charts
    from fedloom.runs.results import Run

    run = Run.open(folder.path)
    metric, rows = run.metric, run.result["clients"]
    points = curve("", [run])
    if points is None:
        yield "convergence", "no round was evaluated"
    else:
        yield "convergence", lambda: charts.convergence([points], metric, stages(run))
    if all(row[metric.name] is None for row in rows):
        yield "clients", "no client has a figure"
    else:
        yield "clients", lambda: charts.clients(rows, metric, run.figures["mean"])
        if all(row["params"] is None for row in rows):
            yield "cost", "the sizes of the networks are not known"
        else:
            yield "cost", lambda: charts.cost({"": rows}, metric)
    yield from of_split(folder)
    yield from of_gain(folder, metric)


def of_split(folder: RunFolder) -> Made:
    from fedloom.report import charts

    try:
        counts, labels, names = counted(folder)
    except FedloomError as error:
        yield "split", str(error)
        return
    yield "split", lambda: charts.split(counts, labels, names)


def counted(folder: RunFolder) -> tuple[Any, Sequence[str], Sequence[str]]:
    """How many samples of each class every client has; the data must still be where they were."""
    from fedloom.data.showing.picture import Picture
    from fedloom.runs.experiment import names_of, reopen

    prepared = reopen(folder)
    if prepared.source.kind == "text":
        must, todo = "a split that is drawn must be of labelled samples", "see `fedloom data show`"
        raise FedloomError(must, "this one is of text", todo)
    picture, called = Picture(prepared.source, prepared.split), names_of(prepared)
    names = [called.get(client, str(client)) for client in range(len(prepared.split))]
    return picture.counts, prepared.source.labels, names


def of_gain(folder: RunFolder, metric: Metric) -> Made:
    """Nothing if nobody measured it."""
    from fedloom.report import charts

    path = folder.path / "gain.json"
    if path.exists():
        found = json.loads(path.read_text())
        yield "gain", lambda: charts.gain(found, metric)


def of_methods(groups: Mapping[str, Sequence[Run]], rows: Sequence[Mapping[str, Any]]) -> Made:
    from fedloom.report import charts

    first = next(iter(groups.values()))[0]
    metric = first.metric
    curves = [points for name, runs in groups.items() if (points := curve(name, runs)) is not None]
    if curves:
        yield "convergence", lambda: charts.convergence(curves, metric, ())
    else:
        yield "convergence", "no round was evaluated"
    seeds = {name: [m for run in runs if (m := run.figures["mean"]) is not None] for name, runs in groups.items()}
    yield "methods", lambda: charts.methods(rows, seeds, metric)
    clients = {name: [row for run in runs for row in run.result["clients"]] for name, runs in groups.items()}
    yield "cost", lambda: charts.cost(clients, metric)


def curve(name: str, runs: Sequence[Run]) -> Curve | None:
    """Over the rounds that every run evaluated; between seeds the mean, and what they span."""
    from fedloom.report.charts import Curve

    metric = runs[0].metric.name
    each = [
        {row["round"]: value for row in run.metrics if (value := row.get(f"evaluation.{metric}")) is not None}
        for run in runs
    ]
    rounds: list[Any] = sorted(set.intersection(*(set(found) for found in each)))
    if not rounds:
        return None
    values: list[list[Any]] = [[found[number] for found in each] for number in rounds]
    return Curve(name, rounds, [fmean(v) for v in values], [min(v) for v in values], [max(v) for v in values])


def stages(run: Run) -> list[tuple[float, str]]:
    """Where each stage, or phase of one, begins."""
    found: list[tuple[float, str]] = []
    for row in run.metrics:
        name = str(row.get("phase") or row["stage"])
        if not found or found[-1][1] != name:
            found.append((float(str(row["round"])), name))
    return found

"""`fedloom plot RUN…` and `--plots`: pictures of runs as PNG and SVG files, through matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedloom.errors import FedloomError
from fedloom.metrics.metric import Metric
from fedloom.reading import Unreadable
from fedloom.records.comparison import Difference
from fedloom.records.folder import RunFolder
from fedloom.records.gain import NAME, GainMatrix
from fedloom.records.opening import FinishedRun, finished_comparison
from fedloom.report.rounds import Row, read_rounds
from fedloom.types import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedloom.report.charts import Curve

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


@dataclass(frozen=True)
class ClassCounts:
    """How many samples of each class every client has."""

    counts: Any  # an array: a row a client, a column a class
    labels: Sequence[str]
    names: Sequence[str]  # of the clients


CountClasses = Callable[[RunFolder], ClassCounts]  # raises FedloomError where the data are gone


def write_plots(
    paths: Sequence[Path | str],
    count_classes: CountClasses,
    out: Path | str | None = None,
    formats: Sequence[str] = FORMATS,
) -> Plots:
    """Pictures of one run, of a comparison, or of several runs beside each other.

    They go to `out`, or to plots/ in the folder of the run or comparison; several runs need an `out`.
    """
    require()
    folders = [RunFolder.open(Path(path)) for path in paths]
    if len(folders) > 1 and out is None:
        todo = "name one with --out DIR"
        raise FedloomError("plots of several runs must have a folder", "they belong to none of them", todo)
    place = Path(out) if out is not None else folders[0].path / "plots"
    plots = Plots()
    for name, picture in pictures(folders, count_classes):
        if isinstance(picture, str):
            plots.left_out[name] = picture
        else:
            plots.written += save(picture, place, name, formats)
    return plots


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


def pictures(folders: Sequence[RunFolder], count_classes: CountClasses) -> Made:
    if len(folders) == 1 and folders[0].kind == "run":
        return of_run(folders[0], count_classes)
    if len(folders) == 1:
        return of_comparison(folders[0])
    return of_several(folders)


def of_comparison(folder: RunFolder) -> Made:
    result = finished_comparison(folder)
    groups = {}
    for name, paths in result.folders_of(folder.path).items():
        groups[name] = [FinishedRun.open(path) for path in paths]
    return of_methods(groups, {row.name: row.difference for row in result.methods})


def of_several(folders: Sequence[RunFolder]) -> Made:
    for folder in folders:
        if folder.kind != "run":
            raise FedloomError("plots of several must be of runs", f"{folder.path} is a comparison", "plot it alone")
    runs = [FinishedRun.open(folder.path) for folder in folders]
    if len({run.metric.name for run in runs}) > 1:
        raise FedloomError("runs in one plot must have one metric", "they have several", "plot them apart")
    return of_methods({named(run, runs): [run] for run in runs}, {})  # they are not paired


def named(run: FinishedRun, among: Sequence[FinishedRun]) -> str:
    """By its method; by its folder where several have the same."""
    alike = [other for other in among if other.record.method == run.record.method]
    return run.record.short_method if len(alike) == 1 else run.path.name


def of_run(folder: RunFolder, count_classes: CountClasses) -> Made:
    from fedloom.report import charts

    run = FinishedRun.open(folder.path)
    metric, clients = run.metric, run.record.clients
    points = curve("", [run])
    if points is None:
        yield "convergence", "no round was evaluated"
    else:
        yield "convergence", lambda: charts.convergence([points], metric, stages(run))
    if all(client.figure is None for client in clients):
        yield "clients", "no client has a figure"
    else:
        yield "clients", lambda: charts.clients(clients, metric, run.record.spread.mean)
        if all(client.params is None for client in clients):
            yield "cost", "the sizes of the networks are not known"
        else:
            yield "cost", lambda: charts.cost({"": clients}, metric)
    yield from of_split(folder, count_classes)
    yield from of_gain(folder, metric)


def of_split(folder: RunFolder, count_classes: CountClasses) -> Made:
    from fedloom.report import charts

    try:
        split = count_classes(folder)
    except FedloomError as error:
        yield "split", str(error)
        return
    yield "split", lambda: charts.split(split.counts, split.labels, split.names)


def of_gain(folder: RunFolder, metric: Metric) -> Made:
    """Nothing if nobody measured it."""
    from fedloom.report import charts

    if not (folder.path / NAME).exists():
        return
    try:
        measured = GainMatrix.read(folder.path)
    except Unreadable as error:
        yield "gain", f"{NAME} is damaged: {error}"
    else:
        yield "gain", lambda: charts.gain(measured, metric)


def of_methods(groups: Mapping[str, Sequence[FinishedRun]], differences: Mapping[str, Difference | None]) -> Made:
    """`differences` to the first, by the methods' names."""
    from fedloom.report import charts

    if not groups:
        yield "methods", "nothing was compared"
        return
    metric = next(iter(groups.values()))[0].metric
    curves = []
    means = {}
    clients = {}
    for name, runs in groups.items():
        points = curve(name, runs)
        if points is not None:
            curves.append(points)
        means[name] = [run.record.spread.mean for run in runs if run.record.spread.mean is not None]
        clients[name] = [client for run in runs for client in run.record.clients]
    if curves:
        yield "convergence", lambda: charts.convergence(curves, metric, ())
    else:
        yield "convergence", "no round was evaluated"
    yield "methods", lambda: charts.methods(means, differences, metric)
    yield "cost", lambda: charts.cost(clients, metric)


def curve(name: str, runs: Sequence[FinishedRun]) -> Curve | None:
    """Over the rounds that every run evaluated; between seeds the mean, and what they span."""
    from fedloom.report.charts import Curve

    metric = runs[0].metric.name
    each = [
        {row["round"]: value for row in rounds_of(run) if (value := row.get(f"evaluation.{metric}")) is not None}
        for run in runs
    ]
    rounds: list[Any] = sorted(set.intersection(*(set(found) for found in each)))
    if not rounds:
        return None
    values: list[list[Any]] = [[found[number] for found in each] for number in rounds]
    return Curve(name, rounds, [fmean(v) for v in values], [min(v) for v in values], [max(v) for v in values])


def stages(run: FinishedRun) -> list[tuple[float, str]]:
    """Where each stage, or phase of one, begins."""
    found: list[tuple[float, str]] = []
    for row in rounds_of(run):
        name = str(row.get("phase") or row["stage"])
        if not found or found[-1][1] != name:
            found.append((float(str(row["round"])), name))
    return found


def rounds_of(run: FinishedRun) -> list[Row]:
    return read_rounds(run.path / "metrics.jsonl")

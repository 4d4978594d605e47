"""`fedloom plot RUN…` and `--plots`: pictures of runs as PNG and SVG files.

They are drawn by matplotlib, which the extra `plots` installs.
"""

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
from fedloom.records.opening import FinishedRun, finished_comparison, one_run
from fedloom.records.result import ClientResult
from fedloom.records.rows import METRICS_FILE, MetricsRow, read_rows
from fedloom.report.sections.convergence import evaluations
from fedloom.types import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedloom.report.charts import Curve, StageBegin

FORMATS = ("png", "svg")
# What matplotlib writes into a file, by its suffix, that differs between days or versions.
CHANGING_METADATA = {".png": "Software", ".svg": "Date"}


@dataclass
class Plots:
    """The pictures that were drawn, and those that could not be."""

    written: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # reasons, by the pictures' names

    def to_json(self) -> Json:
        return {"written": [str(path) for path in self.written], "left_out": self.left_out}

    def table(self) -> None:
        """Print the paths of the pictures, and why others are missing."""
        for path in self.written:
            print(path)
        for name, reason in self.left_out.items():
            print(f"no {name}: {reason}")


@dataclass(frozen=True)
class ClassCounts:
    """How many samples of each class every client has."""

    counts: Any  # an array with one row per client and one column per class
    labels: Sequence[str]
    names: Sequence[str]  # of the clients


CountClasses = Callable[[RunFolder], ClassCounts]  # raises FedloomError if the data is gone


@dataclass(frozen=True)
class Drawing:
    """A picture: its name, and the function that draws it."""

    name: str
    figure: Callable[[], Figure]


@dataclass(frozen=True)
class LeftOut:
    """A picture that cannot be drawn, and the reason."""

    name: str
    reason: str


Pictures = Iterator[Drawing | LeftOut]


def require() -> None:
    """Check that matplotlib is installed."""
    if find_spec("matplotlib") is None:
        raise FedloomError(
            "matplotlib must be installed for plots",
            "it is not",
            "install it with `pip install 'fedloom[plots]'`",
        )


def parse_formats(text: str) -> tuple[str, ...]:
    formats = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or len(set(formats)) != len(formats):
        rule = "--format must be png, svg or both"
        raise FedloomError(rule, f"got {text!r}", "try --format png,svg")
    return formats


def write_plots(
    paths: Sequence[Path | str],
    count_classes: CountClasses,
    out: Path | str | None = None,
    formats: Sequence[str] = FORMATS,
) -> Plots:
    """Draw pictures of one run, of a comparison, or of several runs beside each other.

    They are written to `out`, or to plots/ in the folder of the run or comparison; several runs
    need an `out`.
    """
    require()
    folders = [RunFolder.open(Path(path)) for path in paths]
    if out is not None:
        place = Path(out)
    elif len(folders) == 1:
        place = folders[0].path / "plots"
    else:
        raise FedloomError(
            "plots of several runs must have a folder",
            "they belong to none of them",
            "name one with --out DIR",
        )
    plots = Plots()
    for picture in pictures(folders, count_classes):
        if isinstance(picture, LeftOut):
            plots.left_out[picture.name] = picture.reason
        else:
            plots.written += save(picture.figure, place, picture.name, formats)
    return plots


def save(
    figure: Callable[[], Figure],
    place: Path,
    name: str,
    formats: Sequence[str],
) -> list[Path]:
    """Write a picture in each format.

    Files hold neither a date nor a version, so drawing a run again gives the same bytes.
    """
    from fedloom.report import charts

    paths = [place / f"{name}.{suffix}" for suffix in formats]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with charts.style():
            arranged = charts.arranged(figure())
            for path in paths:
                arranged.savefig(path, metadata={CHANGING_METADATA[path.suffix]: None})
    except OSError as error:
        raise FedloomError(
            f"{place} must be a folder that can be written",
            error.strerror or type(error).__name__,
            "name another with --out",
        ) from None
    return paths


def pictures(folders: Sequence[RunFolder], count_classes: CountClasses) -> Pictures:
    if len(folders) > 1:
        return pictures_of_several(folders)
    if folders[0].kind == "run":
        return pictures_of_run(folders[0], count_classes)
    return pictures_of_comparison(folders[0])


def pictures_of_run(folder: RunFolder, count_classes: CountClasses) -> Pictures:
    from fedloom.report import charts

    run = FinishedRun.open(folder.path)
    metric = run.metric
    clients = run.record.clients
    points = curve("", [run])
    if points is None:
        yield LeftOut("convergence", "no round was evaluated")
    else:
        curves = [points]
        yield Drawing("convergence", lambda: charts.convergence(curves, metric, stages(run)))
    if all(client.figure is None for client in clients):
        yield LeftOut("clients", "no client has a figure")
    else:
        mean = run.record.spread.mean
        yield Drawing("clients", lambda: charts.clients(clients, metric, mean))
        if all(client.params is None for client in clients):
            yield LeftOut("cost", "the sizes of the networks are not known")
        else:
            yield Drawing("cost", lambda: charts.cost({"": clients}, metric))
    yield from pictures_of_split(folder, count_classes)
    yield from pictures_of_gain(folder, metric)


def pictures_of_split(folder: RunFolder, count_classes: CountClasses) -> Pictures:
    from fedloom.report import charts

    try:
        split = count_classes(folder)
    except FedloomError as error:
        yield LeftOut("split", str(error))
        return
    yield Drawing("split", lambda: charts.split(split.counts, split.labels, split.names))


def pictures_of_gain(folder: RunFolder, metric: Metric) -> Pictures:
    """Draw the gain matrix, if `fedloom gain` has measured it."""
    from fedloom.report import charts

    if not (folder.path / NAME).exists():
        return
    try:
        measured = GainMatrix.read(folder.path)
    except Unreadable as error:
        yield LeftOut("gain", f"{NAME} is damaged: {error}")
        return
    yield Drawing("gain", lambda: charts.gain(measured, metric))
    clients = measured.clients
    balanced = measured.balanced_accuracy
    if balanced is not None:
        name = "balanced accuracy"
        yield Drawing("gain-balanced", lambda: charts.gain_beside(clients, balanced, name))
    auc = measured.auc
    if auc is not None:
        yield Drawing("gain-auc", lambda: charts.gain_beside(clients, auc, "AUC"))


def pictures_of_comparison(folder: RunFolder) -> Pictures:
    result = finished_comparison(folder)
    groups = {}
    for name, paths in result.folders_of(folder.path).items():
        groups[name] = [FinishedRun.open(path) for path in paths]
    return pictures_of_methods(groups, {row.name: row.difference for row in result.methods})


def pictures_of_several(folders: Sequence[RunFolder]) -> Pictures:
    for folder in folders:
        one_run(folder.path, "plots of several must be of runs")
    runs = [FinishedRun.open(folder.path) for folder in folders]
    metrics = {run.metric.name for run in runs}
    if len(metrics) > 1:
        rule = "runs in one plot must have one metric"
        raise FedloomError(rule, "they have several", "plot them separately")
    groups = {run_name(run, runs): [run] for run in runs}
    return pictures_of_methods(groups, {})  # these runs are not paired


def run_name(run: FinishedRun, runs: Sequence[FinishedRun]) -> str:
    """Name a run by its method, or by its folder if several runs have the same method."""
    methods = [other.record.method for other in runs]
    if methods.count(run.record.method) == 1:
        return run.record.short_method
    return run.path.name


def pictures_of_methods(
    groups: Mapping[str, Sequence[FinishedRun]],
    differences: Mapping[str, Difference | None],
) -> Pictures:
    """Draw methods beside each other; `differences` to the first are by the methods' names."""
    from fedloom.report import charts

    if not groups:
        yield LeftOut("methods", "nothing was compared")
        return
    first_runs = next(iter(groups.values()))
    metric = first_runs[0].metric
    curves = []
    means: dict[str, list[float]] = {}
    clients: dict[str, list[ClientResult]] = {}
    for name, runs in groups.items():
        points = curve(name, runs)
        if points is not None:
            curves.append(points)
        means[name] = []
        clients[name] = []
        for run in runs:
            clients[name] += run.record.clients
            if run.record.spread.mean is not None:
                means[name].append(run.record.spread.mean)
    if curves:
        yield Drawing("convergence", lambda: charts.convergence(curves, metric, ()))
    else:
        yield LeftOut("convergence", "no round was evaluated")
    yield Drawing("methods", lambda: charts.methods(means, differences, metric))
    yield Drawing("cost", lambda: charts.cost(clients, metric))


def curve(name: str, runs: Sequence[FinishedRun]) -> Curve | None:
    """Return the mean and the range over runs, for the rounds that every run evaluated.

    None: no round was evaluated by all.
    """
    from fedloom.report.charts import Curve

    figures = [evaluations_of(run, runs[0].metric) for run in runs]
    common = set(figures[0]).intersection(*figures[1:])
    if not common:
        return None
    rounds = sorted(common)
    mean = []
    low = []
    high = []
    for number in rounds:
        values = [by_round[number] for by_round in figures]
        mean.append(fmean(values))
        low.append(min(values))
        high.append(max(values))
    return Curve(name, rounds, mean, low, high)


def evaluations_of(run: FinishedRun, metric: Metric) -> dict[float, float]:
    """Return the figures of a run's evaluations by round."""
    figures = {}
    for number, figure in evaluations(rows_of(run), metric):
        if figure is not None:
            figures[number] = figure
    return figures


def stages(run: FinishedRun) -> list[StageBegin]:
    """Return where each stage, or each phase of one, begins."""
    from fedloom.report.charts import StageBegin

    begins: list[StageBegin] = []
    for row in rows_of(run):
        if not begins or begins[-1].name != row.phase:
            begins.append(StageBegin(row.round, row.phase))
    return begins


def rows_of(run: FinishedRun) -> Iterator[MetricsRow]:
    return read_rows(run.path / METRICS_FILE)

"""What a run found, as a value: result.json, the object of the Python API, and the one line of `--json`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.local import Pool
from fedloom.federation.server.checkpoint import Archive
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.metric import METRICS, Metric
from fedloom.records.findings import SIZES, findings
from fedloom.records.folder import COMPARES, ONE_OF_THEM, RunFolder
from fedloom.report.architectures import pictured
from fedloom.report.notebook import Architecture, client_html, table_html
from fedloom.report.page import NAME, try_report
from fedloom.report.progress import Screen
from fedloom.report.rounds import Row, as_csv, read_rounds
from fedloom.report.sinks import mirrored, require
from fedloom.runs.experiment import Listener, Prepared, create, execute, logging_to, reopen
from fedloom.spaces.genotype import recall
from fedloom.types import Json

if TYPE_CHECKING:
    from fedloom.export.bundle import Exported
    from fedloom.export.predicting import Predictions

log = logging.getLogger("fedloom")

MOST_DRAWN = 100  # architectures


@dataclass(frozen=True)
class Client:
    """One client's line of a result."""

    client: int
    samples: int  # all of its samples: training, validation and test
    figure: float | None  # the run's metric on its test part; None with a `reason`
    params: int | None
    macs: int | None
    architecture: Json
    figures: Mapping[str, Json]  # everything else result.json has of it

    @property
    def accuracy(self) -> float | None:
        """On its test part, whatever the run's metric is."""
        found: float | None = self.figures["accuracy"]
        return found

    def _repr_html_(self) -> str:
        return client_html(self)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    path: Path
    result: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> Run:
        folder = RunFolder.open(Path(path))
        result = folder.result()
        if result is None:
            raise FedloomError(f"{path} must be a finished run", "it has no result yet", f"`fedloom resume {path}`")
        with suppress(FedloomError):  # a damaged configuration leaves the result as it is
            recall(folder.config().options)
        return cls(folder.path, result)

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return METRICS[self.result["metric"]]

    @property
    def figures(self) -> Mapping[str, float]:
        """The metric's mean, std, worst, worst10 and pooled over the clients' test parts."""
        found: Mapping[str, float] = self.result[self.metric.name]
        return found

    @property
    def accuracy(self) -> Mapping[str, float]:
        """Accuracy over the clients' test parts, whatever the run's metric is."""
        found: Mapping[str, float] = self.result["accuracy"]
        return found

    @property
    def clients(self) -> list[Client]:
        names, metric = ("client", "samples", *SIZES), self.metric.name
        rows = [{**row, "architecture": drawable(row)} for row in self.result["clients"]]
        return [Client(figure=row[metric], figures=row, **{name: row[name] for name in names}) for row in rows]

    def client(self, number: int) -> Client:
        for client in self.clients:
            if client.client == number:
                return client
        raise FedloomError("a client must be one of the run's", f"got {number}", f"there are {len(self.clients)}")

    @property
    def metrics(self) -> list[Row]:
        """A row a round, flat: `metrics.csv` as values."""
        return read_rounds(self.path / "metrics.jsonl")

    def to_json(self) -> Json:
        """Exactly what `fedloom run --json` prints."""
        r, metric = self.result, self.metric
        brief = ("client", "samples", metric.name, *SIZES, *(["latency_ms"] if "latency" in r else []))
        return {
            "run": str(self.path),
            **{name: r[name] for name in ("method", "seed")},
            "metric": metric.name,
            "lower_is_better": metric.lower_is_better,
            metric.name: {name: r[metric.name][name] for name in ("mean", "std", "worst", "pooled")},
            "global": r["global"],
            "clients": [{name: row[name] for name in brief} for row in r["clients"]],
            "bytes": {name: r["bytes"][name] for name in ("down", "up")},
            "seconds": r["seconds"],
            **({"init": r["init"]} if "init" in r else {}),
        }

    def export(self, format: str = "torch", *, client: int | None = None, out: Path | str | None = None) -> Exported:
        """Write a client's model, or the shared one, into a folder that needs no fedloom: docs/export.md."""
        from fedloom.export.bundle import export
        from fedloom.export.finished import Finished

        return export(Finished.open(self.path), client=client, format=format, out=out)

    def predict(self, data: str | Path, *, client: int | None = None, out: Path | str | None = None) -> Predictions:
        """What a client's model, or the shared one, says of new samples: a file, a folder, a data set's name."""
        from fedloom.export.finished import Finished
        from fedloom.export.predicting import predict

        return predict(Finished.open(self.path), str(data), client=client, out=out)

    def table(self) -> None:
        """Print the clients' table."""
        from rich.console import Console

        from fedloom.report.tables import run_table

        Console(markup=False).print(run_table(self.result))

    def _repr_html_(self) -> str:
        from fedloom.report.tables import run_table

        return table_html(run_table(self.result))


def drawable(row: Mapping[str, Json]) -> Json:
    """A client's architecture: its JSON, which draws itself if it was searched."""
    plain = row["architecture"]
    return Architecture(plain, f"client {row['client']}") if isinstance(plain, Mapping) else plain


def begin(config: Experiment, out: Path | None, shown: Screen, tell: Callable[[RunFolder], None]) -> Run:
    """A new run, here or on a federation. `tell` hears of its folder before it starts."""
    check_reporting(config)
    if config.engine.federation is not None:
        from fedloom.deploy import submission

        folder = submission.create(config, out)
        tell(folder)
        with mirrored(folder.path, config, shown.listener(folder.path.name)) as told:
            return submission.carry_out(folder, told)
    folder, prepared = create(config, out, alone=True)
    tell(folder)
    return carry_out(folder, prepared, shown.listener(folder.path.name))


def check_reporting(config: Experiment) -> None:
    """What can be known to fail before anything is made or sent."""
    require(config.evaluate.sinks or ())
    if config.evaluate.profile is not None and config.engine.federation is not None:
        found, todo = "this one runs on a federation, whose networks stay with their sites", "leave --profile out"
        raise FedloomError("--profile must be given to a simulation", found, todo)


def go_on(folder: RunFolder, shown: Screen) -> Run:
    """A run that was begun before; a finished one is only opened."""
    if folder.result() is not None:
        tell_damage(folder)
        with folder.lock():
            folder.sweep()
        if not (folder.path / NAME).exists():  # a full disk, or a kill, came between the results and their page
            try_report(folder)
        return Run.open(folder.path)
    if folder.config().engine.federation is not None:
        from fedloom.deploy import submission

        with mirrored(folder.path, folder.config(), shown.listener(folder.path.name)) as told:
            return submission.carry_out(folder, told)
    return carry_out(folder, reopen(folder), shown.listener(folder.path.name))


def tell_damage(folder: RunFolder) -> None:
    """Of a finished run: which of its files are no longer what they were."""
    for name in folder.damaged():
        log.warning("%s/%s was changed or damaged after the run had finished", folder.path, name)


def take_back(folder: RunFolder, number: int) -> None:
    """Make the checkpoint of an earlier round the last one; what came after it, results included, is thrown away."""
    if folder.kind != "run":
        raise FedloomError("--from must be for one run", COMPARES, ONE_OF_THEM)
    if type(number) is not int or number < 0:
        raise FedloomError("--from must be a round", f"got {number!r}", "name one whose checkpoint is kept, or 0")
    folder.config()  # before anything is thrown away, what a resume needs must be there
    with folder.writing(), folder.lock():
        archive = Archive(folder.path)
        archive.returnable(number)
        for name in ("result.json", "metrics.csv", NAME):
            (folder.path / name).unlink(missing_ok=True)
        (folder.path / "spool" / "journal.jsonl").unlink(missing_ok=True)  # of a round that is no longer the next
        archive.take_back(number)
        ClientStore(folder.path / "clients").cut_after(number)


def carry_out(folder: RunFolder, prepared: Prepared, listen: Listener, pool: Pool | None = None) -> Run:
    """Run to the end, from wherever it stands, and write down what was found."""
    with mirrored(folder.path, prepared.config, listen) as told:
        outcome = execute(folder, prepared, pool, told)
    with folder.writing(), logging_to(folder.path / "run.log"):
        return write_result(folder, prepared, outcome)


def write_result(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> Run:
    result = findings(folder, prepared, outcome)
    final = f"checkpoints/{outcome.selected:06d}.state"
    names = [name for name in ("split.json", "metrics.jsonl", final) if (folder.path / name).exists()]
    result["checksums"] = folder.checksums(names)
    draw_architectures(folder, result["clients"])
    folder.write_text("metrics.csv", as_csv(read_rounds(folder.path / "metrics.jsonl")))
    folder.write_json("result.json", result)
    try_report(folder)
    return Run.open(folder.path)


def draw_architectures(folder: RunFolder, clients: Sequence[Json]) -> None:
    """Searched networks, for the first clients of a large run: what they are and how they look.

    The result is not written yet: one that cannot be drawn is noted in the log, and the run goes on to its end.
    """
    searched = [row for row in clients if isinstance(row["architecture"], dict)][:MOST_DRAWN]
    if not searched:
        return
    (folder.path / "architectures").mkdir(exist_ok=True)
    for row in searched:
        name = f"architectures/client-{row['client']}"
        folder.write_json(f"{name}.json", row["architecture"])
        try:
            picture = pictured(row["architecture"], f"client {row['client']}")
        except FedloomError as error:
            log.warning("the architecture of client %d was not drawn: %s", row["client"], error)
        else:
            folder.write_text(f"{name}{picture.suffix}", picture.content)

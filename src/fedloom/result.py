"""What a run found, as a value: result.json, the object of the Python API, and the one line of `--json`."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedloom import profiles
from fedloom.config import Experiment
from fedloom.errors import FedloomError
from fedloom.evaluate.summary import spread, summarise
from fedloom.experiment import Listener, Prepared, create, execute, reopen
from fedloom.federation.engines.local import Pool
from fedloom.federation.loop import Outcome
from fedloom.federation.method import Stage
from fedloom.federation.site import BASIC
from fedloom.folder import RunFolder
from fedloom.metrics.metric import METRICS, Metric, metric_of
from fedloom.report.notebook import Architecture, client_html, table_html
from fedloom.report.page import try_report
from fedloom.report.progress import Screen
from fedloom.report.rounds import Row, as_csv, read_rounds
from fedloom.sinks import mirrored, require
from fedloom.spaces.draw import as_svg
from fedloom.types import Arch, Fields, Json, Task
from fedloom.version import __version__

if TYPE_CHECKING:
    from fedloom.export.bundle import Exported
    from fedloom.export.predicting import Predictions

MOST_DRAWN = 100  # architectures
SIZES = ("params", "macs", "architecture")


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
        from fedloom.flower import submission

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
        return Run.open(folder.path)
    if folder.config().engine.federation is not None:
        from fedloom.flower import submission

        with mirrored(folder.path, folder.config(), shown.listener(folder.path.name)) as told:
            return submission.carry_out(folder, told)
    return carry_out(folder, reopen(folder), shown.listener(folder.path.name))


def carry_out(folder: RunFolder, prepared: Prepared, listen: Listener, pool: Pool | None = None) -> Run:
    """Run to the end, from wherever it stands, and write down what was found."""
    with mirrored(folder.path, prepared.config, listen) as told:
        outcome = execute(folder, prepared, pool, told)
    with folder.writing():
        return write_result(folder, prepared, outcome)


def write_result(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> Run:
    phases = in_phases(prepared.stages, folder.rows())
    found = with_latencies(prepared, build_result(prepared, outcome, worked(folder.rows())))
    result = {**found, **({"phases": phases} if phases else {})}
    draw_architectures(folder, result["clients"])
    folder.write_text("metrics.csv", as_csv(read_rounds(folder.path / "metrics.jsonl")))
    folder.write_json("result.json", result)
    try_report(folder)
    return Run.open(folder.path)


def draw_architectures(folder: RunFolder, clients: Sequence[Json]) -> None:
    """Searched networks, for the first clients of a large run: what they are and how they look."""
    searched = [row for row in clients if isinstance(row["architecture"], dict)][:MOST_DRAWN]
    if not searched:
        return
    (folder.path / "architectures").mkdir(exist_ok=True)
    for row in searched:
        name = f"architectures/client-{row['client']}"
        folder.write_json(f"{name}.json", row["architecture"])
        folder.write_text(f"{name}.svg", as_svg(Arch.from_plain(row["architecture"]), f"client {row['client']}"))


def worked(rows: Iterable[Json]) -> dict[int, Json]:
    """What each client's work took, all rounds together: its seconds, and the most that its process held."""
    seconds, memory = dict[int, list[float]](), dict[int, list[int]]()
    for line in (line for row in rows for line in row["ledger"] if line[1] >= 0):
        client, took, held = line[0], *(*line, None)[5:7]  # a run begun by an earlier version has no memory
        if took is not None:
            seconds.setdefault(client, []).append(took)
        if held is not None:
            memory.setdefault(client, []).append(held)
    return {
        client: {"seconds": round(sum(found), 3), "memory": most(memory.get(client, []))}
        for client, found in seconds.items()
    }


def in_phases(stages: Sequence[Stage], rows: Iterable[Json]) -> list[Json]:
    """The rounds of each phase of a schedule, and the share of the budget that it has in the paper."""
    counts = Counter(row["phase"] for row in rows if "phase" in row)
    paper = {name: share for stage in stages for name, share in stage.method.phases.items()}
    return [{"phase": name, "rounds": rounds, "paper": paper.get(name)} for name, rounds in counts.items()]


def most(values: Iterable[int | None]) -> int | None:
    """Of those that are known."""
    return max((value for value in values if value is not None), default=None)


def build_result(prepared: Prepared, outcome: Outcome, work: Mapping[int, Json]) -> Json:
    """result.json, from the final evaluation and the ledger."""
    personal = [row["personal"] or {} for row in outcome.clients]
    shared = [row["shared"] for row in outcome.clients if row["shared"]]
    totals, metric = outcome.totals, metric_of(prepared.task.kind)
    macs = totals.macs if prepared.config.engine.federation is None else None  # a site does not tell
    return {
        "method": prepared.config.method, "options": dict(prepared.task.options), "seed": prepared.config.seed,
        "metric": metric.name, "lower_is_better": metric.lower_is_better,
        **{name: spread([row.get(name) for row in personal]) for name in metric.beside},
        metric.name: summarise(personal, metric),
        "global": summarise(shared, metric)["pooled"], "shared": summarise(shared, metric) if shared else None,
        "clients": [client_row(prepared, row, work) for row in outcome.clients],
        "confusion": confused(prepared.task, outcome.clients),
        "registered": len(prepared.split), "rounds": outcome.rounds, "selected": outcome.selected,
        "validation": outcome.validation, "macs": macs, "seconds": round(totals.wall, 3),
        "clock": round(totals.clock, 3), "memory": most(took["memory"] for took in work.values()),
        "bytes": {
            "down": totals.down, "up": totals.up, "lan_down": totals.lan_down, "lan_up": totals.lan_up,
            "evaluate_down": totals.evaluate_down, "evaluate_up": totals.evaluate_up,
        },
        "input": {name: getattr(prepared.task, name) for name in ("kind", "shape", "labels", "mean", "std")},
        "data": {"name": prepared.split.data, "partition": prepared.split.partition, "split": prepared.split.hash},
        "versions": {"fedloom": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "privacy": privacy(prepared.stages),
        **({} if prepared.config.init is None else {"init": prepared.config.init.model_dump(mode="json")}),
    }  # fmt: skip


def with_latencies(prepared: Prepared, result: Json) -> Json:
    """Every client's latency on the profile that was asked for, and on what machine that is."""
    name = prepared.config.evaluate.profile
    if name is None:
        return result
    rows = result["clients"]
    found = profiles.latencies(prepared.task, name, [row["architecture"] for row in rows])
    clients = [{**row, "latency_ms": value} for row, value in zip(rows, found, strict=True)]
    return {**result, "clients": clients, "latency": {"profile": name, **dict(profiles.find(name).machine)}}


def confused(task: Task, clients: Sequence[Mapping[str, Json]]) -> Json | None:
    """Over the clients that told, how many test samples of each class (rows) were taken for each (columns)."""
    told = [row["confusion"] for row in clients if row.get("confusion") is not None]
    if not told:
        return None
    return {"labels": list(task.labels), "clients": len(told), "counts": np.sum(told, axis=0).tolist()}


def client_row(prepared: Prepared, row: Mapping[str, Json], work: Mapping[int, Json]) -> Json:
    rest, test = prepared.split.client(row["client"])
    figures, facts, metric = row["personal"] or {}, row.get("facts") or {}, metric_of(prepared.task.kind)
    return {
        "client": row["client"], "samples": len(rest) + len(test), "test_samples": len(test),
        **{name: figures.get(name) for name in (metric.name, "interval", *metric.beside)},
        f"shared_{metric.name}": row["shared"][metric.name] if row["shared"] else None,
        "shared_interval": row["shared"].get("interval") if row["shared"] else None,
        **{name: facts.get(name) for name in SIZES}, **work.get(row["client"], {"seconds": None, "memory": None}),
        **({"reason": row["reason"]} if "reason" in row else {}),
    }  # fmt: skip


def privacy(stages: Sequence[Stage]) -> Json:
    """Every field that left a client, and who could see it."""
    rows = [left("every", kind, fields) for kind, fields in BASIC.items()]
    for stage in stages:
        rows += [left(stage.name, kind, fields) for kind, fields in stage.method.fields.items()]
    observed = "of an embedded run only: parameters, MACs and architecture of each client's network"
    return {"left_the_clients": rows, "observer": observed}


def left(stage: str, kind: str, fields: Fields) -> Json:
    sent = {"tensors": list(fields.tensors), "extra": list(fields.extra), "values": [*fields.meta, "weight"]}
    return {"stage": stage, "order": kind, "fields": sent, "seen_by": "server"}

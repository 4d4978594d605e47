"""A finished run as the Python API has it, and how its result and drawings are written."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedloom.config.models import Experiment
from fedloom.cost.limits import Limit
from fedloom.errors import FedloomError
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.federation.server.loop import Outcome
from fedloom.records.folder import RunFolder
from fedloom.records.opening import FinishedRun
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import ClientResult, RunResult, TierResult
from fedloom.records.routes import ClientRoutes, EdgeRoutes, file_of
from fedloom.records.scores import SCORES_FILE
from fedloom.report.architectures import pictured
from fedloom.report.notebook import Architecture, client_html, table_html
from fedloom.report.page import NAME, try_report
from fedloom.report.rounds import Row, as_csv, read_rounds
from fedloom.runs.brief import brief_result
from fedloom.runs.preparing import Prepared
from fedloom.runs.result_of import result_of
from fedloom.spaces import DEFAULT, is_foreign
from fedloom.spaces.genotype import recall
from fedloom.spaces.options import AUTO
from fedloom.types import Json

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from fedloom.export.bundle import Exported
    from fedloom.export.predicting import Predictions
    from fedloom.runs.search import Searched
    from fedloom.searchers.budget_search import Pick

log = logging.getLogger("fedloom")

MOST_DRAWN = 100  # clients whose architectures are drawn


@dataclass(frozen=True)
class Client:
    """One client's part of a result."""

    client: int
    samples: int  # all of its samples: training, validation and test
    figure: float | None  # the run's metric on its test part; None with a `reason`
    params: int | None
    macs: int | None
    architecture: Json
    figures: Mapping[str, Json]  # everything that result.json has about this client

    @property
    def accuracy(self) -> float | None:
        """Accuracy on the client's test part, whatever the run's metric is."""
        accuracy: float | None = self.figures.get("accuracy")
        return accuracy

    def _repr_html_(self) -> str:
        return client_html(self)


@dataclass(frozen=True)
class Run(FinishedRun):
    """A finished run: `result` is result.json as a mapping, `record` the same with types."""

    @classmethod
    def open(cls, path: Path | str) -> Self:
        run = super().open(path)
        with suppress(FedloomError):  # a damaged configuration leaves the result as it is
            recall(RunFolder(run.path).config().options)
        return run

    @cached_property
    def result(self) -> Mapping[str, Any]:
        return self.record.to_json()

    @property
    def figures(self) -> Mapping[str, float]:
        """The metric's mean, std, worst, worst10 and pooled over the clients' test parts."""
        return self.record.spread.to_json()

    @property
    def accuracy(self) -> Mapping[str, float]:
        """Accuracy over the clients' test parts, whatever the run's metric is."""
        return self.record.spread_of("accuracy").to_json()

    @property
    def clients(self) -> list[Client]:
        return [self._client(client) for client in self.record.clients]

    def client(self, number: int) -> Client:
        record = self.record.client(number)
        if record is None:
            count = len(self.record.clients)
            raise FedloomError(
                "a client must be one of the run's",
                f"got {number}",
                f"there are {count}",
            )
        return self._client(record)

    def _client(self, record: ClientResult) -> Client:
        architecture = record.architecture
        if record.is_searched:
            # in notebooks it draws itself
            architecture = Architecture(architecture, f"client {record.client}")
        figures = {**record.to_row(self.metric), "architecture": architecture}
        return Client(
            client=record.client,
            samples=record.samples,
            figure=record.figure,
            params=record.params,
            macs=record.macs,
            architecture=architecture,
            figures=figures,
        )

    @property
    def metrics(self) -> list[Row]:
        """The rows of `metrics.csv` as values, one per round."""
        return read_rounds(self.path / "metrics.jsonl")

    def to_json(self) -> Json:
        """Exactly what `fedloom run --json` prints."""
        return brief_result(self.path, self.record)

    def export(
        self,
        format: str = "torch",
        *,
        client: int | None = None,
        tier: int | None = None,
        search: str | None = None,
        out: Path | str | None = None,
        path: str | None = None,
        prune: bool = False,
    ) -> Exported:
        """Write a client's model, or the shared one, into a folder that needs no fedloom.

        The network of a tier of devices, or the one that a search found, can be exported too.
        docs/export.md explains the formats, and `path` and `prune`.
        """
        from fedloom.export.bundle import export
        from fedloom.runs.finished import open_finished

        finished = open_finished(self.path, tier=tier, search=search)
        return export(finished, client=client, format=format, out=out, path=path, prune=prune)

    def predict(
        self,
        data: str | Path,
        *,
        client: int | None = None,
        tier: int | None = None,
        search: str | None = None,
        out: Path | str | None = None,
    ) -> Predictions:
        """Predict new samples with a client's, a tier's, a search's or the shared model.

        `data` is a file, a folder, or a data set's name.
        """
        from fedloom.export.predicting import predict
        from fedloom.runs.finished import open_finished

        finished = open_finished(self.path, tier=tier, search=search)
        return predict(finished, str(data), client=client, out=out)

    def search(
        self,
        *,
        macs: float | None = None,
        params: float | None = None,
        latency_ms: float | None = None,
        profile: str | None = None,
        unsupported: Sequence[str] = (),
        models: int | None = None,
        pick: Pick = "best",
        tune: int = 0,
        data: str | Path | Dataset[Any] | None = None,
        data_dir: str | Path | None = None,
    ) -> Searched:
        """Find a network within a new limit in the run's supernet; `fedloom search` in Python.

        `data` are samples to score on instead of the run's own: a file, a folder, a data set's
        name, or a torch `Dataset` of pairs (image, class number).
        """
        from torch.utils.data import Dataset

        from fedloom.data.readers.torch_dataset import save_dataset
        from fedloom.runs.search import SearchRequest, search

        request = SearchRequest(
            limit=Limit(params=params, macs=macs, latency_ms=latency_ms),
            profile=profile,
            unsupported=tuple(unsupported),
            models=models,
            pick=pick,
            tune=tune,
        )
        if isinstance(data, Dataset):
            data = save_dataset(data)
        if data is not None:
            request = replace(request, data=str(data))
        if data_dir is not None:
            request = replace(request, data_dir=Path(data_dir))
        return search(self.path, request)

    def next_steps(self) -> list[str]:
        """Where the report is, and commands that use the run's models."""
        model = "--client 0"
        if RunFolder.open(self.path).config().is_federated:  # clients' own models are at the sites
            model = "--shared"
        run = shlex.quote(str(self.path))
        return [
            f"report: {self.path / NAME}",
            f"next: fedloom export {run} {model}",
            f"      fedloom predict {run} {model} --data NEW",
        ]

    def table(self) -> None:
        """Print the clients' table."""
        from rich.console import Console

        from fedloom.report.run_table import run_table

        Console(markup=False).print(run_table(self.record))

    def _repr_html_(self) -> str:
        from fedloom.report.run_table import run_table

        return table_html(run_table(self.record))


def searches_foreign_space(config: Experiment) -> bool:
    """Whether a run searches a space from outside FedLoom; `auto` is always one of ours."""
    name = config.options.get("space", DEFAULT)
    return name != AUTO and is_foreign(name)


def write_result(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> Run:
    """Write what a finished run leaves: result.json, metrics.csv, drawings and the report."""
    final = f"checkpoints/{outcome.selected:06d}.state"
    files = ["split.json", "metrics.jsonl", SCORES_FILE, final]
    for stage in prepared.stages:
        if stage.leaves is not None:
            files.append(f"{stage.leaves}.state")
    present = [name for name in files if (folder.path / name).exists()]
    result = result_of(folder, prepared, outcome).replace(checksums=folder.checksums(present))
    draw_architectures(folder, result)
    write_routes(folder, outcome.clients)
    folder.write_text("metrics.csv", as_csv(read_rounds(folder.path / "metrics.jsonl")))
    folder.write_json(RESULT, result.to_json())
    try_report(folder)
    return Run.open(folder.path)


def genotype_of(owner: ClientResult | TierResult) -> Json:
    """A searched architecture as its file has it: with its head, if heads were searched too."""
    if owner.head is None:
        return owner.architecture
    return {**owner.architecture, "head": owner.head}


def draw_architectures(folder: RunFolder, result: RunResult) -> None:
    """Draw the searched networks of all tiers and of a run's first clients.

    The result is not written yet, so a network that cannot be drawn must not stop the run: it is
    noted in the log.
    """
    drawings: list[Drawing] = []
    for client in result.clients:
        if client.is_searched and len(drawings) < MOST_DRAWN:
            drawings.append(Drawing("client", client.client, genotype_of(client)))
    for tier in result.tiers:
        if tier.is_searched:
            drawings.append(Drawing("tier", tier.tier, genotype_of(tier)))
    if not drawings:
        return
    (folder.path / "architectures").mkdir(exist_ok=True)
    for drawing in drawings:
        draw(folder, drawing)


def write_routes(folder: RunFolder, clients: Sequence[ClientEvaluation]) -> None:
    """Write how often each operation is used, for models whose samples take different paths."""
    for evaluation in clients[:MOST_DRAWN]:
        routes = evaluation.own.network.routes
        if routes is None:
            continue
        (folder.path / "architectures").mkdir(exist_ok=True)
        edges = [EdgeRoutes(**edge) for edge in routes["edges"]]
        content = ClientRoutes(fixed_macs=routes["fixed_macs"], edges=edges)
        folder.write_json(file_of(evaluation.client), content.to_json())


@dataclass(frozen=True)
class Drawing:
    """An architecture that is written to a file and drawn."""

    kind: str  # "client" or "tier": whose architecture it is
    number: int
    genotype: Json

    @property
    def title(self) -> str:
        return f"{self.kind} {self.number}"


def draw(folder: RunFolder, drawing: Drawing) -> None:
    name = f"architectures/{drawing.kind}-{drawing.number}"
    folder.write_json(f"{name}.json", drawing.genotype)
    try:
        picture = pictured(drawing.genotype, drawing.title)
    except FedloomError as error:
        log.warning("the architecture of %s was not drawn: %s", drawing.title, error)
        return
    folder.write_text(f"{name}{picture.suffix}", picture.content)
    if picture.trouble is not None:
        log.warning(
            "the architecture of %s is described in text: %s",
            drawing.title,
            picture.trouble,
        )

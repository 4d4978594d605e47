"""A run's result, and how runs are started, resumed and taken back to an earlier round.

`Run` is the object of the Python API. It reads result.json and gives the one line of `--json`.
"""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedloom.config.models import Experiment
from fedloom.cost.limits import Limit
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.evaluation import ClientEvaluation
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.events import Listener
from fedloom.federation.server.loop import Outcome
from fedloom.metrics.metric import PERPLEXITY
from fedloom.records.folder import RunFolder, logging_to
from fedloom.records.opening import FinishedRun, one_run, tell_damage
from fedloom.records.result import NAME as RESULT
from fedloom.records.result import ClientResult, RunResult, Spread, TierResult
from fedloom.records.routes import ClientRoutes, EdgeRoutes, file_of
from fedloom.records.scores import SCORES_FILE
from fedloom.records.searches import SEARCHES
from fedloom.report.architectures import pictured
from fedloom.report.notebook import Architecture, client_html, table_html
from fedloom.report.page import NAME, try_report
from fedloom.report.progress import Screen
from fedloom.report.rounds import Row, as_csv, read_rounds
from fedloom.report.sinks import mirrored, require
from fedloom.runs.experiment import create, execute
from fedloom.runs.preparing import Prepared, prepared_again, reopen
from fedloom.runs.result_of import result_of
from fedloom.runs.same_space import check_space_again
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
        record = self.record
        metric = self.metric
        spread = record.spread
        brief: dict[str, Json] = {
            "run": str(self.path),
            "method": record.method,
            "seed": record.seed,
            "metric": metric.name,
            "lower_is_better": metric.lower_is_better,
            metric.name: {
                "mean": spread.mean,
                "std": spread.std,
                "worst": spread.worst,
                "pooled": spread.pooled,
            },
            **self._secondary_figures(),
            "global": record.shared_pooled,
            **self._judgement(),
            "clients": [self._brief(client) for client in record.clients],
            **self._tiers(),
            **self._stages(),
            **self._decisions(),
            "bytes": {
                "down": record.traffic.down,
                "up": record.traffic.up,
                "lan_down": record.traffic.lan_down,
                "lan_up": record.traffic.lan_up,
            },
            "seconds": record.seconds,
        }
        if record.simulated is not None:
            brief["simulated"] = record.simulated.to_json()
        if record.init is not None:
            brief["init"] = record.init.to_json()
        return brief

    def _secondary_figures(self) -> dict[str, Json]:
        """Balanced accuracy, AUC if there are two classes, or MAE; text has none of them."""
        if self.metric is PERPLEXITY:
            return {}
        figures: dict[str, Json] = {}
        for name in self.metric.columns:
            spread = Spread(mean=None)
            if name in self.record.columns:
                spread = self.record.spread_of(name)
            figures[name] = {"mean": spread.mean, "std": spread.std, "worst": spread.worst}
            if name == "mae":
                figures[name]["pooled"] = spread.pooled
        if "balanced_accuracy" in figures:
            figures["balanced_accuracy"]["pooled"] = self.record.pooled_balanced_accuracy
        return figures

    def _tiers(self) -> dict[str, Json]:
        """Results by tier of devices, if any, without their long fronts (see result.json)."""
        tiers = []
        for tier in self.record.tiers:
            brief = tier.to_json()
            brief.pop("front", None)  # a fixed network has none
            tiers.append(brief)
        if not tiers:
            return {}
        return {"tiers": tiers}

    def _stages(self) -> dict[str, Json]:
        """Results of earlier stages, such as a supernet before it is cut."""
        if not self.record.stages:
            return {}
        return {"stages": [stage.to_json() for stage in self.record.stages]}

    def _decisions(self) -> dict[str, Json]:
        """Decisions of a method that chooses by validation data."""
        if not self.record.decisions:
            return {}
        return {"decisions": [decision.to_json() for decision in self.record.decisions]}

    def _judgement(self) -> dict[str, Json]:
        """What helps to judge the figures: gains by personal models, baselines and cautions."""
        record = self.record
        gain = record.known_gain
        judgement: dict[str, Json] = {"personal_gain": None}
        if gain is not None:
            judgement["personal_gain"] = {"mean": gain.difference, **gain.to_json()}
        if self.metric.counts_answers:
            judgement["shared_balanced_accuracy"] = record.shared_balanced_accuracy
            if record.has_two_classes:
                judgement["shared_auc"] = record.shared_auc
            judgement["most_common_class"] = record.most_common_class
        judgement["cautions"] = record.known_cautions.to_json()
        return judgement

    def _brief(self, client: ClientResult) -> Json:
        brief: dict[str, Json] = {
            "client": client.client,
            "samples": client.samples,
            "test_samples": client.test_samples,
            self.metric.name: client.figure,
            **self._secondary_figures_of(client),
            "params": client.params,
            "macs": client.macs,
            "architecture": client.architecture,
        }
        if self.record.latency is not None:
            brief["latency_ms"] = client.latency_ms
        if client.tier is not None:
            brief["tier"] = client.tier
        return brief

    def _secondary_figures_of(self, client: ClientResult) -> dict[str, Json]:
        if self.metric is PERPLEXITY:
            return {}
        figures: dict[str, Json] = {}
        for name in self.metric.columns:
            figures[name] = None
            if name in self.record.columns:
                figures[name] = client.beside.get(name)
        if not self.metric.counts_answers:
            return figures
        return {**figures, "answers": client.answers}

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

        from fedloom.data.readers.torch_dataset import kept
        from fedloom.runs.search import Asked, search

        asked = Asked(
            limit=Limit(params=params, macs=macs, latency_ms=latency_ms),
            profile=profile,
            unsupported=tuple(unsupported),
            models=models,
            pick=pick,
            tune=tune,
        )
        if isinstance(data, Dataset):
            data = kept(data)
        if data is not None:
            asked = replace(asked, data=str(data))
        if data_dir is not None:
            asked = replace(asked, data_dir=Path(data_dir))
        return search(self.path, asked)

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

        from fedloom.report.tables import run_table

        Console(markup=False).print(run_table(self.record))

    def _repr_html_(self) -> str:
        from fedloom.report.tables import run_table

        return table_html(run_table(self.record))


def begin(
    config: Experiment,
    out: Path | None,
    shown: Screen,
    tell: Callable[[RunFolder], None],
    split: Split | None = None,
) -> Run:
    """Carry out a new run in this process and its workers.

    `tell` is called with the run's folder before it starts. `split` is used if it is given;
    otherwise one is made.
    """
    require(config.evaluate.sinks or ())
    folder, prepared = create(config, out, split, alone=True)
    tell(folder)
    return carry_out(folder, prepared, shown.listener(folder.path.name))


def go_on(folder: RunFolder, shown: Screen) -> Run:
    """Resume a run that was started before, in this process and its workers."""
    return carry_out(folder, reopen(folder), shown.listener(folder.path.name))


def tidied(folder: RunFolder) -> Run:
    """Open a finished run.

    Leftovers are removed, damage is reported, and the report is written if it is missing.
    """
    tell_damage(folder)
    with folder.lock():
        folder.sweep()
    if not (folder.path / NAME).exists():
        # the disk was full, or the process was killed, after the results were written
        try_report(folder)
    return Run.open(folder.path)


def check_own_space(folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Refuse to resume a simulated run from a checkpoint if its search space has changed."""
    if searches_foreign_space(folder.config()):
        check_space_again(prepared_again(folder).task, checkpoint)


def take_back(
    folder: RunFolder,
    number: int,
    check_space: Callable[[RunFolder, Checkpoint], None] = check_own_space,
) -> None:
    """Make the checkpoint of an earlier round the last one.

    Everything after it is deleted, results included; `check_space` may refuse before that.
    """
    one_run(folder.path, "--from must be for one run")
    if type(number) is not int or number < 0:
        advice = "name one whose checkpoint is kept, or 0"
        raise FedloomError("--from must be a round", f"got {number!r}", advice)
    folder.config()  # before anything is deleted: a resumed run needs a readable configuration
    with folder.writing(), folder.lock():
        archive = Archive(folder.path)
        checkpoint = archive.returnable(number)
        check_space(folder, checkpoint)
        for name in (RESULT, "metrics.csv", NAME):
            (folder.path / name).unlink(missing_ok=True)
        # searches used weights that may change
        shutil.rmtree(folder.path / SEARCHES, ignore_errors=True)
        # the journal belongs to a round that is no longer the next
        (folder.path / "spool" / "journal.jsonl").unlink(missing_ok=True)
        archive.take_back(number)
        ClientStore(folder.path / "clients").cut_after(number)


def searches_foreign_space(config: Experiment) -> bool:
    """Whether a run searches a space from outside FedLoom; `auto` is always one of ours."""
    name = config.options.get("space", DEFAULT)
    return name != AUTO and is_foreign(name)


def carry_out(
    folder: RunFolder,
    prepared: Prepared,
    listen: Listener,
    pool: Pool | None = None,
) -> Run:
    """Run to the end, from wherever the run stands, and write its result."""
    with mirrored(folder.path, prepared.config, listen) as listener:
        outcome = execute(folder, prepared, pool, listener)
    with folder.writing(), logging_to(folder.path / "run.log"):
        return write_result(folder, prepared, outcome)


def write_result(folder: RunFolder, prepared: Prepared, outcome: Outcome) -> Run:
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

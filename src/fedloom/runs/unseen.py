"""`fedloom adapt RUN --transform …`: a finished run's models adapt to a task that no client had.

The samples are the run's own: each chosen client trains on some of its training part and tests on
its test part. Both are changed by this transform only. What the partition did to the client's
samples is left out, except for the tint, without which they would not fit the network.

This is an ordinary run of the method `adapt` with one client for each chosen one, so it can be
resumed and exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from torch import nn

from fedloom.config.models import Experiment, validated
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import check_transform, parse_transform
from fedloom.data.partitions.rule import Each, Rule, Tint, Transform
from fedloom.data.parts import size_of_held
from fedloom.data.split import ClientPart, Split, split_of
from fedloom.errors import FedloomError
from fedloom.evaluate.summary import spread
from fedloom.metrics.metric import Metric
from fedloom.records.folder import RunFolder
from fedloom.records.opening import finished_result, one_run
from fedloom.records.result import Spread
from fedloom.report.cautions import cautions_of_run
from fedloom.report.numbers import amount, counted
from fedloom.report.progress import Screen
from fedloom.runs.adapt import TRANSFORM, Tuning, optional, too_many, transform_json
from fedloom.runs.configure import config_of
from fedloom.runs.finished import open_finished
from fedloom.runs.newcomers import Newcomer
from fedloom.runs.preparing import Prepared, reopen
from fedloom.runs.results import Run
from fedloom.runs.running import begin
from fedloom.types import Json

# The model to begin with: that of one client, the shared one, or each client's own.
Source = int | Literal["shared", "each"]


@dataclass(frozen=True)
class Parameters:
    """How many parameters of a model were trained, and how many were not."""

    trained: int
    frozen: int


@dataclass(frozen=True)
class Unseen:
    """The result: a run of `adapt`, whose clients are clients of the finished run."""

    run: Run
    source: Source
    transform: Transform | None
    samples: int | None  # training samples of each client; None: all that it has
    tuning: Tuning
    clients: Sequence[int]  # their numbers in the finished run
    parameters: Sequence[Parameters]  # of each client's model

    @property
    def metric(self) -> Metric:
        return self.run.metric

    @property
    def before(self) -> Spread:
        """Figures of the models before fine-tuning, on the same test parts."""
        return spread(client.shared_figure for client in self.run.record.clients)

    @property
    def after(self) -> Spread:
        return spread(client.figure for client in self.run.record.clients)

    @property
    def trained(self) -> int:
        """Trained parameters, averaged over clients."""
        return round(fmean(parameters.trained for parameters in self.parameters))

    @property
    def frozen(self) -> int:
        return round(fmean(parameters.frozen for parameters in self.parameters))

    def to_json(self) -> Json:
        epochs: int | None = self.tuning.epochs
        if self.tuning.iterations is not None:
            epochs = None
        return {
            "run": str(self.run.path),
            "from": name_of(self.source),
            "metric": self.metric.name,
            "transform": transform_json(self.transform),
            "samples": self.samples,
            "iterations": self.tuning.iterations,
            "epochs": epochs,
            "train": self.tuning.train,
            "trained": self.trained,
            "frozen": self.frozen,
            "before": mean_and_std(self.before),
            "after": mean_and_std(self.after),
            "clients": self._rows(),
            "cautions": self.run.record.known_cautions.to_json(),
        }

    def _rows(self) -> list[Json]:
        rows: list[Json] = []
        records = self.run.record.clients
        for number, record, parameters in zip(self.clients, records, self.parameters, strict=True):
            row = {
                "client": number,
                "samples": record.samples - record.test_samples,
                "test_samples": record.test_samples,
                "before": record.shared_figure,
                "after": record.figure,
                "trained": parameters.trained,
                "frozen": parameters.frozen,
            }
            rows.append(row)
        return rows

    def table(self) -> None:
        """Print the result as sentences."""
        task = str(self.transform or "no transform")
        if len(self.clients) == 1:
            print(f"{task}: the samples of client {self.clients[0]}, {self._training()}")
        else:
            print(f"{task}: {len(self.clients)} clients, each with its samples, {self._training()}")
        print(f"model:  {name_of(self.source)}; {self._parts()}")
        print(f"before: {self._figure(self.before)}")
        print(f"after:  {self._figure(self.after)}")
        for caution in cautions_of_run(self.run.record):
            print(caution)
        export = f"`fedloom export {self.run.path} --client 0`"
        print(f"The models are the clients of {self.run.path}: {export}")

    def _training(self) -> str:
        samples = "its training part"
        if self.samples is not None:
            samples = counted(self.samples, "sample")
        length = counted(self.tuning.epochs, "epoch")
        if self.tuning.iterations is not None:
            length = counted(self.tuning.iterations, "iteration")
        return f"{length} on {samples}, tested on its test part"

    def _parts(self) -> str:
        return f"{amount(self.trained)} parameters trained, {amount(self.frozen)} frozen"

    def _figure(self, figures: Spread) -> str:
        metric = self.metric
        mean = f"{metric.title} {metric.text(figures.mean)}"
        if len(self.clients) == 1:
            return f"{mean}{metric.unit}"
        return f"{mean} ± {metric.text(figures.std)}{metric.unit} (mean and std over clients)"


def name_of(source: Source) -> str:
    if source in ("shared", "each"):
        return str(source)
    return f"client {source}"


def mean_and_std(figures: Spread) -> Json:
    return {"mean": figures.mean, "std": figures.std}


def adapt_unseen(
    path: str | Path,
    transform: str,
    *,
    source: Source,
    screen: Screen,
    announce: Callable[[RunFolder], None],
    samples: int | None = None,
    tuning: Tuning | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> Unseen:
    """Fine-tune models of a finished run on its own samples, transformed into another task.

    `source` is the shared model for every client, client K's for client K, or each client's own.
    """
    exact = parse_transform(TRANSFORM, transform)
    folder = one_run(path)
    finished_result(folder)  # refuses a run that is not finished
    check_samples_here(folder)
    before = reopen(folder)
    if exact is not None:
        channels = before.task.shape[0]
        check_transform(f"{TRANSFORM} {transform}", exact, before.source, channels)
    clients = clients_of(before, source)
    split = unseen_split(before, clients, exact, samples)
    tuning = tuning or Tuning()
    data = before.config.data.model_copy(
        update={
            "clients": len(clients),
            "partition": split.partition,
            "split": None,
            "server_share": 0.0,
        }
    )
    init: dict[str, Json] = {"run": str(path)}
    if source != "shared":
        init["clients"] = list(clients)
    tree = {
        "method": "adapt",
        "seed": seed,
        "options": tuning.options(before.config),
        "data": data.model_dump(mode="json", exclude_none=True),
        "budget": {"rounds": tuning.rounds},
        "engine": {"workers": 0},
        "init": init,
    }
    config: Experiment = validated(Experiment, tree)
    run = begin(config, optional(out), screen, announce, split)
    parameters = parameters_of(run, len(clients))
    return Unseen(run, source, exact, samples, tuning, clients, parameters)


def check_samples_here(folder: RunFolder) -> None:
    if config_of(folder).is_federated:
        raise FedloomError(
            "the run's own samples must be at hand",
            "in a federation they never left their sites",
            "give samples with --data",
        )


def clients_of(before: Prepared, source: Source) -> list[int]:
    """The clients whose samples are used."""
    count = len(before.split)
    if source in ("shared", "each"):
        return list(range(count))
    if source not in range(count):
        rule = "--from must be one of the run's clients"
        raise FedloomError(rule, f"got {source}", f"there are {count}")
    return [int(source)]


def unseen_split(
    before: Prepared,
    clients: Sequence[int],
    transform: Transform | None,
    samples: int | None,
) -> Split:
    """The test parts of these clients, and the first samples that each trained on.

    The split's order is random, so the first samples are a random choice.
    """
    parts = []
    for client in clients:
        rest, test = before.split.client(client)
        validation = size_of_held(len(rest), before.hold)
        parts.append(ClientPart(test, rest[: len(rest) - validation]))
    if samples is not None:
        sizes = [len(part.rest) for part in parts]
        if samples > min(sizes):
            smallest = clients[sizes.index(min(sizes))]
            raise too_many(samples, min(sizes), f"client {smallest}")
        parts = [ClientPart(part.test, part.rest[:samples]) for part in parts]
    return split_of(before.split, parts, str(unseen_rule(before.split, transform)))


def unseen_rule(split: Split, transform: Transform | None) -> Rule:
    """The run's partition rule, with this transform instead of its own."""
    rule = parse(split.partition)
    each = Each((transform,))
    if rule.has_tint:
        return Rule(rule.name, rule.value, (Tint(), each))
    return Rule(rule.name, rule.value, (each,))


def parameters_of(run: Run, clients: int) -> list[Parameters]:
    """How many parameters of each client's model were trained."""
    finished = open_finished(run.path)
    counts = []
    for client in range(clients):
        model = finished.served(client)
        assert isinstance(model.method, Newcomer)
        net = model.network()
        names = model.method.trained_names(net, model.order, model.run.task)
        counts.append(count_parameters(net, names))
    return counts


def count_parameters(net: nn.Module, names: frozenset[str]) -> Parameters:
    trained = 0
    frozen = 0
    for name, weight in net.named_parameters():
        if name in names:
            trained += weight.numel()
        else:
            frozen += weight.numel()
    return Parameters(trained, frozen)

"""`fedloom adapt`: a newcomer, which was not in the federation, fine-tunes its model.

This is an ordinary run of the method `adapt` with one client, so it can be resumed, exported and
used for predictions. The newcomer's samples are split like any client's: a test part by the seed,
and all others to train on. Without a newcomer's samples, see `unseen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.configured import configured_source
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import check_transform, parse_transform
from fedloom.data.partitions.rule import Each, Rule, Tint, Transform
from fedloom.data.partitions.tint import SHARES
from fedloom.data.split import ClientPart, Split, split_of
from fedloom.errors import FedloomError
from fedloom.evaluate.gain import sgd_of
from fedloom.export.predicting import beside_text, figure_text
from fedloom.records.folder import RunFolder
from fedloom.records.opening import finished_result, one_run
from fedloom.records.result import ClientResult, RunResult
from fedloom.report.cautions import cautions_of_run
from fedloom.report.progress import Screen
from fedloom.report.run_table import seen
from fedloom.runs.configure import config_of
from fedloom.runs.preparing import prepare
from fedloom.runs.results import Run
from fedloom.runs.running import begin
from fedloom.types import Json

TRANSFORM = "--transform"
SLOWER = 10  # fine-tuning uses a tenth of the run's learning rate, as local adaptation does


@dataclass(frozen=True)
class Adapted:
    """The newcomer's run, and its figures before and after."""

    run: Run
    source: str
    options: Mapping[str, Json] = field(default_factory=dict)  # those given, for the JSON

    @property
    def newcomer(self) -> ClientResult:
        return self.run.record.clients[0]

    @property
    def before(self) -> Json:
        """Figures of the model before fine-tuning, on the same test samples."""
        figures: dict[str, Json] = {
            self.run.metric.name: self.newcomer.shared_figure,
            "interval": self.newcomer.shared_interval,
        }
        for name in self.run.record.columns_of_classes:
            figures[name] = self.shared_figures[name]
        return figures

    @property
    def shared_figures(self) -> dict[str, float | None]:
        """Other figures than the metric's of the model before fine-tuning."""
        newcomer = self.newcomer
        return {
            "balanced_accuracy": newcomer.shared_balanced_accuracy,
            "auc": newcomer.shared_auc,
        }

    @property
    def after(self) -> Json:
        figures: dict[str, Json] = {
            self.run.metric.name: self.newcomer.figure,
            "interval": self.newcomer.interval,
        }
        for name in self.run.record.columns_of_classes:
            figures[name] = self.newcomer.beside.get(name)
        return figures

    def to_json(self) -> Json:
        return {
            "run": str(self.run.path),
            "from": self.source,
            "metric": self.run.metric.name,
            "samples": self.newcomer.samples,
            "test_samples": self.newcomer.test_samples,
            "seen": self.run.record.seen,
            "before": self.before,
            "after": self.after,
            "cautions": self.run.record.known_cautions.to_json(),
            **self.options,
        }

    def table(self) -> None:
        """Print the result as sentences."""
        newcomer = self.newcomer
        metric = self.run.metric
        tests = f"{newcomer.test_samples} of them only for testing"
        print(f"{newcomer.samples} samples of a new client, {tests}")
        before = figure_text(metric, newcomer.shared_figure, newcomer.shared_interval)
        after = figure_text(metric, newcomer.figure, newcomer.interval)
        classes = 2 if self.run.record.has_two_classes else 0
        print(f"before: {before}{beside_text(metric, self.shared_figures, classes)}")
        print(f"after:  {after}{beside_text(metric, newcomer.beside, classes)}")
        for caution in cautions_of_run(self.run.record):
            print(caution)
        doubt = seen(self.run.record)
        if doubt:
            print(doubt.strip())
        export = f"`fedloom export {self.run.path} --client 0`"
        print(f"The model is client 0 of {self.run.path}: {export}")


def adapt(
    path: str | Path,
    data: str,
    *,
    source: int | None,
    tier: int | None = None,
    search: str | None = None,
    screen: Screen,
    announce: Callable[[RunFolder], None],
    directory: str | None = None,
    skip_bad: bool = False,
    tuning: Tuning | None = None,
    transform: str | None = None,
    samples: int | None = None,
    test: float = 0.2,
    seed: int = 0,
    out: str | Path | None = None,
) -> Adapted:
    """Fine-tune the shared model of a finished run on a newcomer's samples.

    `source` names a client whose model is used instead of the shared one; `tier` and `search` use
    the network of a tier of devices, or the one that a search found. `transform` changes the
    newcomer's samples, and `samples` limits how many of them are trained on.
    """
    folder = one_run(path)
    result = finished_result(folder)  # refuses a run that is not finished
    tuning = tuning or Tuning()
    section = {
        "name": data,
        "dir": directory,
        "clients": 1,
        "partition": "iid",
        "test": test,
        "min_samples": 4,
        "skip_bad": skip_bad,
    }
    if result.input is not None and result.input.resize is not None:
        section |= {"resize": result.input.resize, "fit": result.input.fit}
    has_tint = parse(result.data.partition).has_tint
    if transform is not None or has_tint:
        section["partition"] = newcomers_partition(section, result, transform, has_tint)
    tree = {
        "method": "adapt",
        "seed": seed,
        "options": tuning.options(config_of(folder)),
        "data": section,
        "budget": {"rounds": tuning.rounds},
        "engine": {"workers": 0},
        "init": {"run": str(path), "client": source, "tier": tier, "search": search},
    }
    config: Experiment = validated(Experiment, tree)
    split = None
    if samples is not None:
        split = fewer_samples(prepare(config).split, samples)
    run = begin(config, optional(out), screen, announce, split)
    given_options = tuning.given_options
    if transform is not None:
        given_options["transform"] = transform_json(parse_transform(TRANSFORM, transform))
    if samples is not None:
        given_options["samples"] = samples
    if source is not None:
        return Adapted(run, f"client {source}", given_options)
    if tier is not None:
        return Adapted(run, f"tier {tier}", given_options)
    if search is not None:
        return Adapted(run, f"search {search}", given_options)
    return Adapted(run, "shared", given_options)


@dataclass(frozen=True)
class Tuning:
    """How long and at what rate the model is tuned, and which of its weights."""

    epochs: int = 10
    iterations: int | None = None  # instead of epochs
    lr: float | None = None  # None: a tenth of the run's
    train: Literal["weights", "personal"] = "weights"

    @property
    def rounds(self) -> int:
        """One round per epoch, or a single round of all iterations."""
        if self.iterations is not None:
            return 1
        return self.epochs

    @property
    def given_options(self) -> dict[str, Json]:
        """Options that differ from the defaults, except epochs and rate."""
        fields: dict[str, Json] = {}
        if self.iterations is not None:
            fields["iterations"] = self.iterations
        if self.train != "weights":
            fields["train"] = self.train
        return fields

    def options(self, config: Experiment) -> dict[str, Json]:
        """Options of the method `adapt`: the run's own SGD settings, with another rate."""
        options = sgd_of(config.options)
        lr = options.lr / SLOWER
        if self.lr is not None:
            lr = self.lr
        plain = options.model_copy(update={"lr": lr}).model_dump(mode="json")
        return {**plain, **self.given_options}


def newcomers_partition(
    section: Mapping[str, Json],
    result: RunResult,
    transform: str | None,
    has_tint: bool,
) -> str:
    """The partition of a newcomer whose samples are transformed, or tinted like the run's."""
    changes: list[Tint | Each] = []
    source = configured_source(validated(DataConfig, dict(section)))
    channels = 0
    if source.kind == "image":
        channels = int(source.x.shape[1])
    if has_tint and channels == 1:
        changes.append(Tint())
        channels = len(SHARES)
    if transform is not None:
        exact = parse_transform(TRANSFORM, transform)
        if exact is not None:
            check_transform(f"--transform {transform}", exact, source, channels)
        changes.append(Each((exact,)))
    return str(Rule("iid", None, tuple(changes)))


def fewer_samples(split: Split, samples: int) -> Split:
    """The split with only `samples` training samples per client, and the same test parts."""
    parts = []
    for client in range(len(split)):
        rest, test = split.client(client)
        if samples > len(rest):
            raise too_many(samples, len(rest), "the new client")
        parts.append(ClientPart(test, rest[:samples]))
    return split_of(split, parts, split.partition)


def too_many(samples: int, available: int, owner: str) -> FedloomError:
    rule = f"--samples must be at most what {owner} has to train on"
    problem = f"got {samples} and there are {available}"
    return FedloomError(rule, problem, f"try --samples {available}")


def optional(out: str | Path | None) -> Path | None:
    if out is None:
        return None
    return Path(out)


def transform_json(transform: Transform | None) -> list[Json]:
    """A transform as result.json has it; `none` is an empty list."""
    if transform is None:
        return []
    return [asdict(transform)]

"""The model card of an export: what it was trained on, how well it does, and its limits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fedloom.config.models import Fit
from fedloom.data.tables.encoding import CategoryColumn, Encoding, NumberColumn
from fedloom.export.description import ModelDescription
from fedloom.export.finished import Finished
from fedloom.export.paths import PathFacts, PathName
from fedloom.export.predicting import figure_text
from fedloom.metrics.metric import RMSE, Metric
from fedloom.records.result import ClientResult, RunResult
from fedloom.report.tables import NAMED, named_figures, seen

MOST_LABELS = 50


def card(
    finished: Finished,
    about: ModelDescription,
    notes: Sequence[str],
    paths: PathFacts | None = None,
) -> str:
    """README.md, in Markdown. Whatever a user named is escaped."""
    client = about.client
    whose = "The shared model of all clients"
    if client is not None:
        whose = f"The model of client {client}"
    elif finished.named is not None:
        whose = safe(finished.named.title.capitalize())
    method = safe(finished.run.record.method)
    sections = {
        f"# {whose}": [f"Found by {method} and exported by fedloom {about.fedloom}.", *notes],
        "## How to load it": how_to_load(about).splitlines(),
        "## Input and answer": [*interface(about), *colours(finished)],
        "## Paths": path_section(paths),
        "## How well it does": [*figures_of_part(paths), *figures(finished, client)],
        "## Where it comes from": origin(finished, about),
        "## Privacy": [*privacy(finished, client), *privacy_of_paths(paths)],
        "## Limits": [*limits(about), *assumptions(finished)],
    }
    if paths is None:
        del sections["## Paths"]
    texts = ["\n".join([head, "", *lines]) for head, lines in sections.items()]
    return "\n\n".join(texts) + "\n"


LOAD = """```python
import model                      # needs torch and numpy, not fedloom
network = model.load()
scores = network(samples)         # raw samples, [n, {shape}]
model.predict(samples)            # [(label, probability), …]
```"""

LOAD_ROWS = """```python
import model                      # needs torch and numpy, not fedloom
samples = model.samples_of(model.rows_in("rows.csv"))   # the columns of training, in any order
model.predict(samples)            # {answer}
network = model.load()
scores = network(samples)         # [n, {shape}] → {scores}
```"""

LIMITS = """- Figures are of this data set and these clients; elsewhere, measure first.
- It was not tested against inputs made to deceive it, nor for fairness between groups of people."""
PROBABILITIES = "- Probabilities are the softmax of its scores, and not calibrated."
NUMBERS = "- It says nothing of how sure it is of a number."


def limits(about: ModelDescription) -> list[str]:
    if foretells_numbers(about):
        return [*LIMITS.splitlines(), NUMBERS]
    return [*LIMITS.splitlines(), PROBABILITIES]


def foretells_numbers(about: ModelDescription) -> bool:
    return about.input.kind == "regression"


def how_to_load(about: ModelDescription) -> str:
    shape = ", ".join(map(str, about.input.shape))
    if about.input.table is None:
        return LOAD.format(shape=shape)
    if foretells_numbers(about):
        return LOAD_ROWS.format(
            shape=shape, answer="[number, …]", scores="[n, 1], in the label's own units"
        )
    return LOAD_ROWS.format(shape=shape, answer="[(label, probability), …]", scores="scores")


# What became of images that are not square.
FITS: dict[Fit, str] = {
    "stretch": "those that are not square were stretched",
    "crop": "those that are not square were cropped to their middle square first",
    "pad": "those that are not square were padded to a black square first, 0 of bytes and "
    "otherwise an image's own lowest value",
}


def safe(value: Any) -> str:
    """A user's words as plain text: nothing in them is Markdown or HTML."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_{}\[\]<>#|&!~])", lambda match: f"&#{ord(match[1])};", text)


def code(value: Any) -> str:
    """As a span of code, which no reader takes for anything else."""
    return f"`{json.dumps(value, ensure_ascii=False).replace('`', chr(39))}`"


def colours(finished: Finished) -> list[str]:
    """What must be done to grey images before they go into the network."""
    if not finished.is_tinted:
        return []
    how = "red is the grey value, green a half of it, blue a quarter, bytes rounded"
    return [f"- Grey images were tinted ({how}): give them in these three channels."]


def assumptions(finished: Finished) -> list[str]:
    """What the method takes for granted where its network is used."""
    return [f"- {sentence}" for sentence in finished.stage.method.assumptions(finished.task)]


def interface(about: ModelDescription) -> list[str]:
    samples = about.input
    labels = about.labels
    names = ", ".join(safe(label) for label in labels[:MOST_LABELS])
    if len(labels) > MOST_LABELS:
        names += f", … ({len(labels)} in all, see architecture.json)"
    lines = [f"- Input: {safe(samples.kind)}, {samples.in_words}."]
    if samples.resize is not None:
        side = f"{samples.resize}×{samples.resize} pixels"
        how = "averaged by area, or bilinear where a side grows"
        lines.append(
            f"- Images were resized to {side} ({how}); {FITS[samples.fit]}. `model.predict` and "
            "`python model.py` do that themselves; for `network(samples)` call "
            "`model.resized(samples)` first."
        )
    if samples.table is not None:
        lines += columns(Encoding.from_json(samples.table))
    return [
        *lines,
        normalisation(samples.mean, samples.std),
        outputs(about, names),
        f"- {about.params:,} parameters, {about.macs:,} multiply-accumulates a sample.",
    ]


def outputs(about: ModelDescription, names: str) -> str:
    if foretells_numbers(about):
        return f"- Answer: a number, {names}, in its own units."
    return f"- {len(about.labels)} classes: {names}."


def columns(encoding: Encoding) -> list[str]:
    """What becomes of the columns of a table."""
    lines = []
    for column in encoding.columns[:MOST_LABELS]:
        lines.append(f"- {column_line(column)}")
    more = len(encoding.columns) - MOST_LABELS
    if more > 0:
        lines.append(f"- {more} more columns, see architecture.json.")
    lines.append(
        "- A missing number becomes the mean; a missing or unknown category is none of those "
        "above. Where something was missing in training, one more input says so."
    )
    return lines


def column_line(column: NumberColumn | CategoryColumn) -> str:
    gaps = ""
    if column.tells_missing:
        gaps = ", and whether it is missing"
    if isinstance(column, NumberColumn):
        return f"{safe(column.name)}: a number{gaps}."
    names = ", ".join(safe(name) for name in column.categories)
    return f"{safe(column.name)}: one of {names}{gaps}."


def normalisation(mean: Sequence[float], std: Sequence[float]) -> str:
    if not mean:
        return "- Symbols go in as their numbers: nothing is normalised."
    done = f"subtracts mean {mean} and divides by std {std}"
    return f"- The network {done} itself: give it raw values."


def path_section(paths: PathFacts | None) -> list[str]:
    if paths is None:
        return []
    lines = [f"- {line}" for line in path_lines(paths)]
    batches = paths.latency_ms["each"].keys()
    heads = " | ".join(f"{batch} at a time" for batch in batches)
    table = ["", f"| milliseconds | {heads} |", f"|---|{'---|' * len(batches)}"]
    for name, by_batch in paths.latency_ms.items():
        cells = " | ".join(f"{ms:.3g}" for ms in by_batch.values())
        table.append(f"| {PATH_TITLES[name]} | {cells} |")
    where = "where it was exported, by plain torch with one thread, mean over samples"
    return [*lines, *table, "", f"Measured {where}."]


PATH_TITLES: dict[PathName, str] = {
    "each": "every sample on its own path (`each`)",
    "likely": "the most likely path alone (`likely`)",
}


def path_lines(paths: PathFacts) -> list[str]:
    """Which paths a network has whose run's samples take their own, in sentences."""
    if paths.path == "likely":
        lines = [
            "One path of a network whose samples take their own: the one that most test samples "
            f"take. It is the path of {percent(paths.share)} of {paths.samples} test samples; on "
            f"all of them its accuracy is {percent(paths.accuracy)}."
        ]
    elif paths.samples:
        lines = [
            "Every sample takes its own path: samplers inside look at it. The accuracy on "
            f"{paths.samples} test samples is {percent(paths.accuracy)}."
        ]
    else:
        lines = ["Every sample takes its own path: samplers inside look at it."]
    if paths.left_out is None:
        return lines
    lines.append(
        f"{paths.left_out} of {paths.operations} operations are left out, because no training "
        "sample takes them. A sample that would have taken one takes the most likely of the others."
    )
    if paths.samples:
        lines.append(f"{percent(paths.share)} of the test samples go the same way as before.")
    return lines


def percent(share: float | None) -> str:
    if share is None:
        return "unknown"
    return f"{100 * share:.1f} %"


def figures_of_part(paths: PathFacts | None) -> list[str]:
    """A run is evaluated with all paths and operations; what is here may have fewer."""
    if paths is None or (paths.path == "each" and paths.left_out is None):
        return []
    as_written = f"accuracy {percent(paths.accuracy)}"
    return [f"- As it is here: {as_written}. With all paths, as the run was evaluated:", ""]


def figures(finished: Finished, client: int | None) -> list[str]:
    if client is None and finished.named is not None:
        return [finished.named.figures]
    if client is None:
        return [shared_figures(finished.run.record)]
    row = finished.run.record.client(client)
    if row is None:
        return ["- Not measured: it was not among the clients that were evaluated."]
    metric = finished.run.metric
    lines = [own_figures(row, metric)]
    if row.shared_figure is not None:
        lines.append(f"- The shared model there: {shared_figure(row, metric)}.")
    doubt = seen(finished.run.record)
    if doubt:
        lines.append(f"-{doubt}")
    return lines


def shared_figures(run: RunResult) -> str:
    if run.shared is None:
        return "Not measured."
    metric = run.judged_by
    pooled = f"{metric.text(run.shared.pooled)}{metric.unit}"
    mean = f"{metric.text(run.shared.mean)}{metric.unit}"
    worst = f"{metric.text(run.shared.worst)}{metric.unit}"
    figures = {"balanced_accuracy": run.shared_balanced_accuracy, "auc": run.shared_auc}
    beside = ""
    for text in named_figures(figures):
        beside += f" {text[0].upper()}{text[1:]} %, mean over clients."
    return (
        f"On the clients' test parts, {metric.title}: {pooled} over all samples, "
        f"{mean} as the mean over clients, {worst} at the worst client.{beside}{seen(run)}"
    )


def shared_figure(row: ClientResult, metric: Metric) -> str:
    """`81.3 %, balanced accuracy 75.0 %`"""
    beside = {"balanced_accuracy": row.shared_balanced_accuracy, "auc": row.shared_auc}
    figures = [f"{metric.text(row.shared_figure)}{metric.unit}"]
    figures += [f"{text} %" for text in named_figures(beside)]
    return ", ".join(figures)


def own_figures(row: ClientResult, metric: Metric) -> str:
    if row.figure is None:
        return f"- Not measured: {safe(row.reason or 'no test samples')}."
    others = []
    for name, value in row.beside.items():
        if value is not None and metric is RMSE:
            others.append(f"{NAMED[name]} {metric.text(value)}")
        elif value is not None:
            others.append(f"{name} {value:.3f}")
    text = figure_text(metric, row.figure, row.interval)
    return f"- On {row.test_samples} test samples of this client: {text}; {', '.join(others)}."


def origin(finished: Finished, about: ModelDescription) -> list[str]:
    run = finished.run.record
    lines = [
        f"- Data: {safe(run.data.name)}, partition {safe(run.data.partition)}, "
        f"{run.registered} clients, split `{run.data.split}`.",
        f"- Method: {safe(run.method)}, seed {run.seed}, "
        f"round {about.round} of {run.rounds}, stage {safe(about.stage)}.",
    ]
    if run.init is not None:
        lines.append(f"- Its run began with the weights of {safe(run.init.run)}.")
    lines.append(f"- Architecture: {code(about.architecture)}.")
    lines.append(f"- Options: {code(run.options)}.")
    if run.versions is not None:
        fedloom = safe(run.versions.fedloom)
        torch = safe(run.versions.torch)
        python = safe(run.versions.python)
        lines.append(f"- Made with fedloom {fedloom}, torch {torch}, Python {python}.")
    return lines


def privacy(finished: Finished, client: int | None) -> list[str]:
    """Who could learn what from it."""
    whose = "all clients'"
    if client is not None:
        whose = f"client {client}'s"
    sent = set[str]()
    for departure in finished.run.record.privacy.left_the_clients:
        fields = departure.fields
        sent.update(fields.tensors, fields.optional, fields.values)
    return [
        f"- Weights were fitted to {whose} training samples, without differential privacy: "
        "whoever has them may be able to tell whether a sample was among these. "
        "Hand it on accordingly.",
        f"- In training the server saw of each client: {code(sorted(sent))} "
        "(`*`: all weights that it was sent). The run's result.json lists it by stage.",
    ]


def privacy_of_paths(paths: PathFacts | None) -> list[str]:
    if paths is None or paths.path != "each":
        return []
    return [
        "- Which path a sample takes tells of the sample, and how long its answer takes tells of "
        "the path."
    ]

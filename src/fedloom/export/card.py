"""The model card of an export: what the model was trained on, its results, and its limits."""

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
from fedloom.report.numbers import NAMED, named_figures
from fedloom.report.run_table import seen

MOST_LABELS = 50


def card(
    finished: Finished,
    description: ModelDescription,
    notes: Sequence[str],
    paths: PathFacts | None = None,
) -> str:
    """The text of README.md, in Markdown. Names that come from users are escaped."""
    client = description.client
    whose = "The shared model of all clients"
    if client is not None:
        whose = f"The model of client {client}"
    elif finished.named is not None:
        whose = safe(finished.named.title.capitalize())
    method = safe(finished.run.record.method)
    introduction = f"Found by {method} and exported by fedloom {description.fedloom}."
    sections = {
        f"# {whose}": [introduction, *notes],
        "## How to load it": how_to_load(description).splitlines(),
        "## Input and output": [*interface(description), *colours(finished)],
        "## Paths": path_section(paths),
        "## Results": [*figures_of_part(paths), *figures(finished, client)],
        "## Origin": origin(finished, description),
        "## Privacy": [*privacy(finished, client), *privacy_of_paths(paths)],
        "## Limits": [*limits(description), *assumptions(finished)],
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

LIMITS = """- The results hold for this data set and these clients; measure again on other data.
- The model was not tested against adversarial inputs, nor for fairness between groups of people."""
PROBABILITIES = "- Probabilities are the softmax of its scores, and not calibrated."
NUMBERS = "- It gives no estimate of how uncertain a predicted number is."


def limits(description: ModelDescription) -> list[str]:
    if predicts_numbers(description):
        return [*LIMITS.splitlines(), NUMBERS]
    return [*LIMITS.splitlines(), PROBABILITIES]


def predicts_numbers(description: ModelDescription) -> bool:
    return description.input.kind == "regression"


def how_to_load(description: ModelDescription) -> str:
    shape = ", ".join(map(str, description.input.shape))
    if description.input.table is None:
        return LOAD.format(shape=shape)
    if predicts_numbers(description):
        return LOAD_ROWS.format(
            shape=shape, answer="[number, …]", scores="[n, 1], in the label's own units"
        )
    return LOAD_ROWS.format(shape=shape, answer="[(label, probability), …]", scores="scores")


# What was done with images that are not square.
FITS: dict[Fit, str] = {
    "stretch": "those that are not square were stretched",
    "crop": "those that are not square were cropped to their middle square first",
    "pad": "those that are not square were padded to a black square first, 0 of bytes and "
    "otherwise an image's own lowest value",
}


def safe(value: Any) -> str:
    """A value from a user as plain text, in which nothing is Markdown or HTML."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_{}\[\]<>#|&!~])", lambda match: f"&#{ord(match[1])};", text)


def code(value: Any) -> str:
    """A value as a Markdown code span, so that nothing in it is taken for Markdown."""
    return f"`{json.dumps(value, ensure_ascii=False).replace('`', chr(39))}`"


def colours(finished: Finished) -> list[str]:
    """How grey images must be tinted before they go into the network, if the run tinted them."""
    if not finished.is_tinted:
        return []
    how = "red is the grey value, green a half of it, blue a quarter, bytes rounded"
    return [f"- Grey images were tinted ({how}): give them in these three channels."]


def assumptions(finished: Finished) -> list[str]:
    """What the method assumes about the use of its network."""
    return [f"- {sentence}" for sentence in finished.stage.method.assumptions(finished.task)]


def interface(description: ModelDescription) -> list[str]:
    samples = description.input
    labels = description.labels
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
    macs = f"{description.macs:,} multiply-accumulates per sample"
    return [
        *lines,
        normalisation(samples.mean, samples.std),
        outputs(description, names),
        f"- {description.params:,} parameters, {macs}.",
    ]


def outputs(description: ModelDescription, names: str) -> str:
    if predicts_numbers(description):
        return f"- Answer: a number, {names}, in its own units."
    return f"- {len(description.labels)} classes: {names}."


def columns(encoding: Encoding) -> list[str]:
    """How the columns of a table become inputs of the network."""
    lines = []
    for column in encoding.columns[:MOST_LABELS]:
        lines.append(f"- {column_line(column)}")
    more = len(encoding.columns) - MOST_LABELS
    if more > 0:
        lines.append(f"- {more} more columns, see architecture.json.")
    lines.append(
        "- A missing number is replaced by the mean; a missing or unknown category counts as none "
        "of those above. For columns that had missing values in training, one more input says "
        "whether the value is missing."
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
        return "- Symbols are given by their numbers: nothing is normalised."
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
    where = "on the exporting machine, with plain torch and one thread; means over samples"
    return [*lines, *table, "", f"Measured {where}."]


PATH_TITLES: dict[PathName, str] = {
    "each": "every sample on its own path (`each`)",
    "likely": "the most likely path alone (`likely`)",
}


def path_lines(paths: PathFacts) -> list[str]:
    """Sentences about the paths of a network, for runs whose samples take their own paths."""
    if paths.path == "likely":
        lines = [
            "This is one path of a network whose samples take their own paths: the path that most "
            f"test samples take. It is the path of {percent(paths.share)} of {paths.samples} test "
            f"samples; its accuracy on all of them is {percent(paths.accuracy)}."
        ]
    elif paths.samples:
        lines = [
            "Every sample takes its own path, which samplers in the network choose. The accuracy "
            f"on {paths.samples} test samples is {percent(paths.accuracy)}."
        ]
    else:
        lines = ["Every sample takes its own path, which samplers in the network choose."]
    if paths.left_out is None:
        return lines
    lines.append(
        f"{paths.left_out} of {paths.operations} operations are left out, because no training "
        "sample takes them. A sample that would have taken one takes the most likely of the others."
    )
    if paths.samples:
        lines.append(f"{percent(paths.share)} of the test samples take the same path as before.")
    return lines


def percent(share: float | None) -> str:
    if share is None:
        return "unknown"
    return f"{100 * share:.1f} %"


def figures_of_part(paths: PathFacts | None) -> list[str]:
    """The accuracy of an export with fewer paths or operations than the run was evaluated with."""
    if paths is None or (paths.path == "each" and paths.left_out is None):
        return []
    accuracy = f"accuracy {percent(paths.accuracy)}"
    return [f"- As exported: {accuracy}. With all paths, as the run was evaluated:", ""]


def figures(finished: Finished, client: int | None) -> list[str]:
    if client is None and finished.named is not None:
        return [finished.named.figures]
    if client is None:
        return [shared_figures(finished.run.record)]
    row = finished.run.record.client(client)
    if row is None:
        return ["- Not measured: this client was not evaluated."]
    metric = finished.run.metric
    lines = [own_figures(row, metric)]
    if row.shared_figure is not None:
        lines.append(f"- The shared model on the same samples: {shared_figure(row, metric)}.")
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
    """The shared model's results at a client, such as `81.3 %, balanced accuracy 75.0 %`."""
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


def origin(finished: Finished, description: ModelDescription) -> list[str]:
    run = finished.run.record
    lines = [
        f"- Data: {safe(run.data.name)}, partition {safe(run.data.partition)}, "
        f"{run.registered} clients, split `{run.data.split}`.",
        f"- Method: {safe(run.method)}, seed {run.seed}, "
        f"round {description.round} of {run.rounds}, stage {safe(description.stage)}.",
    ]
    if run.init is not None:
        lines.append(f"- Its run began with the weights of {safe(run.init.run)}.")
    lines.append(f"- Architecture: {code(description.architecture)}.")
    lines.append(f"- Options: {code(run.options)}.")
    lines += decisions(run)
    if run.versions is not None:
        fedloom = safe(run.versions.fedloom)
        torch = safe(run.versions.torch)
        python = safe(run.versions.python)
        lines.append(f"- Made with fedloom {fedloom}, torch {torch}, Python {python}.")
    return lines


def decisions(run: RunResult) -> list[str]:
    """What the method decided for itself while it ran, where its options leave that open."""
    if not run.decisions:
        return []
    choices = "; ".join(f"{safe(row.decision)}: {safe(row.chosen)}" for row in run.decisions)
    return [f"- Decided on validation samples during training: {choices}."]


def privacy(finished: Finished, client: int | None) -> list[str]:
    """What others could learn from the model, and what the server learned in training."""
    whose = "all clients'"
    if client is not None:
        whose = f"client {client}'s"
    sent = set[str]()
    for departure in finished.run.record.privacy.left_the_clients:
        fields = departure.fields
        sent.update(fields.tensors, fields.optional, fields.values)
    return [
        f"- The weights were fitted to {whose} training samples, without differential privacy: "
        "anyone who has them may be able to tell whether a sample was among these. "
        "Keep this in mind before you share the model.",
        f"- During training the server received from each client: {code(sorted(sent))} "
        "(`*`: all weights that the client was sent). The run's result.json lists it by stage.",
    ]


def privacy_of_paths(paths: PathFacts | None) -> list[str]:
    if paths is None or paths.path != "each":
        return []
    return [
        "- The path that a sample takes reveals something about the sample, and the time that its "
        "answer takes reveals something about the path."
    ]

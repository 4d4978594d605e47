"""The model card of an export: what it was trained on, how well it does, what it must not be taken for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.export.finished import Finished
from fedloom.export.predicting import figure_text
from fedloom.report.tables import seen
from fedloom.types import Json

MOST_LABELS = 50


def card(finished: Finished, about: Mapping[str, Json], notes: Sequence[str]) -> str:
    """README.md, in Markdown. Whatever a user named is escaped."""
    run, client = finished.run.result, about["client"]
    whose = "The shared model of all clients" if client is None else f"The model of client {client}"
    sections = {
        f"# {whose}": [f"Found by {safe(run['method'])} and exported by fedloom {about['fedloom']}.", *notes],
        "## How to load it": LOAD.format(shape=", ".join(map(str, about["input"]["shape"]))).splitlines(),
        "## Input and answer": interface(about),
        "## How well it does": figures(finished, client),
        "## Where it comes from": origin(finished, about),
        "## Privacy": privacy(finished, client),
        "## Limits": LIMITS.splitlines(),
    }
    return "\n\n".join("\n".join([head, "", *lines]) for head, lines in sections.items()) + "\n"


LOAD = """```python
import model                      # needs torch and numpy, not fedloom
network = model.load()
scores = network(samples)         # raw samples, [n, {shape}]
model.predict(samples)            # [(label, probability), …]
```"""

LIMITS = """- Figures are of this data set and these clients; elsewhere, measure first.
- It was not tested against inputs made to deceive it, nor for fairness between groups of people.
- Probabilities are the softmax of its scores, and not calibrated."""


def safe(value: Any) -> str:
    """A user's words as plain text: nothing in them is Markdown or HTML."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_{}\[\]<>#|&!~])", lambda found: f"&#{ord(found[1])};", text)


def code(value: Any) -> str:
    """As a span of code, which no reader takes for anything else."""
    return f"`{json.dumps(value, ensure_ascii=False).replace('`', chr(39))}`"


def interface(about: Mapping[str, Json]) -> list[str]:
    given, labels = about["input"], about["labels"]
    names = ", ".join(safe(label) for label in labels[:MOST_LABELS])
    more = f", … ({len(labels)} in all, see architecture.json)" if len(labels) > MOST_LABELS else ""
    normal = (
        f"- The network subtracts mean {given['mean']} and divides by std {given['std']} itself: give it raw values."
        if given["mean"]
        else "- Symbols go in as their numbers: nothing is normalised."
    )
    return [
        f"- Input: {safe(given['kind'])}, shape {given['shape']}, {given['dtype']}, in the data set's own units.",
        normal, f"- {len(labels)} classes: {names}{more}.",
        f"- {about['params']:,} parameters, {about['macs']:,} multiply-accumulates a sample.",
    ]  # fmt: skip


def figures(finished: Finished, client: int | None) -> list[str]:
    run, metric = finished.run.result, finished.run.metric
    if client is None:
        shared = run["shared"]
        if not shared:
            return ["Not measured."]
        pooled, mean, worst = (metric.text(shared[name]) for name in ("pooled", "mean", "worst"))
        return [
            f"On the clients' test parts, {metric.name}: {pooled}{metric.unit} over all samples, {mean}{metric.unit} "
            f"as the mean over clients, {worst}{metric.unit} at the worst client.{seen(run)}"
        ]
    row = finished.run.client(client).figures
    others = [f"{name} {row[name]:.3f}" for name in metric.beside if row.get(name) is not None]
    lines = [
        f"- On {row['test_samples']} test samples of this client: {figure_text(metric, row)}; {', '.join(others)}."
        if row[metric.name] is not None
        else f"- Not measured: {safe(row.get('reason', 'no test samples'))}."
    ]
    if row[f"shared_{metric.name}"] is not None:
        lines.append(f"- The shared model there: {metric.text(row[f'shared_{metric.name}'])}{metric.unit}.")
    if doubt := seen(run):
        lines.append(f"-{doubt}")
    return lines


def origin(finished: Finished, about: Mapping[str, Json]) -> list[str]:
    run = finished.run.result
    data, versions, init = run["data"], run["versions"], run.get("init")
    begun = [f"- Its run began with the weights of {safe(init['run'])}."] if init else []
    return [
        f"- Data: {safe(data['name'])}, partition {safe(data['partition'])}, {run['registered']} clients, "
        f"split `{data['split']}`.",
        f"- Method: {safe(run['method'])}, seed {run['seed']}, round {about['round']} of {run['rounds']}, "
        f"stage {safe(about['stage'])}.",
        *begun,
        f"- Architecture: {code(about['architecture'])}.",
        f"- Options: {code(run['options'])}.",
        f"- Made with fedloom {safe(versions['fedloom'])}, torch {safe(versions['torch'])}, "
        f"Python {safe(versions['python'])}.",
    ]  # fmt: skip


def privacy(finished: Finished, client: int | None) -> list[str]:
    """Who could learn what from it."""
    mine = "all clients' training samples" if client is None else f"client {client}'s training samples"
    rows = finished.run.result["privacy"]["left_the_clients"]
    sent = sorted({field for row in rows for field in (*row["fields"]["tensors"], *row["fields"]["values"])})
    return [
        f"- Weights were fitted to {mine}, without differential privacy: whoever has them may be able to tell whether "
        "a sample was among these. Hand it on accordingly.",
        f"- In training the server saw of each client: {code(sent)} (`*`: all weights that it was sent). "
        "The run's result.json lists it by stage.",
    ]  # fmt: skip

"""Where the figures come from: how to get them again, the configuration, the versions."""

from __future__ import annotations

import shlex

from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult, Start
from fedloom.report.html import Safe
from fedloom.report.parts import code, note, opened, section, table
from fedloom.report.story import Story
from fedloom.version import __version__


def origin(story: Story) -> Safe:
    rows = [*versions(story.result), ["split (SHA-256)", story.split or "not known"]]
    if story.result is not None and story.result.init is not None:
        rows.append(["began with", start(story.result.init)])
    damaged = RunFolder(story.path).damaged()
    if damaged:
        rows.append(["changed or damaged since", ", ".join(damaged)])
    return section(
        "origin", "How to reproduce this",
        note("The same seed gives the same figures, on one type of CPU and one build of torch:"),
        code(command(story)),
        table(["made with", ""], rows, words=("",), label="versions"),
        opened("configuration", "The whole configuration (config.toml)", code(story.toml)) if story.toml else None,
    )  # fmt: skip


def versions(result: RunResult | None) -> list[list[str]]:
    if result is None or result.versions is None:
        return [["fedloom", __version__]]
    known = result.versions
    rows = [["fedloom", known.fedloom], ["torch", known.torch], ["python", known.python]]
    if known.took_part:
        rows.append(["versions of fedloom that took part", ", ".join(known.took_part)])
    return rows


def start(init: Start) -> str:
    if init.client is None:
        return f"the shared weights of {init.run}"
    return f"the model of client {init.client} of {init.run}"


def command(story: Story) -> str:
    """Exactly this run: its configuration holds every option, its split file who has which samples."""
    config = shlex.quote(str(story.path / "config.toml"))
    if story.federated:
        return f"fedloom run --config {config}"
    split = shlex.quote(f"data.split={story.path / 'split.json'}")
    return f"fedloom run --config {config} --set {split}"

"""How to reproduce the run: the command, the versions and the configuration."""

from __future__ import annotations

import shlex

from fedloom.records.folder import RunFolder
from fedloom.records.result import RunResult
from fedloom.records.result_parts import Start
from fedloom.report.html import Safe
from fedloom.report.parts import code, collapsible, note, section, table
from fedloom.report.story import Story
from fedloom.version import __version__


def origin(story: Story) -> Safe:
    rows = versions(story.result)
    rows.append(["split (SHA-256)", story.split or "not known"])
    if story.result is not None and story.result.init is not None:
        rows.append(["began with", start(story.result.init)])
    damaged = RunFolder(story.path).damaged()
    if damaged:
        rows.append(["changed or damaged since", ", ".join(damaged)])
    configuration = None
    if story.toml:
        summary = "The whole configuration (config.toml)"
        configuration = collapsible("configuration", summary, code(story.toml))
    return section(
        "origin",
        "How to reproduce this",
        note("The same seed gives the same figures, on one type of CPU and one build of torch:"),
        code(command(story)),
        table(["made with", ""], rows, words=("",), label="versions"),
        configuration,
    )


def versions(result: RunResult | None) -> list[list[str]]:
    if result is None or result.versions is None:
        return [["fedloom", __version__]]
    made_with = result.versions
    rows = [
        ["fedloom", made_with.fedloom],
        ["torch", made_with.torch],
        ["python", made_with.python],
    ]
    if made_with.took_part:
        rows.append(["versions of fedloom that took part", ", ".join(made_with.took_part)])
    return rows


def start(init: Start) -> str:
    if init.client is None:
        return f"the shared weights of {init.run}"
    return f"the model of client {init.client} of {init.run}"


def command(story: Story) -> str:
    """Return the command that repeats exactly this run.

    Its configuration holds every option, and its split file which client has which samples.
    """
    config = shlex.quote(str(story.path / "config.toml"))
    if story.federated:
        return f"fedloom run --config {config}"
    split = shlex.quote(f"data.split={story.path / 'split.json'}")
    return f"fedloom run --config {config} --set {split}"

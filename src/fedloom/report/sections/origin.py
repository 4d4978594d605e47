"""Where the figures come from: how to get them again, the configuration, the versions."""

from __future__ import annotations

import shlex

from fedloom.records.folder import RunFolder
from fedloom.report.html import Safe
from fedloom.report.parts import code, note, opened, section, table
from fedloom.report.story import Story
from fedloom.version import __version__


def origin(story: Story) -> Safe:
    versions = (story.result or {}).get("versions", {"fedloom": __version__})
    rows = [[name, str(value)] for name, value in versions.items() if name != "took_part"]
    if "took_part" in versions:
        rows.append(["versions of fedloom that took part", ", ".join(map(str, versions["took_part"]))])
    rows.append(["split (SHA-256)", story.split or "not known"])
    init = (story.result or {}).get("init")
    if init is not None:
        whose = "the shared weights" if init["client"] is None else f"the model of client {init['client']}"
        rows.append(["began with", f"{whose} of {init['run']}"])
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


def command(story: Story) -> str:
    """Exactly this run: its configuration holds every option, its split file who has which samples."""
    config = shlex.quote(str(story.path / "config.toml"))
    if story.federated:
        return f"fedloom run --config {config}"
    split = shlex.quote(f"data.split={story.path / 'split.json'}")
    return f"fedloom run --config {config} --set {split}"

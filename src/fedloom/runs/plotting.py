"""`fedloom plot`: pictures of runs.

The classes that clients hold are counted in the data, where they still are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.data.configured import configured_source
from fedloom.data.showing.picture import Picture
from fedloom.data.source import Source
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder
from fedloom.report import plots
from fedloom.report.plots import FORMATS, ClassCounts, Plots


def write_plots(
    paths: Sequence[Path | str],
    out: Path | str | None = None,
    formats: Sequence[str] = FORMATS,
) -> Plots:
    """Pictures of one run, of a comparison, or of several runs beside each other.

    The last need an `out`.
    """
    return plots.write_plots(paths, count_classes, out, formats)


def count_classes(folder: RunFolder) -> ClassCounts:
    """From the data and the split alone: neither the method nor torch is needed to count."""
    config = folder.config()
    advice = "draw it at a site with `fedloom data show`"
    config.check_data_at_hand("a drawing of the split", advice)
    source = configured_source(config.data)
    if source.kind == "text":
        rule = "a split that is drawn must be of labelled samples"
        raise FedloomError(rule, "this one is of text", "see `fedloom data show`")
    split = Split.load(folder.path / "split.json")
    split.check(source)
    counts = Picture(source, split).counts
    return ClassCounts(counts, source.labels, names_of_clients(source, split))


def names_of_clients(source: Source, split: Split) -> list[str]:
    """The sites' names where each client is a site, else numbers."""
    names = [str(client) for client in range(len(split))]
    if split.partition == "sites":
        names[: len(source.group_names)] = source.group_names
    return names

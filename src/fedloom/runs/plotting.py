"""`fedloom plot`: draws runs.

The clients' classes are counted in the data, which must still be available for that.
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
    """Draw one run, a comparison, or several runs next to each other.

    Several runs need a folder `out`.
    """
    return plots.write_plots(paths, count_classes, out, formats)


def count_classes(folder: RunFolder) -> ClassCounts:
    """Count classes by the data and the split alone, without the method and without torch."""
    config = folder.config()
    advice = "draw it at a site with `fedloom data show`"
    config.check_data_at_hand("a drawing of the split", advice)
    source = configured_source(config.data)
    if source.kind == "text":
        rule = "a split that is drawn must have labelled samples"
        raise FedloomError(rule, "this one has text", "see `fedloom data show`")
    split = Split.load(folder.path / "split.json")
    split.check(source)
    counts = Picture(source, split).counts
    return ClassCounts(counts, source.labels, names_of_clients(source, split))


def names_of_clients(source: Source, split: Split) -> list[str]:
    """The sites' names if each client is a site, otherwise numbers."""
    names = [str(client) for client in range(len(split))]
    if split.partition == "sites":
        names[: len(source.group_names)] = source.group_names
    return names

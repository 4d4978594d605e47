"""`fedloom plot`: pictures of runs, with the classes that clients hold counted in the data where they still are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.data.showing.picture import Picture
from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder
from fedloom.report import plots
from fedloom.report.plots import FORMATS, ClassCounts, Plots
from fedloom.runs.experiment import names_of, reopen


def write_plots(paths: Sequence[Path | str], out: Path | str | None = None, formats: Sequence[str] = FORMATS) -> Plots:
    """Pictures of one run, of a comparison, or of several runs beside each other; the last need an `out`."""
    return plots.write_plots(paths, count_classes, out, formats)


def count_classes(folder: RunFolder) -> ClassCounts:
    prepared = reopen(folder)
    if prepared.source.kind == "text":
        must, todo = "a split that is drawn must be of labelled samples", "see `fedloom data show`"
        raise FedloomError(must, "this one is of text", todo)
    called = names_of(prepared)
    names = [called.get(client, str(client)) for client in range(len(prepared.split))]
    return ClassCounts(Picture(prepared.source, prepared.split).counts, prepared.source.labels, names)

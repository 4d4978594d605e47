"""`fedloom plot`."""

from __future__ import annotations

import argparse
from typing import Any

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import Commands, add_command


def add(commands: Commands) -> None:
    summary = "draw a run, a comparison or several runs into files for a paper"
    plot = add_command(commands, "plot", plot_command, summary)
    plot.add_argument("path", nargs="+", metavar="RUN")
    help_format = "png, svg or both (default both)"
    plot.add_argument("--format", default="png,svg", metavar="A,B", help=help_format)
    help_out = "folder of the plots (default plots/ in the run's folder)"
    plot.add_argument("--out", metavar="DIR", help=help_out)
    plot.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def plot_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        from fedloom.report.plots import parse_formats
        from fedloom.runs.plotting import write_plots

        return write_plots(options.path, options.out, parse_formats(options.format))

    return finish(options, work)

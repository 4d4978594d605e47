"""`fedloom report` and `fedloom watch`, and the `--watch` of commands that run something."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedloom.commands.parsing import Commands, Parser, add_command, number
from fedloom.errors import FedloomError


def add(commands: Commands) -> None:
    about = "write a run's report.html, or put several runs on one page"
    report = add_command(commands, "report", report_command, about)
    report.add_argument("path", nargs="+", metavar="RUN", help="a run, a comparison, or several runs")
    report.add_argument("--out", metavar="FILE", help="where to (default: report.html in the folder)")
    report.add_argument("--plots", action="store_true", help="also PNG and SVG in plots/, as `fedloom plot` makes them")
    about = "show a run in the browser while it goes on, or once it is finished"
    watch = add_command(commands, "watch", watch_command, about)
    watch.add_argument("path", metavar="RUN")
    watch.add_argument("--port", metavar="N", help="on this machine (default: any free one)")


def watch_flags(parser: Parser) -> None:
    parser.add_argument("--watch", action="store_true", help="show it in the browser while it goes on")
    parser.add_argument("--port", metavar="N", help="of --watch, on this machine (default: any free one)")


def report_command(options: argparse.Namespace) -> int:
    from fedloom.records.folder import RunFolder
    from fedloom.report.page import write_report
    from fedloom.report.versus import beside_each_other, versus_page, write_comparison

    folders = [RunFolder.open(Path(path)) for path in options.path]
    if options.plots:
        from fedloom.report.plots import require

        require()  # before anything is written
    if len(folders) == 1:
        folder = folders[0]
        with folder.writing():
            found = (write_comparison if folder.kind == "compare" else write_report)(folder)
        if options.out is not None:
            written(Path(options.out), found.read_text())
        print(options.out or found)
        return draw(options, None)
    kinds = [str(folder.path) for folder in folders if folder.kind != "run"]
    if kinds:
        raise FedloomError("several runs must be single runs", f"{kinds[0]} is a comparison", "report it alone")
    out = Path(options.out or "report.html")
    written(out, versus_page(beside_each_other([folder.path for folder in folders]), out.parent))
    print(out)
    return draw(options, out.parent / "plots")


def draw(options: argparse.Namespace, place: Path | None) -> int:
    """With --plots, the pictures of the same runs; `place` None: in the folder of the one there is."""
    if options.plots:
        from fedloom.runs.plotting import write_plots

        write_plots(options.path, place).table()
    return 0


def written(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        must = f"{path} must be a file that can be written"
        raise FedloomError(must, f"{error.strerror}", "name another with --out") from None


def watch_command(options: argparse.Namespace) -> int:
    """Of a run that goes on, until it ends; of another one, until Ctrl-C."""
    from fedloom.records.folder import RunFolder
    from fedloom.report.live import Watch

    folder = RunFolder.open(Path(options.path))
    watch = Watch(folder, port_of(options))
    print(f"watch it at {watch.address}", flush=True)
    watch.view.look()
    going_on = watch.view.standing == "running"
    if not going_on:
        print(f"the run is {watch.view.standing}; Ctrl-C ends this", file=sys.stderr, flush=True)
    try:
        while not going_on or watch.view.standing == "running":
            time.sleep(1.0)
            watch.view.look()
    except KeyboardInterrupt:
        return 0
    finally:
        watch.close()
    print(f"the run is {watch.view.standing}", file=sys.stderr)
    return 0


def port_of(options: argparse.Namespace) -> int:
    if options.port is None:
        return 0
    found: int = number("port", options.port, int, 1)
    if found > 65535:
        raise FedloomError("--port must be at most 65535", f"got {found}", "leave it out for any free one")
    return found


def check_watch(options: argparse.Namespace) -> None:
    """Before a folder is made: a port that is taken is named."""
    if options.port is not None and not options.watch:
        raise FedloomError("--port must come with --watch", "there is none", "add --watch")
    if options.port is not None:
        from fedloom.report.live import check_port

        check_port(port_of(options))


@contextmanager
def watched(options: argparse.Namespace, path: Path) -> Iterator[None]:
    """While something runs in this folder, its page is served if that was asked for."""
    if not options.watch:
        yield
        return
    from fedloom.records.folder import RunFolder
    from fedloom.report.live import Watch

    watch = Watch(RunFolder.open(path), port_of(options), begun=True)
    print(f"watch it at {watch.address}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        watch.close()

"""`fedloom report` and `fedloom watch`, and the `--watch` of commands that run something."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.commands.parsing import Commands, Parser, add_command, number
from fedloom.errors import FedloomError

if TYPE_CHECKING:
    from fedloom.records.folder import RunFolder
    from fedloom.report.groups import Versus
    from fedloom.report.story import Story


def add(commands: Commands) -> None:
    summary = "write a run's report.html, or put several runs on one page"
    report = add_command(commands, "report", report_command, summary)
    report.add_argument(
        "path",
        nargs="+",
        metavar="RUN",
        help="a run, a comparison, or several runs",
    )
    report.add_argument(
        "--out",
        metavar="FILE",
        help="write the page to this file (default: report.html in the folder)",
    )
    report.add_argument(
        "--plots",
        action="store_true",
        help="also write PNG and SVG plots to plots/, as `fedloom plot` does",
    )
    summary = "show a run in the browser while it is running, or once it is finished"
    watch = add_command(commands, "watch", watch_command, summary)
    watch.add_argument("path", metavar="RUN")
    watch.add_argument("--port", metavar="N", help="port on this machine (default: any free one)")


def watch_flags(parser: Parser) -> None:
    parser.add_argument(
        "--watch",
        action="store_true",
        help="show it in the browser while it is running",
    )
    help_port = "port on this machine for --watch (default: any free one)"
    parser.add_argument("--port", metavar="N", help=help_port)


def report_command(options: argparse.Namespace) -> int:
    from fedloom.records.folder import RunFolder

    folders = [RunFolder.open(Path(path)) for path in options.path]
    if options.plots:
        from fedloom.report.plots import require

        require()  # before anything is written
    if len(folders) == 1:
        report_folder(folders[0], options.out)
        draw(options, None)
    else:
        page = Path(options.out or "report.html")
        report_runs(folders, page)
        draw(options, page.parent / "plots")
    return 0


def report_folder(folder: RunFolder, out: str | None) -> None:
    """Write the page of a run or comparison into its folder, and to `out` if that is given."""
    from fedloom.report.page import NAME

    with folder.writing():
        page = page_of(folder)
        folder.write_text(NAME, page.text)
    if out is not None:
        write_page(Path(out), page.text)
    print(out or folder.path / NAME)
    tell_of_damage(page.damaged)


@dataclass(frozen=True)
class Page:
    """A report, and the damaged files that it could not read."""

    text: str
    damaged: list[Path]


def page_of(folder: RunFolder) -> Page:
    from fedloom.report.page import run_page
    from fedloom.report.story import Reader
    from fedloom.report.versus import Comparing, versus_page

    if folder.kind == "compare":
        versus = Comparing(folder).read()
        return Page(versus_page(versus, folder.path), damaged_files(versus))
    story = Reader(folder).read()
    return Page(run_page(story), damaged_files_of_run(story))


def report_runs(folders: Sequence[RunFolder], page: Path) -> None:
    """Write several runs on one page."""
    from fedloom.records.opening import one_run
    from fedloom.report.versus import beside_each_other, versus_page

    for folder in folders:
        one_run(folder.path, "several runs must be single runs")
    versus = beside_each_other([folder.path for folder in folders])
    write_page(page, versus_page(versus, page.parent))
    print(page)
    tell_of_damage(damaged_files(versus))


def damaged_files(versus: Versus) -> list[Path]:
    """The damaged files of a comparison's own folder and of its runs."""
    from fedloom.records.result import NAME as RESULT

    damaged = []
    if versus.path is not None and versus.damage is not None:
        damaged.append(versus.path / RESULT)
    for story in versus.stories:
        damaged += damaged_files_of_run(story)
    return damaged


def damaged_files_of_run(story: Story) -> list[Path]:
    return [story.path / damage.file for damage in story.damage]


def tell_of_damage(files: Sequence[Path]) -> None:
    """Say in one sentence which files are damaged, for those who do not open the page."""
    if not files:
        return
    others = len(files) - 1
    damaged = f"{files[0]} is damaged"
    if others == 1:
        damaged = f"{files[0]} and 1 more file are damaged"
    elif others > 1:
        damaged = f"{files[0]} and {others} more files are damaged"
    print(f"fedloom: {damaged}; the page says what follows from it.", file=sys.stderr)


def draw(options: argparse.Namespace, folder: Path | None) -> None:
    """With --plots, draw the same runs; `folder` is None for a single run, which has its own."""
    if not options.plots:
        return
    from fedloom.runs.plotting import write_plots

    write_plots(options.path, folder).table()


def write_page(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        rule = f"{path} must be a file that can be written"
        raise FedloomError(rule, f"{error.strerror}", "name another with --out") from None


def watch_command(options: argparse.Namespace) -> int:
    """Serve the page of a run: of a running one until it ends, of any other until Ctrl-C."""
    from fedloom.records.folder import RunFolder
    from fedloom.report.live import Watch

    folder = RunFolder.open(Path(options.path))
    watch = Watch(folder, port_of(options))
    print(f"watch it at {watch.address}", flush=True)
    watch.view.look()
    was_running = watch.view.standing == "running"
    if not was_running:
        print(
            f"the run is {watch.view.standing}; press Ctrl-C to stop watching",
            file=sys.stderr,
            flush=True,
        )
    try:
        while not was_running or watch.view.standing == "running":
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
    port: int = number("port", options.port, int, 1)
    if port > 65535:
        advice = "leave it out for any free one"
        raise FedloomError("--port must be at most 65535", f"got {port}", advice)
    return port


def check_watch(options: argparse.Namespace) -> None:
    """Refuse a port that is in use, before a run's folder is created."""
    if options.port is None:
        return
    if not options.watch:
        raise FedloomError("--port must come with --watch", "there is none", "add --watch")
    from fedloom.report.live import check_port

    check_port(port_of(options))


@contextmanager
def watched(options: argparse.Namespace, path: Path) -> Iterator[None]:
    """With --watch, serve the page of the run in this folder while the block is running."""
    if not options.watch:
        yield
        return
    from fedloom.records.folder import RunFolder
    from fedloom.report.live import Watch

    watch = Watch(RunFolder.open(path), port_of(options), runs_here=True)
    print(f"watch it at {watch.address}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        watch.close()

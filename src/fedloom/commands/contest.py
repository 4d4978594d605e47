"""What `fedloom auto` and the demo share: carrying out a contest between methods."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedloom.commands.finishing import interruptible, tell, tell_time
from fedloom.commands.report import watched

if TYPE_CHECKING:
    from fedloom.runs.auto import Auto
    from fedloom.runs.auto_plan import AutoRequest


def carry_out_auto(options: argparse.Namespace, request: AutoRequest) -> Auto:
    """Create the contest's folder, tell the user its budget and duration, and carry it out."""
    from fedloom.records.plan import read_plan
    from fedloom.report.progress import open_screen
    from fedloom.runs.auto import continue_auto
    from fedloom.runs.auto_plan import create_auto

    folder = create_auto(request, options.out)
    contest = read_plan(folder).contest
    assert contest is not None
    tell(options, f"auto folder: {folder.path}")
    tell(options, f"budget: {contest.note}")
    tell_time(options, contest.seconds)
    quiet = options.quiet or options.json
    with (
        interruptible(folder.path),
        watched(options, folder.path),
        open_screen(quiet=quiet) as screen,
    ):
        return continue_auto(folder, screen)

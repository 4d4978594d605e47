"""Weights & Biases, offline: files in RUN/wandb, which `wandb sync` uploads when you want it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import wandb

from fedloom.report.sinks import mark_of

PROJECT = "fedloom"


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=mark_of(folder),  # the same when the run is resumed
            name=folder.name,
            dir=folder,
            resume="allow",
            mode=mode(),
            config=dict(settings),
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        self.run.log(dict(figures), step=number)

    def close(self, finished: bool) -> None:
        code = 1
        if finished:
            code = 0
        self.run.finish(exit_code=code)


def mode() -> Literal["offline"] | None:
    """Return "offline", or None if the user has chosen another mode by $WANDB_MODE."""
    if os.environ.get("WANDB_MODE") in (None, "", "offline"):
        return "offline"
    return None

"""Weights & Biases, offline: files in RUN/wandb, which `wandb sync` uploads if and when you say so."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import wandb

PROJECT = "fedloom"


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]  # the same when the run is resumed
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), id=name, name=folder.name, dir=folder, resume="allow",
            mode="offline" if os.environ.get("WANDB_MODE") in (None, "", "offline") else None, config=dict(settings),
            settings=wandb.Settings(silent=True, console="off", x_disable_meta=True, x_disable_stats=True),
        )  # fmt: skip

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        self.run.log(dict(figures), step=number)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)

"""TensorBoard: event files in RUN/tensorboard; `tensorboard --logdir runs` shows every run below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter

FLUSH = 10  # seconds until what was written shows


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        # a resumed run repeats the rounds after its checkpoint: what was shown of them before is taken back
        # (and has a file of its own: by their names alone, two files of one second would be one)
        place, suffix = str(folder / "tensorboard"), f".from-round-{first}"
        self.writer = SummaryWriter(place, purge_step=first, flush_secs=FLUSH, filename_suffix=suffix)
        lines = "\n".join(f"    {name} = {value}" for name, value in settings.items())  # as Markdown, left as it is
        self.writer.add_text("configuration", lines, first)

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name.replace(".", "/"), value, number)

    def close(self, finished: bool) -> None:
        self.writer.close()

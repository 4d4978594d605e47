"""TensorBoard: event files in RUN/tensorboard.

`tensorboard --logdir runs` shows every run in the folder `runs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter

FLUSH = 10  # seconds until written values show


class Sink:
    def __init__(self, folder: Path, settings: Mapping[str, str], first: int) -> None:
        # A resumed run repeats the rounds after its checkpoint: `purge_step` removes what was
        # written about them before. The suffix gives it a separate file: TensorBoard names files
        # by the second, so two files of the same second would be one.
        self.writer = SummaryWriter(
            str(folder / "tensorboard"),
            purge_step=first,
            flush_secs=FLUSH,
            filename_suffix=f".from-round-{first}",
        )
        # Four spaces make a code block in Markdown, so that the text is shown as it is.
        lines = [f"    {name} = {value}" for name, value in settings.items()]
        self.writer.add_text("configuration", "\n".join(lines), first)

    def round(self, number: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name.replace(".", "/"), value, number)

    def close(self, finished: bool) -> None:
        self.writer.close()

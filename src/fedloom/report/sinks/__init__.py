"""Where a run's rounds are mirrored to as it goes on: `--sink tensorboard|mlflow|wandb`.

Each is a file here and an extra of the package. A sink only listens. One that fails is named in
run.log and asked no more; the run goes on, and metrics.jsonl has everything anyway. All three write
into the run's folder and need no network.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.federation.server.events import Event, Listener, RoundEnded
from fedloom.records.folder import logging_to
from fedloom.records.rows import MetricsRow
from fedloom.report.rounds import flat

log = logging.getLogger("fedloom")

PACKAGES = {  # what each imports
    "tensorboard": "tensorboardX",
    "mlflow": "mlflow",
    "wandb": "wandb",
}


class Sink(Protocol):
    """Opened by the first round that it hears of: `Sink(folder, settings, first_round)`."""

    def round(self, number: int, figures: Mapping[str, float]) -> None: ...
    def close(self, finished: bool) -> None: ...


def require(names: Sequence[str]) -> None:
    """Before training: every sink's package must be there."""
    for name in names:
        if find_spec(PACKAGES[name]) is None:
            raise FedloomError(
                f"{PACKAGES[name]} must be installed for --sink {name}",
                "it is not",
                f"install it with `pip install 'fedloom[{name}]'`",
            )


class Mirror:
    """One sink, opened when the first round is told, and left alone after its first failure."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.sink: Sink | None = None
        self.failed = False

    def tell(self, row: MetricsRow) -> None:
        figures = {}
        for name, value in flat(row).items():
            if isinstance(value, int | float) and name != "round":  # which the step says
                figures[name] = float(value)
        self._try(lambda: self._opened(row.round).round(row.round, figures))

    def close(self, finished: bool) -> None:
        sink = self.sink
        if sink is not None:
            self._try(lambda: sink.close(finished))

    def _opened(self, first: int) -> Sink:
        if self.sink is None:
            module = importlib.import_module(f"fedloom.report.sinks.{self.name}")
            self.sink = module.Sink(self.folder, self.settings, first)
        assert self.sink is not None
        return self.sink

    def _try(self, work: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            work()
        except Exception as error:
            self.failed = True
            log.warning(
                "sink %s failed and is left out from here on: %s: %s",
                self.name,
                type(error).__name__,
                error,
            )


@contextmanager
def mirrored(folder: Path, config: Experiment, listen: Listener) -> Iterator[Listener]:
    """`listen`, and beside it the sinks that the configuration names."""
    tree = config.model_dump(mode="json", exclude_none=True)
    settings = {name: str(value) for name, value in deep(tree)}
    mirrors = [Mirror(name, folder, settings) for name in config.evaluate.sinks or ()]
    finished = False

    def both(event: Event) -> None:
        listen(event)
        if isinstance(event, RoundEnded):
            for mirror in mirrors:
                mirror.tell(event.row)

    try:
        if mirrors:
            yield both
        else:
            yield listen
        finished = True
    finally:
        if mirrors:
            with logging_to(folder / "run.log"):
                for mirror in mirrors:
                    mirror.close(finished)


def deep(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """`{"data": {"clients": 8}}` → `("data.clients", 8)`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from deep(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value

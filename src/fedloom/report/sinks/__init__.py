"""Mirror a run's rounds to an experiment tracker while it runs: `--sink tensorboard|mlflow|wandb`.

Each sink is a module of this package and an optional dependency (an extra). A sink only listens to
a run. A sink that fails is named in run.log and not called again; the run goes on, and
metrics.jsonl has everything anyway. All three write into the run's folder and need no network. They
are told no path of this machine, unless the user asks for it by `--sink-paths`.
"""

from __future__ import annotations

import hashlib
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

A_PATH = "(a path)"
PACKAGES = {  # the package that each sink imports
    "tensorboard": "tensorboardX",
    "mlflow": "mlflow",
    "wandb": "wandb",
}


class Sink(Protocol):
    """What a sink's module implements: `Sink(folder, settings, first_round)` opens it.

    `first_round` is the first round that it gets: not 1 if the run is resumed.
    """

    def round(self, number: int, figures: Mapping[str, float]) -> None: ...
    def close(self, finished: bool) -> None: ...


def require(names: Sequence[str]) -> None:
    """Check before training that every sink's package is installed."""
    for name in names:
        if find_spec(PACKAGES[name]) is None:
            raise FedloomError(
                f"{PACKAGES[name]} must be installed for --sink {name}",
                "it is not",
                f"install it with `pip install 'fedloom[{name}]'`",
            )


class Mirror:
    """One sink: opened at the first round that ends, and not called again after a failure."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.sink: Sink | None = None
        self.failed = False

    def record(self, row: MetricsRow) -> None:
        """Pass the numbers of one round on to the sink."""
        figures = {}
        for name, value in flat(row).items():
            if isinstance(value, int | float) and name != "round":  # the round is the step
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
    """Yield a listener that calls `listen` and passes rounds to the configured sinks."""
    tree = config.model_dump(mode="json", exclude_none=True)
    settings = {name: str(value) for name, value in flat_settings(tree)}
    if not config.evaluate.sink_paths:
        settings = without_paths(settings)
    mirrors = [Mirror(name, folder, settings) for name in config.evaluate.sinks or ()]
    finished = False

    def listen_and_mirror(event: Event) -> None:
        listen(event)
        if isinstance(event, RoundEnded):
            for mirror in mirrors:
                mirror.record(event.row)

    try:
        if mirrors:
            yield listen_and_mirror
        else:
            yield listen
        finished = True
    finally:
        if mirrors:
            with logging_to(folder / "run.log"):
                for mirror in mirrors:
                    mirror.close(finished)


def without_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with a word in place of every path: one may name a person or a machine."""
    without = {}
    for name, value in settings.items():
        without[name] = value
        if "/" in value or "\\" in value:
            without[name] = A_PATH
    return without


def mark_of(folder: Path) -> str:
    """A run's mark at a tracker, by which it is found again when the run is resumed.

    It tells nobody the folder's path.
    """
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]


def flat_settings(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings: `{"data": {"clients": 8}}` → `("data.clients", 8)`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

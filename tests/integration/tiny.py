"""Runs of a second, with made-up images and few clients, and a comparison of their files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.wire import state_chunks
from fedloom.federation.server import receiving
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.events import RoundEnded
from fedloom.records.folder import RunFolder
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.preparing import reopen
from fedloom.runs.results import Run
from fedloom.runs.running import carry_out
from fedloom.types import State

TIMES = {"seconds", "measured_clock", "wall", "memory", "deaths"}
SMALL = {"width": "0.125", "batch": "8"}


def write_images(path: Path, samples: int = 72, classes: int = 3, side: int = 6) -> Path:
    """Noise with a trace of its label, as an .npz."""
    generator = np.random.default_rng(0)
    y = np.arange(samples) % classes
    x = np.clip(
        generator.normal(60 + 60 * y[:, None, None], 30, (samples, side, side)), 0, 255
    ).astype(np.uint8)
    np.savez(path, x=x, y=y.astype(np.int64))
    return path


def tree(
    data: Path, *, clients: int = 3, rounds: int = 3, **sections: Mapping[str, Any]
) -> dict[str, Any]:
    """A configuration without worker processes; keywords are further options of its sections."""
    configuration: dict[str, dict[str, Any]] = {
        "data": {"name": str(data), "clients": clients, "partition": "iid"},
        "budget": {"rounds": rounds},
        "engine": {"workers": 0},
        "evaluate": {"every": 1},
        "options": dict(SMALL),
    }
    for name, values in sections.items():
        configuration.setdefault(name, {}).update(values)
    return configuration


def start(out: Path, method: str, configuration: Mapping[str, Any], **more: Any) -> Run:
    folder, prepared = create(configure(method, configuration), out)
    return carry_out(folder, prepared, lambda event: None, **more)


class Enough(Exception):
    """Raised by a listener: the run stops as it would for Ctrl-C, without a signal."""


def stopped_after(number: int, out: Path, method: str, configuration: Mapping[str, Any]) -> None:
    """A run that was begun and interrupted when round `number` had been saved."""

    def listen(event: Any) -> None:
        if isinstance(event, RoundEnded) and event.row.round == number:
            raise Enough

    folder, prepared = create(configure(method, configuration), out)
    with suppress(Enough):
        carry_out(folder, prepared, listen)
        raise AssertionError(f"the run must stop after round {number}")


def go_on(out: Path, **more: Any) -> Run:
    folder = RunFolder.open(out)
    return carry_out(folder, reopen(folder), lambda event: None, **more)


def rows(out: Path) -> list[Any]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def timeless(value: Any) -> Any:
    """Without anything that was measured: time, memory, processes that died."""
    if isinstance(value, dict):
        parts = {name: timeless(part) for name, part in value.items() if name not in TIMES}
        if "ledger" in parts:
            # without seconds and memory
            parts["ledger"] = [line[:5] + line[7:] for line in parts["ledger"]]
        return parts
    if isinstance(value, list):
        return [timeless(part) for part in value]
    return value


def encoded(state: State) -> bytes:
    return b"".join(state_chunks(state))


def checkpoint(at: Checkpoint) -> Any:
    saved = at.to_state()
    measured = ("rows", "rows_checksum")  # of bytes that tell seconds too
    meta = {name: value for name, value in saved.meta.items() if name not in measured}
    return encoded(State(saved.tensors)), timeless(meta)


def left_behind(out: Path) -> dict[str, Any]:
    """All that must be equal in two runs: the same experiment, however often it was killed."""
    archive = Archive(out)
    store = ClientStore(out / "clients")
    last = archive.load(archive.rounds()[-1])
    checkpoints = set(archive.rounds()[-2:])  # a kill may leave another
    if last.best is not None:
        checkpoints.add(last.best.round)
    parts: dict[str, Any] = {}
    for number in sorted(checkpoints):
        parts[f"checkpoint {number}"] = checkpoint(archive.load(number))
    for client, version in last.versions.items():
        parts[f"client {client}"] = encoded(store.read(client, version))
    for number, row in enumerate(rows(out)):
        parts[f"row {number}"] = timeless(row)
    result = timeless(json.loads((out / "result.json").read_text()))
    del result["checksums"]  # of files that tell seconds
    for name, value in result.items():
        parts[f"result {name}"] = value
    return parts


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of what differs; empty: equal to the bit."""
    return [
        name
        for name in sorted({*one, *other})
        if name not in one or name not in other or one[name] != other[name]
    ]


def overheard(patch: Any) -> list[tuple[int, int, bytes]]:
    """What every client's work sends up from now on: round, client, and the reply's bytes."""
    heard: list[tuple[int, int, bytes]] = []
    admit = receiving.admit

    def listening(order: Any, slot: Any, *rest: Any) -> Any:
        if order.kind not in ("describe", "evaluate"):
            heard.append((order.stamp.round, order.client, bytes(slot.content())))
        return admit(order, slot, *rest)

    patch.setattr(receiving, "admit", listening)
    return heard

"""`fedloom export`: one model of a finished run in a folder that needs no fedloom.

    model.py             plain torch: the network, and how to load it    weights.safetensors   its weights
    architecture.json    what it is, its input, its labels               README.md             its model card
    model.onnx, model.pte    with --format onnx or executorch

What was written is loaded again and compared with the run's own network, to the bit, before anybody is told of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from fedloom.cost.count import macs, parameters
from fedloom.errors import FedloomError, unknown
from fedloom.export.finished import Finished, Served
from fedloom.export.template import model_file
from fedloom.export.tracing import Whole, traced
from fedloom.export.writing import Program, program
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import state_chunks
from fedloom.files import Chunk, write_whole
from fedloom.nets.model import seeded
from fedloom.records.folder import making
from fedloom.spaces.space import Size
from fedloom.threads import one_thread
from fedloom.types import Json, State
from fedloom.version import __version__

Format = Literal["torch", "onnx", "executorch"]
FORMATS: tuple[Format, ...] = get_args(Format)
MARK = "fedloom export 1"
MEMORY = (torch.contiguous_format, torch.channels_last)
COMPARED = 64  # samples that the written network and the run's own must agree on


@dataclass(frozen=True)
class Exported:
    """What was written, and what was checked."""

    path: Path
    format: Format
    client: int | None  # None: the shared model
    files: tuple[str, ...]
    about: Mapping[str, Json]  # architecture.json
    samples: int  # compared
    difference: float | None  # largest, of another format's scores; None: plain torch, which is equal to the bit
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> Json:
        return {
            "export": str(self.path), "format": self.format, "client": self.client, "files": list(self.files),
            "architecture": self.about["architecture"], "params": self.about["params"], "macs": self.about["macs"],
            "compared": self.samples, "difference": self.difference, "notes": list(self.notes),
        }  # fmt: skip

    def table(self) -> None:
        """Say it in words."""
        whose = "the shared model" if self.client is None else f"the model of client {self.client}"
        print(f"{self.path}: {whose}, {self.about['params']:,} parameters: {', '.join(self.files)}")
        print(f"model.py equals the run's own network on {self.samples} samples, bit for bit")
        if self.difference is not None:
            print(f"{self.format}: the largest difference of a score on these samples is {self.difference:.3g}")
        for note in self.notes:
            print(f"note: {note}")


def export(
    finished: Finished, *, client: int | None = None, format: str = "torch", out: Path | str | None = None
) -> Exported:
    """Write one model; `client` None: the shared one."""
    if format not in FORMATS:
        raise unknown("--format", format, FORMATS)
    model = finished.served(client)
    place = place_for(finished, client, out)
    with one_thread():
        whole = Whole(model.network().cpu())
        samples = compared(finished, client)
        written = program(traced(whole))
        about = description(finished, client, model, whole)
        with making(place):
            files = write(place, written, about, finished, model)
        check(place, whole, samples)
        difference = None
        if format != "torch":
            difference = other_format(format, place, whole, samples)
            files = (*files, {"onnx": "model.onnx", "executorch": "model.pte"}[format])
    return Exported(place, format, client, files, about, len(samples), difference, notes(model, client))


def other_format(format: str, place: Path, whole: Whole, samples: torch.Tensor) -> float:
    """Writes it, and gives the largest difference of its scores from the network's own."""
    if format == "onnx":
        from fedloom.export import onnx

        return onnx.write(place / "model.onnx", whole, samples)
    from fedloom.export import executorch

    return executorch.write(place / "model.pte", whole, samples)


def place_for(finished: Finished, client: int | None, out: Path | str | None) -> Path:
    """A new or empty folder, or an export of before."""
    usual = finished.run.path / "exports" / ("shared" if client is None else f"client-{client}")
    place = usual if out is None else Path(out)
    with making(place):
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()) and not is_export(place):
            found = f"{place} has other content"
            raise FedloomError(
                "--out must be a new or empty folder, or an earlier export", found, "name another folder"
            )
    return place


def is_export(place: Path) -> bool:
    try:
        return bool(json.loads((place / "architecture.json").read_text())["format"] == MARK)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write(place: Path, written: Program, about: Json, finished: Finished, model: Served) -> tuple[str, ...]:
    from fedloom.export.card import card

    weights = {name: tensor.detach().contiguous() for name, tensor in written.weights.items()}
    task = finished.task
    text = model_file(written.classes, version=__version__, shape=task.shape, last=about["channels_last"])
    contents: dict[str, list[Chunk]] = {
        "weights.safetensors": list(state_chunks(State(weights))), "model.py": [text.encode()],
        "README.md": [card(finished, about, notes(model, about["client"])).encode()],
        "architecture.json": [json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False).encode()],
    }  # fmt: skip
    for name, chunks in contents.items():
        write_whole(place / name, chunks, durable=True)
    return tuple(contents)


def description(finished: Finished, client: int | None, model: Served, whole: Whole) -> dict[str, Json]:
    """architecture.json: with it, `--network architecture.json` builds a searched network again."""
    task, net = finished.task, whole.net
    found = getattr(net, "architecture", type(net).__name__)
    normal = [getattr(whole, name).flatten().tolist() if whole.normalises else [] for name in ("mean", "std")]
    return {
        **(rebuilt(found, net) if isinstance(found, dict) else {}),
        "format": MARK, "fedloom": __version__,
        "architecture": found, "input": {
            "kind": task.kind, "shape": list(task.shape), "dtype": str(finished.source.x.dtype),
            "mean": normal[0], "std": normal[1],
        },
        "labels": list(task.labels), "params": parameters(whole), "macs": macs(whole, task.shape),
        "channels_last": any(is_last(tensor) for tensor in whole.parameters()),
        "client": client, "method": task.method, "stage": model.run.stage, "round": finished.at.round,
    }  # fmt: skip


def rebuilt(arch: Json, net: nn.Module) -> Json:
    """What a genotype's file needs beside the genotype for the same network; a supernet and its cuts say it."""
    size = getattr(net, "size", None)
    if not isinstance(size, Size):
        return arch
    return {**arch, **size._asdict(), "affine": bool(getattr(net, "affine", False))}


def is_last(tensor: torch.Tensor) -> bool:
    """By its strides, which say it also where one channel alone would be contiguous in either format."""
    if tensor.dim() != 4:
        return False
    usual, last = (torch.empty(tensor.shape, memory_format=kind).stride() for kind in MEMORY)
    return tensor.stride() == last != usual


def compared(finished: Finished, client: int | None) -> torch.Tensor:
    """Real samples, where there are any here: a client's own, or the data set's first ones."""
    data = None if finished.site is None else finished.site.data(client or finished.here or 0)
    if data is not None:
        found = torch.cat([data.test.x, data.train.x])[:COMPARED]
        return found if len(found) > 1 else found.repeat(2, *[1] * (found.dim() - 1))
    task, draw = finished.task, torch.Generator().manual_seed(finished.task.seed)
    if task.kind == "text":
        return torch.randint(0, len(task.labels), (COMPARED, *task.shape), generator=draw)
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (task.mean, task.std))
    return mean + std * torch.randn(COMPARED, *task.shape, generator=draw)


class Afresh(SourceFileLoader):
    """Reads the source, whatever compiled form of it may lie beside, and leaves none."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


@torch.no_grad()
def check(place: Path, whole: Whole, samples: torch.Tensor) -> None:
    """Load what was written as a stranger would, and compare."""
    loader = Afresh("fedloom_exported_model", str(place / "model.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    answers = []
    for network in (whole, module.load()):
        with seeded(0):  # an operation of noise draws
            answers.append(network(samples))
    mine, found = answers
    if not torch.equal(mine, found):
        far = (mine - found).abs().max()
        must = "a written network must answer as the run's own does"
        raise FedloomError(must, f"its scores differ by up to {far:.3g}", f"report this, with {place}/model.py", code=1)


def notes(model: Served, client: int | None) -> tuple[str, ...]:
    """What a reader must know before relying on it."""
    found = []
    if client is not None and type(model.method).predictor is not Method.predictor:
        found.append(
            f"{model.run.task.method} answers with more than this network (it remembers the client's samples): the "
            "export is the network alone, and less accurate; `fedloom predict` answers as the method does"
        )
    if client is not None and model.own is None:
        found.append("this client has no network of its own: this is the shared one")
    return tuple(found)

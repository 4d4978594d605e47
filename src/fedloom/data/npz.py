"""Arrays in .npz files: one file, or a folder of them, a site each. Nothing in a file is ever unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedloom.data.checks import Part, checked
from fedloom.data.sources import Source
from fedloom.errors import FedloomError


def read_folder(folder: Path, classes: int | None) -> Source:
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise FedloomError(f"--data {folder} must hold .npz files, one a site", "it has none", "add them")
    parts = [Part(str(file), *pooled(read_npz(file, classes))) for file in files]
    sites = np.repeat(np.arange(len(files)), [len(part.y) for part in parts])
    names = tuple(file.stem for file in files)
    return Source(folder.resolve().name, *pooled(parts), groups=sites, group_names=names)


def read_file(file: Path, classes: int | None) -> Source:
    return Source(file.stem, *pooled(read_npz(file, classes)))


def read_npz(file: Path, classes: int | None) -> list[Part]:
    """One part for x and y, or MedMNIST's parts in its order. Nothing in the file is ever unpickled."""
    try:
        with np.load(file, allow_pickle=False) as raw:
            pairs = pairs_of(list(raw))
            arrays = {key: raw[key] for pair in pairs for key in pair}
            arrays["labels"] = raw["labels"] if "labels" in raw else np.zeros(0, "U1")
            found = ", ".join(raw) or "none"
    except Exception as error:  # a damaged zip or array header can raise almost anything
        raise unreadable(file, error) from error
    if not pairs:
        must = f"{file} must have the keys x and y, or train_images and train_labels as MedMNIST has"
        raise FedloomError(must, f"its keys are {found}", "rename them with numpy.savez(file, x=…, y=…)")
    labels = tuple(str(label) for label in np.ravel(arrays["labels"]))
    named = [(str(file) if x == "x" else f"{file} ({x})", x, y) for x, y in pairs]
    return [checked(where, arrays[x], arrays[y], labels, classes) for where, x, y in named]


def pairs_of(keys: list[str]) -> list[tuple[str, str]]:
    if "x" in keys and "y" in keys:
        return [("x", "y")]
    medmnist = [(f"{part}_images", f"{part}_labels") for part in ("train", "val", "test")]
    some = [pair for pair in medmnist if pair[0] in keys or pair[1] in keys]
    return some if all(key in keys for pair in some for key in pair) else []


def unreadable(file: Path, error: Exception) -> FedloomError:
    must = f"{file} must be a whole .npz of plain arrays"
    if "allow_pickle" in str(error):
        todo = "save plain arrays with numpy.savez: pickled ones could run code and are never loaded"
        return FedloomError(must, "it holds pickled objects or no arrays at all", todo)
    reason = " ".join(str(error).split())[:200].rstrip(".")
    return FedloomError(must, f"it could not be read ({reason})", "copy or save it again")


def pooled(parts: list[Part]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    first = parts[0]
    for part in parts:
        for what, has, want in (
            ("images of shape", part.x.shape[1:], first.x.shape[1:]),
            ("values of type", part.x.dtype, first.x.dtype),
            ("the label names", part.labels or "none", first.labels or "none"),
        ):
            if has != want:
                must = f"{part.where} must have {what} {want} as {first.where} has"
                raise FedloomError(must, f"it has {has}", "make all parts alike")
    return np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]), first.labels

"""Folders of images whose names are the labels, in one of three layouts:

    folder/CLASS/image        folder/train|valid|test/CLASS/image        folder/SITE/CLASS/image

The second gives the official parts, the third groups. Hidden files are ignored, and so is what lies beside the folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.readers.pictures import SUFFIXES, is_picture, picture_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
LAYOUTS = "folder/CLASS/image, folder/train|valid|test/CLASS/image or folder/SITE/CLASS/image"
CINIC = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Leaf(NamedTuple):
    """One class folder; `above` is its part or site, if it has one."""

    above: str
    label: str
    files: list[str]


def cinic10(directory: Path | None = None) -> Source:
    """270,000 colour images of 32×32 in 10 classes (Darlow et al. 2018), from its three folders under --data-dir."""
    home = Path() if directory is None else directory
    tries = [home / "cinic10", home / "cinic-10", home / "CINIC-10", home]
    folder = next((one for one in tries if all((one / part).is_dir() for part in ("train", "valid", "test"))), None)
    if folder is None:
        must = f"--data cinic10 must have its folders train, valid and test in {tries[0]} or {home}"
        raise FedloomError(must, "they are not there", "name --data-dir, or `fedloom data get cinic10`")
    source = read_folder(folder)
    if source.labels != CINIC:
        must = f"{folder} must have CINIC-10's class folders"
        raise FedloomError(must, f"it has {', '.join(source.labels)}", f"give it as --data {folder}, or restore it")
    # As the data set's own page gives them for its training images, in units of 255.
    mean, std = (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)
    return Source(
        "cinic10", source.x, source.y, source.labels, tuple(255 * value for value in mean),
        tuple(255 * value for value in std), official=source.official,
    )  # fmt: skip


def read_folder(folder: Path) -> Source:
    leaves = list(find_leaves(os.path.abspath(folder)))
    files = [file for leaf in leaves for file in leaf.files]
    labels = [label for leaf in leaves for label in repeat(leaf.label, len(leaf.files))]
    above = sorted({leaf.above for leaf in leaves})
    sizes = [len(leaf.files) for leaf in leaves]
    name = folder.resolve().name
    if above == [""]:
        return picture_source(name, files, labels)
    if set(above) <= set(PARTS):
        official = np.repeat(np.array([PARTS[leaf.above] for leaf in leaves], np.uint8), sizes)
        return picture_source(name, files, labels, official=official)
    groups = np.repeat([above.index(leaf.above) for leaf in leaves], sizes)
    return picture_source(name, files, labels, groups=groups, group_names=tuple(above))


def find_leaves(root: str) -> Iterator[Leaf]:
    """The class folders in a fixed order: by part or site, then by name."""
    folders, files = entries(root)
    if not folders:
        must = f"--data {root} must hold .npz files, one a site, or folders of images or of .wav files, one a class"
        found = f"{files[0]} lies in no class folder" if any(map(is_picture, files)) else "it has none"
        raise FedloomError(must, found, f"arrange it as {LAYOUTS}")
    inside = {folder: entries(folder) for folder in folders}
    nested = [folder for folder in folders if inside[folder][0]]
    if nested and len(nested) < len(folders):
        flat = next(folder for folder in folders if folder not in nested)
        found = f"{nested[0]} has folders and {flat} has none"
        raise FedloomError(f"--data {root} must have folders of one depth", found, f"arrange it as {LAYOUTS}")
    if not nested:
        yield from (leaf("", folder, inside[folder][1]) for folder in folders)
        return
    check_names(root, folders)
    for folder in sorted(nested, key=lambda one: (PARTS.get(os.path.basename(one), 0), one)):
        misplaced = next(filter(is_picture, inside[folder][1]), None)
        if misplaced is not None:
            raise FedloomError(f"{misplaced} must lie in a class folder", "it lies beside them", "move it")
        yield from (leaf(os.path.basename(folder), one, deepest(one)) for one in inside[folder][0])


def check_names(root: str, folders: list[str]) -> None:
    names = [os.path.basename(folder) for folder in folders]
    parts = [name for name in names if name in PARTS]
    if parts and len(parts) < len(names):
        other = next(name for name in names if name not in PARTS)
        must = f"the folders of --data {root} must all be parts ({', '.join(PARTS)}) or all be sites"
        raise FedloomError(must, f"there are {parts[0]} and {other}", "rename or move one")


def deepest(folder: str) -> list[str]:
    folders, files = entries(folder)
    if folders:
        must = f"{folder} must hold images only"
        raise FedloomError(must, f"it has the folder {os.path.basename(folders[0])}", f"arrange it as {LAYOUTS}")
    return files


def leaf(above: str, folder: str, files: list[str]) -> Leaf:
    if not files:
        must = f"the class folder {folder} must hold images"
        raise FedloomError(must, "it is empty", "add some, or remove the folder")
    odd = next((file for file in files if not is_picture(file)), None)
    if odd is not None:
        known = ", ".join(sorted(SUFFIXES))
        raise FedloomError(f"{odd} must be an image ({known})", "its name says otherwise", "convert, hide or remove it")
    return Leaf(above, os.path.basename(folder), files)


def entries(folder: str) -> tuple[list[str], list[str]]:
    """The folders and files in one, sorted; hidden ones are left out, and links that lead in circles refused."""
    folders, files = [], []
    try:
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                folders.append(no_circle(folder, entry))
            else:
                files.append(entry.path)
    except OSError as error:
        place = error.filename or folder
        raise FedloomError(f"{place} must be readable", f"it is not ({error.strerror})", "mend or remove it") from error
    return folders, files


def no_circle(folder: str, entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        target, here = os.path.realpath(entry.path), os.path.realpath(folder)
        if os.path.commonpath([target, here]) == target:
            found = "it leads back to a folder above it"
            raise FedloomError(f"the link {entry.path} must lead to other images", found, "remove it")
    return entry.path

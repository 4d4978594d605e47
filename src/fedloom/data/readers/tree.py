"""Folders of images whose names are the labels, in one of three layouts:

    folder/CLASS/image        folder/train|valid|test/CLASS/image        folder/SITE/CLASS/image

The folders above the classes are the official parts in the second layout, and groups in the third.
Hidden files are ignored, and so are files beside the folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.image_rules import AS_THEY_ARE, ImageRules
from fedloom.data.labels import class_order, label_notices
from fedloom.data.readers.bad_files import unknown_format
from fedloom.data.readers.cifar import CIFAR10_CLASSES
from fedloom.data.readers.image_files import SUFFIXES, is_picture
from fedloom.data.readers.pictures import picture_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
LAYOUTS = "folder/CLASS/image, folder/train|valid|test/CLASS/image or folder/SITE/CLASS/image"
CINIC_PARTS = ("train", "valid", "test")
# Those of the training images, as its own page gives them, for pixels from 0 to 1.
CINIC_MEAN = (0.47889522, 0.47227842, 0.43047404)
CINIC_STD = (0.24205776, 0.23828046, 0.25874835)


class ClassFolder(NamedTuple):
    """One class folder. `above` is the name of its part or site, or empty."""

    above: str
    label: str
    files: list[str]


class Entries(NamedTuple):
    """The folders and the files in a folder, sorted."""

    folders: list[str]
    files: list[str]


def cinic10(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """270,000 colour images of 32×32 in 10 classes (Darlow et al. 2018), from under --data-dir."""
    folder = cinic_folder(directory or Path())
    source = read_folder(folder, ImageRules(skip_bad=skip_bad))
    if source.labels != CIFAR10_CLASSES:
        rule = f"{folder} must have CINIC-10's class folders"
        problem = f"it has {', '.join(source.labels)}"
        raise FedloomError(rule, problem, f"give it as --data {folder}, or restore it")
    mean = tuple(255 * value for value in CINIC_MEAN)
    std = tuple(255 * value for value in CINIC_STD)
    return Source(
        "cinic10",
        source.x,
        source.y,
        source.labels,
        mean,
        std,
        official=source.official,
        skipped=source.skipped,
    )


def cinic_folder(home: Path) -> Path:
    folders = [home / "cinic10", home / "cinic-10", home / "CINIC-10", home]
    for folder in folders:
        if all((folder / part).is_dir() for part in CINIC_PARTS):
            return folder
    must_have = "its folders train, valid and test"
    rule = f"--data cinic10 must have {must_have} in {folders[0]} or {home}"
    advice = "name --data-dir, or `fedloom data get cinic10`"
    raise FedloomError(rule, "they are not there", advice)


def read_folder(folder: Path, rules: ImageRules = AS_THEY_ARE) -> Source:
    """Reads a folder of images in any of the three layouts."""
    class_folders = list(find_class_folders(os.path.abspath(folder)))
    files: list[str] = []
    labels: list[str] = []
    for class_folder in class_folders:
        files += class_folder.files
        labels += [class_folder.label] * len(class_folder.files)
    if not any(is_picture(file) for file in files):
        rule = f"--data {folder} must hold images ({', '.join(sorted(SUFFIXES))})"
        problem = f"{files[0]} has {unknown_format(files[0])}, and no other file has a known one"
        raise FedloomError(rule, problem, f"arrange it as {LAYOUTS}")
    above = sorted({class_folder.above for class_folder in class_folders})
    sizes = [len(class_folder.files) for class_folder in class_folders]
    name = folder.resolve().name
    if above == [""]:
        return picture_source(name, files, labels, rules)
    if set(above) <= set(PARTS):
        parts = [PARTS[class_folder.above] for class_folder in class_folders]
        official = np.repeat(np.array(parts, np.uint8), sizes)
        return picture_source(name, files, labels, rules, official=official)
    sites = [above.index(class_folder.above) for class_folder in class_folders]
    groups = np.repeat(sites, sizes)
    source = picture_source(name, files, labels, rules, groups=groups, group_names=tuple(above))
    return replace(source, notices=label_notices(labels_by_site(class_folders), source.labels))


def labels_by_site(class_folders: Sequence[ClassFolder]) -> dict[str, tuple[str, ...]]:
    names: dict[str, set[str]] = {}
    for class_folder in class_folders:
        names.setdefault(class_folder.above, set()).add(class_folder.label)
    return {site: class_order(labels) for site, labels in names.items()}


# Class folders


def find_class_folders(root: str) -> Iterator[ClassFolder]:
    """Yields the class folders in a fixed order: by part or site, then by name."""
    top = entries(root)
    if not top.folders:
        raise without_folders(root, top.files)
    inside = {folder: entries(folder) for folder in top.folders}
    nested = [folder for folder in top.folders if inside[folder].folders]
    if not nested:
        for folder in top.folders:
            yield class_folder_of("", folder, inside[folder].files)
        return
    flat = [folder for folder in top.folders if folder not in nested]
    if flat:
        rule = f"--data {root} must have folders of one depth"
        problem = f"{nested[0]} has folders and {flat[0]} has none"
        raise FedloomError(rule, problem, f"arrange it as {LAYOUTS}")
    check_names(root, top.folders)
    for folder in sorted(nested, key=part_order):
        for file in inside[folder].files:
            if is_picture(file):
                rule = f"{file} must lie in a class folder"
                raise FedloomError(rule, "it lies beside them", "move it")
        for class_folder in inside[folder].folders:
            yield class_folder_of(os.path.basename(folder), class_folder, only_files(class_folder))


def without_folders(root: str, files: list[str]) -> FedloomError:
    folders = "folders of images or of .wav files, one per class"
    rule = f"--data {root} must hold .npz files, one per site, or {folders}"
    problem = "it has none"
    if any(is_picture(file) for file in files):
        problem = f"{files[0]} lies in no class folder"
    return FedloomError(rule, problem, f"arrange it as {LAYOUTS}")


def part_order(folder: str) -> tuple[int, str]:
    """Sorts parts in their usual order, and sites by name."""
    return PARTS.get(os.path.basename(folder), 0), folder


def check_names(root: str, folders: list[str]) -> None:
    names = [os.path.basename(folder) for folder in folders]
    parts = [name for name in names if name in PARTS]
    sites = [name for name in names if name not in PARTS]
    if parts and sites:
        kinds = f"all be parts ({', '.join(PARTS)}) or all be sites"
        rule = f"the folders of --data {root} must {kinds}"
        raise FedloomError(rule, f"there are {parts[0]} and {sites[0]}", "rename or move one")


def class_folder_of(above: str, folder: str, files: list[str]) -> ClassFolder:
    if not files:
        rule = f"the class folder {folder} must hold images"
        raise FedloomError(rule, "it is empty", "add some, or remove the folder")
    return ClassFolder(above, os.path.basename(folder), files)


# The content of a folder


def only_files(folder: str) -> list[str]:
    inside = entries(folder)
    if inside.folders:
        rule = f"{folder} must hold images only"
        problem = f"it has the folder {os.path.basename(inside.folders[0])}"
        raise FedloomError(rule, problem, f"arrange it as {LAYOUTS}")
    return inside.files


def entries(folder: str) -> Entries:
    """Lists a folder without hidden entries. Refuses links that lead in circles."""
    folders: list[str] = []
    files: list[str] = []
    try:
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                refuse_circle(folder, entry)
                folders.append(entry.path)
            else:
                files.append(entry.path)
    except OSError as error:
        rule = f"{error.filename or folder} must be readable"
        problem = f"it is not ({error.strerror})"
        raise FedloomError(rule, problem, "repair or remove it") from error
    return Entries(folders, files)


def refuse_circle(folder: str, entry: os.DirEntry[str]) -> None:
    if not entry.is_symlink():
        return
    target = os.path.realpath(entry.path)
    if os.path.commonpath([target, os.path.realpath(folder)]) == target:
        rule = f"the link {entry.path} must lead to other images"
        raise FedloomError(rule, "it leads back to a folder above it", "remove it")

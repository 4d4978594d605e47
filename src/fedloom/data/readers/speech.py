"""Spoken words in class folders of .wav, as Speech Commands has them, or in a table.

Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", 2018. Its layout: a folder a word, files
`SPEAKER_nohash_NUMBER.wav`, and two lists that name the official validation and test parts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedloom.data.readers.features import KINDS
from fedloom.data.readers.recordings import TEST, TRAIN, VALIDATION, Clip, Hearing, to_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError, unknown

NOISE = "_background_noise_"  # in Speech Commands: no word
LISTS = {"validation_list.txt": VALIDATION, "testing_list.txt": TEST}
# Mean and spread of 205 training clips of Speech Commands; other words are taken to be like them.
WIDE = {"mfcc": Hearing(16_000, "mfcc", -0.81, 7.24), "logmel": Hearing(16_000, "logmel", -5.54, 4.73)}
log = logging.getLogger("fedloom")


class Row(Protocol):
    """A line of a table: which file, of which class, from whom."""

    @property
    def file(self) -> Path: ...
    @property
    def label(self) -> str: ...
    @property
    def client(self) -> str | None: ...


def commands(directory: Path | None = None) -> Source:
    """Speech Commands, every word a class (35 in v0.02), as MFCC; from its folder under --data-dir."""
    return all_words(directory, "mfcc")


def commands_logmel(directory: Path | None = None) -> Source:
    """Speech Commands, every word a class, as log-mel."""
    return all_words(directory, "logmel")


def read_tree(folder: Path, kind: str = "mfcc") -> Source:
    """A folder of class folders. Lists as Speech Commands has them are followed, and so are its speakers' names."""
    clips = tree(folder)
    labels = sorted({clip.label for clip in clips})
    return to_source(folder.resolve().name, clips, labels, wide(kind), parts=has_lists(folder))


def from_table(rows: Sequence[Row], name: str = "table", kind: str = "mfcc") -> Source:
    """The .wav files of a table; its clients are the groups."""
    clips = [Clip(row.file, row.label, row.client) for row in rows]
    bare = [row.file for row in rows if row.client is None]
    if 0 < len(bare) < len(rows):
        must = f"every row of {name} must name its client, or none"
        raise FedloomError(must, f"{bare[0]} has none", "fill the column, or leave it out")
    return to_source(name, clips, sorted({row.label for row in rows}), wide(kind), grouping="client")


def wide(kind: str) -> Hearing:
    if kind not in KINDS:
        raise unknown("the kind of features", kind, KINDS)
    return WIDE[kind]


def holds_wav(folder: Path) -> bool:
    """Whether some class folder begins with a .wav: to list a folder of images whole would take long."""
    for below in class_folders(folder):
        with os.scandir(below) as entries:
            name = next((entry.name for entry in entries if not entry.name.startswith(".")), "")
        if name.lower().endswith(".wav"):
            return True
    return False


# Class folders, in Speech Commands' layout or without its lists


def all_words(directory: Path | None, kind: str) -> Source:
    clips = tree(commands_folder(directory))
    return to_source("speech-commands", clips, sorted({clip.label for clip in clips}), WIDE[kind], parts=True)


def commands_folder(directory: Path | None) -> Path:
    """--data-dir itself, or the newest of the folders that its archives make there."""
    base = Path() if directory is None else directory
    folders = [base, *sorted(base.glob("speech*commands*"), reverse=True)]
    found = next((folder for folder in folders if has_lists(folder)), None)
    if found is None:
        must = f"--data speech-commands must have {' and '.join(LISTS)} in {base}, or in its speech_commands folder"
        todo = "name its folder by --data-dir, or `fedloom data get speech-commands`"
        raise FedloomError(must, "there are none", todo)
    return found


def has_lists(folder: Path) -> bool:
    return all((folder / name).is_file() for name in LISTS)


def tree(folder: Path) -> list[Clip]:
    """All clips, class by class in the order of their names."""
    below = class_folders(folder)
    lost = [path for path in folder.iterdir() if path.name[0] != "." and path.is_symlink() and not path.exists()]
    if lost:
        found = "it leads nowhere, or in a circle"
        raise FedloomError(f"the link {min(lost)} must lead to .wav files", found, "remove it")
    if len(below) < 2:
        must = f"{folder} must hold a folder of .wav files for each of at least 2 classes"
        raise FedloomError(must, f"it has {len(below)}", "sort the files into class folders")
    files = [file for each in below for file in wav_files(each)]
    names = [f"{file.parent.name}/{file.name}" for file in files]
    parts = official_parts(folder, names) if has_lists(folder) else {}
    known = all("_nohash_" in name for name in names)
    speakers = [file.name.split("_nohash_")[0] if known else None for file in files]
    return [
        Clip(file, file.parent.name, speaker, parts.get(name, TRAIN))
        for file, name, speaker in zip(files, names, speakers, strict=True)
    ]


def class_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != "." and path.name != NOISE)


def wav_files(folder: Path) -> list[Path]:
    """Only such may lie in a class folder: what is left out silently would be missed too late."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if not names:
        raise FedloomError(f"{folder} must hold .wav files", "it is empty", "add some, or remove the folder")
    other = next((name for name in names if not name.lower().endswith(".wav")), None)
    if other is not None:
        must = f"{folder} must hold .wav files and nothing else"
        raise FedloomError(must, f"it has {other}", "move it away, or convert it to .wav")
    return [folder / name for name in names]


def official_parts(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """The part of every file, `class/name`, that a list names. A mere sample of a data set is taken, but said."""
    there, parts = set(names), dict[str, int]()
    for file, part in LISTS.items():
        listed = (folder / file).read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line.strip() for line in listed if line.strip()]
        lost = [line for line in lines if line not in there]
        if len(lost) == len(lines):
            found = f"it names {lost[0]!r}, which is not there, and no other" if lost else "it is empty"
            raise FedloomError(f"{folder / file} must name files beside it", found, "restore both")
        if lost:
            text = "%s: %d of the %d files that %s names are missing, first %r; the data set is not whole."
            log.warning(text, folder, len(lost), len(lines), file, lost[0])
        twice = next((line for line in lines if line in parts), None)
        if twice is not None:
            must = f"{folder / file} must name no file of {' or '.join(name for name in LISTS if name != file)}"
            raise FedloomError(must, f"{twice} is in both", "restore the lists")
        parts.update({line: part for line in lines if line in there})
    return parts

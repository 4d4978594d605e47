"""Spoken words as .wav files, in class folders like those of Speech Commands, or listed in a CSV.

Warden, "Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition", 2018. Its layout:
one folder per word, files named `SPEAKER_nohash_NUMBER.wav`, and two lists that name the official
validation and test parts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedloom.data.checks import LEAST_CLASSES
from fedloom.data.readers.features import KINDS
from fedloom.data.readers.recordings import (
    TEST,
    TRAIN,
    VALIDATION,
    Clip,
    FeatureSettings,
    to_source,
)
from fedloom.data.source import Source
from fedloom.errors import FedloomError, unknown

NOISE = "_background_noise_"  # a folder of Speech Commands that is not a word
SPEAKER_MARK = "_nohash_"  # follows the speaker in a file's name
LISTS = {"validation_list.txt": VALIDATION, "testing_list.txt": TEST}
# Mean and standard deviation of 205 training clips of Speech Commands, used for all words.
SETTINGS = {
    "mfcc": FeatureSettings(16_000, "mfcc", -0.81, 7.24),
    "logmel": FeatureSettings(16_000, "logmel", -5.54, 4.73),
}
log = logging.getLogger("fedloom")


class Row(Protocol):
    """A line of a CSV that lists files: the file, its class and its client."""

    @property
    def file(self) -> Path: ...
    @property
    def label(self) -> str: ...
    @property
    def client(self) -> str | None: ...


def commands(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Speech Commands, every word a class (35 in v0.02), as MFCC; from under --data-dir."""
    return all_words(directory, "mfcc", skip_bad)


def commands_logmel(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Speech Commands, every word a class, as log-mel."""
    return all_words(directory, "logmel", skip_bad)


def all_words(directory: Path | None, kind: str, skip_bad: bool) -> Source:
    clips = tree(commands_folder(directory))
    return to_source(
        "speech-commands",
        clips,
        labels_of(clips),
        SETTINGS[kind],
        parts=True,
        skip_bad=skip_bad,
    )


def read_tree(
    folder: Path,
    kind: str = "mfcc",
    *,
    skip_bad: bool = False,
    least: int = LEAST_CLASSES,
) -> Source:
    """Reads a folder of class folders.

    Official parts and speakers are read as in Speech Commands, if there are lists and file names
    like its own.
    """
    clips = tree(folder, least)
    return to_source(
        folder.resolve().name,
        clips,
        labels_of(clips),
        settings_for(kind),
        parts=has_lists(folder),
        skip_bad=skip_bad,
    )


def from_table(
    rows: Sequence[Row],
    name: str = "table",
    kind: str = "mfcc",
    *,
    skip_bad: bool = False,
) -> Source:
    """Reads the .wav files that a CSV lists. Its clients are the groups."""
    clips = [Clip(row.file, row.label, row.client) for row in rows]
    without_client = [row.file for row in rows if row.client is None]
    if 0 < len(without_client) < len(rows):
        rule = f"every row of {name} must name its client, or none"
        problem = f"{without_client[0]} has none"
        raise FedloomError(rule, problem, "fill the column, or leave it out")
    return to_source(
        name,
        clips,
        labels_of(clips),
        settings_for(kind),
        grouping="client",
        skip_bad=skip_bad,
    )


def labels_of(clips: Sequence[Clip]) -> list[str]:
    return sorted({clip.label for clip in clips})


def settings_for(kind: str) -> FeatureSettings:
    if kind not in KINDS:
        raise unknown("the kind of features", kind, KINDS)
    return SETTINGS[kind]


def holds_wav(folder: Path) -> bool:
    """Whether the first file of some class folder is a .wav.

    Only first files are looked at, because listing whole folders of images would take long.
    """
    return any(first_name(below).lower().endswith(".wav") for below in class_folders(folder))


def first_name(folder: Path) -> str:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                return entry.name
    return ""


# Class folders, with or without the lists of Speech Commands


def commands_folder(directory: Path | None) -> Path:
    """Returns --data-dir itself, or the newest folder in it that an archive was unpacked to."""
    base = directory or Path()
    for folder in (base, *sorted(base.glob("speech*commands*"), reverse=True)):
        if has_lists(folder):
            return folder
    place = f"in {base}, or in its speech_commands folder"
    rule = f"--data speech-commands must have {' and '.join(LISTS)} {place}"
    advice = "name its folder with --data-dir, or `fedloom data get speech-commands`"
    raise FedloomError(rule, "there are none", advice)


def has_lists(folder: Path) -> bool:
    return all((folder / name).is_file() for name in LISTS)


def tree(folder: Path, least: int = LEAST_CLASSES) -> list[Clip]:
    """Returns all clips, class by class in the order of their names."""
    refuse_dead_links(folder)
    below = class_folders(folder)
    if len(below) < least:
        rule = f"{folder} must hold a folder of .wav files for each of at least {least} classes"
        raise FedloomError(rule, f"it has {len(below)}", "sort the files into class folders")
    files: list[Path] = []
    for class_folder in below:
        files += wav_files(class_folder)
    parts: dict[str, int] = {}
    if has_lists(folder):
        parts = official_parts(folder, [listed_name(file) for file in files])
    speakers_named = all(SPEAKER_MARK in listed_name(file) for file in files)
    clips = []
    for file in files:
        speaker = None
        if speakers_named:
            speaker = file.name.split(SPEAKER_MARK)[0]
        part = parts.get(listed_name(file), TRAIN)
        clips.append(Clip(file, file.parent.name, speaker, part))
    return clips


def listed_name(file: Path) -> str:
    """Returns a file's name as in the lists: `class/name`."""
    return f"{file.parent.name}/{file.name}"


def refuse_dead_links(folder: Path) -> None:
    links = [path for path in folder.iterdir() if path.name[0] != "." and path.is_symlink()]
    dead = [path for path in links if not path.exists()]
    if dead:
        rule = f"the link {min(dead)} must lead to .wav files"
        raise FedloomError(rule, "it leads nowhere, or in a circle", "remove it")


def class_folders(folder: Path) -> list[Path]:
    folders = [path for path in folder.iterdir() if path.is_dir()]
    return sorted(path for path in folders if path.name[0] != "." and path.name != NOISE)


def wav_files(folder: Path) -> list[Path]:
    """Returns the .wav files of a class folder, and refuses other files.

    If others were left out silently, the user would notice too late.
    """
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if not names:
        rule = f"{folder} must hold .wav files"
        raise FedloomError(rule, "it is empty", "add some, or remove the folder")
    for name in names:
        if not name.lower().endswith(".wav"):
            rule = f"{folder} must hold .wav files and nothing else"
            raise FedloomError(rule, f"it has {name}", "move it away, or convert it to .wav")
    return [folder / name for name in names]


def official_parts(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """Returns the official part of every file `class/name` that a list names.

    If only some of the listed files are there, they are used, and a warning says so.
    """
    present = set(names)
    parts: dict[str, int] = {}
    for file, part in LISTS.items():
        lines = listed(folder / file)
        missing = [line for line in lines if line not in present]
        if len(missing) == len(lines):
            raise names_nothing(folder / file, missing)
        if missing:
            share = f"{len(missing)} of the {len(lines)} files that {file} names are missing"
            loss = f"{share}, first {missing[0]!r}; the data set is not complete."
            log.warning("%s: %s", folder, loss)
        for line in lines:
            if line in parts:
                others = " or ".join(name for name in LISTS if name != file)
                rule = f"{folder / file} must name no file of {others}"
                raise FedloomError(rule, f"{line} is in both", "restore the lists")
        for line in lines:
            if line in present:
                parts[line] = part
    return parts


def listed(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def names_nothing(file: Path, missing: Sequence[str]) -> FedloomError:
    rule = f"{file} must name files beside it"
    if not missing:
        return FedloomError(rule, "it is empty", "restore both")
    problem = f"it names {missing[0]!r}, which is not there, and no other"
    return FedloomError(rule, problem, "restore both")

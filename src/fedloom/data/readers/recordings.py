"""Clips of sound as a source: the features of each, computed once and kept in the cache.

The cache's key is made of the settings and of every file's path, size and times of change, not of
its bytes: to read some gigabytes only to learn that nothing changed would cost more than it saves.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.cache import Rows, kept_array
from fedloom.data.progress import with_progress
from fedloom.data.readers.features import BANDS, FRAMES, features
from fedloom.data.readers.wav import broken, read_wav
from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.threads import one_thread

TRAIN, VALIDATION, TEST = range(3)
SILENCE = ("silence", "_silence_")  # classes in which nothing need be heard
LONGEST_NOISE = 600.0  # seconds
FORM = 1  # of the features; another number makes every cached array a new one


class Clip(NamedTuple):
    file: Path
    label: str
    speaker: str | None = None
    part: int = TRAIN
    start: int | None = None  # where its second begins, if it is cut from a longer recording


class FeatureSettings(NamedTuple):
    """How clips become features, and the mean and spread by which the network normalises these."""

    rate: int
    kind: str
    mean: float
    std: float


def to_source(
    name: str,
    clips: Sequence[Clip],
    labels: Sequence[str],
    settings: FeatureSettings,
    *,
    grouping: str = "speaker",
    parts: bool = False,
) -> Source:
    """The clips in their order.

    There are groups if every clip has a speaker, and official parts if the data set has them.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    source = Source(
        name,
        features_of(clips, settings),
        np.array([numbers[clip.label] for clip in clips], np.int64),
        tuple(labels),
        (settings.mean,),
        (settings.std,),
        kind="speech",
        grouping=grouping,
    )
    if parts:
        source = replace(source, official=np.array([clip.part for clip in clips], np.uint8))
    speakers = [clip.speaker for clip in clips if clip.speaker is not None]
    if len(speakers) < len(clips):
        return source
    names, groups = np.unique(np.array(speakers, object), return_inverse=True)
    return replace(source, groups=groups.astype(np.int64), group_names=tuple(names))


def features_of(clips: Sequence[Clip], settings: FeatureSettings) -> np.ndarray:
    """[n, 1, 40, 51] float32, mapped from the cache."""
    if not clips:
        raise FedloomError("the data must have at least one clip", "it has none", "add .wav files")
    shape = (len(clips), 1, BANDS, FRAMES)
    dtype = np.dtype(np.float32)
    name = f"speech-{key(clips, settings)}"
    return kept_array(name, lambda: Rows(shape, dtype, rows(clips, settings)))


def rows(clips: Sequence[Clip], settings: FeatureSettings) -> Iterator[np.ndarray]:
    """One clip at a time, so that no bit depends on a neighbour."""

    @lru_cache(maxsize=1)  # clips of one long recording follow each other
    def noise(file: Path) -> np.ndarray:
        return read_wav(file, settings.rate, longest=LONGEST_NOISE, silent=True)

    with one_thread():
        for clip in with_progress(f"computing the {settings.kind} of clips", clips):
            if clip.start is None:
                sound = read_wav(clip.file, settings.rate, silent=clip.label in SILENCE)
            else:
                sound = noise(clip.file)[clip.start : clip.start + settings.rate]
            yield features(sound, settings.rate, settings.kind)


def key(clips: Sequence[Clip], settings: FeatureSettings) -> str:
    sha = hashlib.sha256(f"{FORM} {settings.rate} {settings.kind}".encode())
    for clip in clips:
        try:
            facts = clip.file.stat()
        except OSError as error:
            raise broken(clip.file, f"it cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(facts.st_mode):  # to open a pipe would be to wait for ever
            raise broken(clip.file, "it is no file")
        # Archives set mtime, nothing sets ctime.
        version = f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"
        line = f"{clip.start} {clip.label in SILENCE} {version} {os.path.abspath(clip.file)}\0"
        sha.update(line.encode(errors="surrogateescape"))
    return sha.hexdigest()[:32]

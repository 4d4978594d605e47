"""Clips of sound as a source: the features of each, computed once and kept in the cache.

The cache's key is made of the settings and of every file's path, size and times of change, not of its bytes: to read
some gigabytes only to learn that nothing changed would cost more than it saves.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.cache import kept_array
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
    start: int | None = None  # the sample at which its second begins, if it is cut from a longer recording


class Hearing(NamedTuple):
    """How clips become features, and the mean and spread of these, by which the network normalises them."""

    rate: int
    kind: str
    mean: float
    std: float


def to_source(
    name: str,
    clips: Sequence[Clip],
    labels: Sequence[str],
    hearing: Hearing,
    *,
    grouping: str = "speaker",
    parts: bool = False,
) -> Source:
    """The clips in their order; groups if every one has a speaker, official parts if the data set has them."""
    numbers = {label: number for number, label in enumerate(labels)}
    speakers = sorted({clip.speaker for clip in clips if clip.speaker is not None})
    place = {speaker: number for number, speaker in enumerate(speakers)}
    grouped = all(clip.speaker is not None for clip in clips)
    return Source(
        name,
        heard(clips, hearing),
        np.array([numbers[clip.label] for clip in clips], np.int64),
        tuple(labels),
        (hearing.mean,),
        (hearing.std,),
        kind="speech",
        groups=np.array([place[clip.speaker or ""] for clip in clips], np.int64) if grouped else None,
        group_names=tuple(speakers) if grouped else (),
        grouping=grouping,
        official=np.array([clip.part for clip in clips], np.uint8) if parts else None,
    )


def heard(clips: Sequence[Clip], hearing: Hearing) -> np.ndarray:
    """[n, 1, 40, 51] float32, mapped from the cache."""
    if not clips:
        raise FedloomError("the data must have at least one clip", "it has none", "add .wav files")
    shape = (len(clips), 1, BANDS, FRAMES)
    return kept_array(f"speech-{key(clips, hearing)}", lambda: (shape, np.dtype(np.float32), rows(clips, hearing)))


def rows(clips: Sequence[Clip], hearing: Hearing) -> Iterator[np.ndarray]:
    """One clip at a time, so that no bit depends on a neighbour. Of long recordings the last read stays at hand."""
    noise = lru_cache(maxsize=1)(partial(read_wav, rate=hearing.rate, longest=LONGEST_NOISE, silent=True))
    with one_thread():
        for clip in with_progress(f"computing the {hearing.kind} of clips", clips):
            if clip.start is None:
                sound = read_wav(clip.file, hearing.rate, silent=clip.label in SILENCE)
            else:
                sound = noise(clip.file)[clip.start : clip.start + hearing.rate]
            yield features(sound, hearing.rate, hearing.kind)


def key(clips: Sequence[Clip], hearing: Hearing) -> str:
    sha = hashlib.sha256(f"{FORM} {hearing.rate} {hearing.kind}".encode())
    for clip in clips:
        try:
            found = clip.file.stat()
        except OSError as error:
            raise broken(clip.file, f"it cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(found.st_mode):  # to open a pipe would be to wait for ever
            raise broken(clip.file, "it is no file")
        when = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"  # archives set mtime, nothing sets ctime
        what = f"{clip.start} {clip.label in SILENCE} {when} {os.path.abspath(clip.file)}\0"
        sha.update(what.encode(errors="surrogateescape"))
    return sha.hexdigest()[:32]

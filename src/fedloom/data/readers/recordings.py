"""Clips of sound as a source: their features are computed once and kept in the cache.

The key in the cache is made of the settings and of every file's path, size and times of change, not
of its bytes: reading gigabytes only to see that nothing changed would cost more than it saves. If
files cannot be read, one error names all of them, or `--skip-bad` leaves them out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.cache import Rows, cached_array
from fedloom.data.progress import with_progress
from fedloom.data.readers.bad_files import (
    BadFiles,
    Listing,
    WholeFiles,
    bad_file,
    listed,
    read_whole_files,
)
from fedloom.data.readers.features import BANDS, FRAMES, features
from fedloom.data.readers.wav import WHOLE_FILE, read_wav
from fedloom.data.source import SkippedFile, Source
from fedloom.errors import FedloomError
from fedloom.threads import one_thread

TRAIN, VALIDATION, TEST = range(3)
SILENCE = ("silence", "_silence_")  # classes whose clips may be silent
LONGEST_NOISE = 600.0  # seconds
FORM = 1  # the version of the features; another number makes all cached ones invalid


class Clip(NamedTuple):
    """A recording, or one second of a longer one."""

    file: Path
    label: str
    speaker: str | None = None
    part: int = TRAIN
    start: int | None = None  # where its second begins, if it is cut from a longer recording


class FeatureSettings(NamedTuple):
    """How clips become features, and the constants by which the network normalises them."""

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
    skip_bad: bool = False,
) -> Source:
    """Makes a source of clips, in their order, without those of skipped files.

    There are groups if every clip has a speaker, and official parts if `parts`. Classes and
    speakers keep their numbers, even if all their clips were skipped.
    """
    whole = features_of(clips, settings, skip_bad=skip_bad)
    numbers = {label: number for number, label in enumerate(labels)}
    y = np.array([numbers[clip.label] for clip in clips], np.int64)
    source = Source(
        name,
        whole.x,
        y[whole.places],
        tuple(labels),
        (settings.mean,),
        (settings.std,),
        kind="speech",
        grouping=grouping,
        skipped=whole.skipped,
    )
    if parts:
        official = np.array([clip.part for clip in clips], np.uint8)
        source = replace(source, official=official[whole.places])
    speakers = [clip.speaker for clip in clips if clip.speaker is not None]
    if len(speakers) < len(clips):
        return source
    names, groups = np.unique(np.array(speakers, object), return_inverse=True)
    groups = groups.astype(np.int64)[whole.places]
    return replace(source, groups=groups, group_names=tuple(names))


def features_of(
    clips: Sequence[Clip],
    settings: FeatureSettings,
    *,
    skip_bad: bool = False,
) -> WholeFiles:
    """Returns features as [n, 1, 40, 51] float32, mapped from the cache."""
    if not clips:
        raise FedloomError("the data must have at least one clip", "it has none", "add .wav files")
    # Full paths, so that what the cache remembers holds in any working directory.
    clips = [clip._replace(file=Path(os.path.abspath(clip.file))) for clip in clips]
    files = [str(clip.file) for clip in clips]
    listing = listed(files, WHOLE_FILE)
    dtype = np.dtype(np.float32)

    def read(places: list[int]) -> np.ndarray:
        chosen = [clips[place] for place in places]
        shape = (len(chosen), 1, BANDS, FRAMES)
        name = f"speech-{key_of(chosen, listing, settings)}"
        return cached_array(name, lambda: Rows(shape, dtype, rows(chosen, settings)))

    clips_of_files = [clip for clip in clips if str(clip.file) in listing.versions]
    return read_whole_files(
        files,
        listing.bad,
        read,
        kind=".wav",
        memory=f"speech-{key_of(clips_of_files, listing, settings)}-bad.json",
        skip_bad=skip_bad,
    )


def rows(clips: Sequence[Clip], settings: FeatureSettings) -> Iterator[np.ndarray]:
    """Yields the features of one clip at a time, so that no bit depends on other clips.

    Raises BadFiles after all clips have been tried.
    """
    bad: dict[str, SkippedFile] = {}

    @lru_cache(maxsize=1)  # clips of the same long recording come one after the other
    def noise(file: Path) -> np.ndarray:
        return read_wav(file, settings.rate, longest=LONGEST_NOISE, silent=True)

    with one_thread():
        for clip in with_progress(f"computing the {settings.kind} of clips", clips):
            try:
                if clip.start is None:
                    sound = read_wav(clip.file, settings.rate, silent=clip.label in SILENCE)
                else:
                    sound = noise(clip.file)[clip.start : clip.start + settings.rate]
            except FedloomError as error:
                bad[str(clip.file)] = bad_file(str(clip.file), error)
                continue
            yield features(sound, settings.rate, settings.kind)
    if bad:
        raise BadFiles(list(bad.values()))


def key_of(clips: Sequence[Clip], listing: Listing, settings: FeatureSettings) -> str:
    sha = hashlib.sha256(f"{FORM} {settings.rate} {settings.kind}".encode())
    for clip in clips:
        size, mtime, ctime = listing.versions[str(clip.file)]
        is_silence = clip.label in SILENCE
        line = f"{clip.start} {is_silence} {size} {mtime} {ctime} {clip.file}\0"
        sha.update(line.encode(errors="surrogateescape"))
    return sha.hexdigest()[:32]

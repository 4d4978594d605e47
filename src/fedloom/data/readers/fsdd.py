"""The Free Spoken Digit Dataset: files `{digit}_{speaker}_{index}.wav` at 8 kHz, in one folder.

The recordings 0 to 4 of each digit and speaker are its official test part.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedloom.data.readers.recordings import TEST, TRAIN, Clip, Hearing, to_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

# Mean and spread of the 2,700 clips of its training part.
HEARING = {"mfcc": Hearing(8_000, "mfcc", -1.66, 10.97), "logmel": Hearing(8_000, "logmel", -9.84, 5.14)}


def fsdd(directory: Path | None = None) -> Source:
    """Free Spoken Digit Dataset, ten digits at 8 kHz, as MFCC; from its folder under --data-dir."""
    return spoken_digits(directory, "mfcc")


def fsdd_logmel(directory: Path | None = None) -> Source:
    """Free Spoken Digit Dataset as log-mel."""
    return spoken_digits(directory, "logmel")


def spoken_digits(directory: Path | None, kind: str) -> Source:
    base = Path() if directory is None else directory
    homes = [base, base / "recordings", *sorted(base.glob("*/recordings"))]
    files = next((found for home in homes if (found := sorted(home.glob("*.wav")))), [])
    if not files:
        must = f"--data fsdd must have .wav files in {base} or {base / 'recordings'}"
        raise FedloomError(must, "there are none", "name the folder of its recordings by --data-dir")
    clips = []
    for file in files:
        match = re.fullmatch(r"([0-9])_([^_]+)_([0-9]+)\.wav", file.name)
        if match is None:
            must = f"{file} must be named DIGIT_SPEAKER_INDEX.wav as all of fsdd"
            raise FedloomError(must, "it is not", "move it away, or use class folders and --data PATH")
        clips.append(Clip(file, match[1], match[2], TEST if int(match[3]) < 5 else TRAIN))
    return to_source("fsdd", clips, [str(digit) for digit in range(10)], HEARING[kind], parts=True)

"""The Free Spoken Digit Dataset: files `{digit}_{speaker}_{index}.wav` at 8 kHz, in one folder.

The recordings 0 to 4 of each digit and speaker are its official test part.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedloom.data.readers.recordings import TEST, TRAIN, Clip, FeatureSettings, to_source
from fedloom.data.source import Source
from fedloom.errors import FedloomError

# Mean and spread of the 2,700 clips of its training part.
SETTINGS = {
    "mfcc": FeatureSettings(8_000, "mfcc", -1.66, 10.97),
    "logmel": FeatureSettings(8_000, "logmel", -9.84, 5.14),
}
FILE_NAME = re.compile(r"([0-9])_([^_]+)_([0-9]+)\.wav")
TEST_RECORDINGS = 5  # the first of each digit and speaker


def fsdd(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Free Spoken Digit Dataset, ten digits at 8 kHz, as MFCC; from its folder under --data-dir."""
    return spoken_digits(directory, "mfcc", skip_bad)


def fsdd_logmel(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Free Spoken Digit Dataset as log-mel."""
    return spoken_digits(directory, "logmel", skip_bad)


def spoken_digits(directory: Path | None, kind: str, skip_bad: bool) -> Source:
    clips = [clip_of(file) for file in recordings(directory or Path())]
    labels = [str(digit) for digit in range(10)]
    return to_source("fsdd", clips, labels, SETTINGS[kind], parts=True, skip_bad=skip_bad)


def recordings(base: Path) -> list[Path]:
    """Returns the .wav files of the first folder that has some."""
    for folder in (base, base / "recordings", *sorted(base.glob("*/recordings"))):
        files = sorted(folder.glob("*.wav"))
        if files:
            return files
    rule = f"--data fsdd must have .wav files in {base} or {base / 'recordings'}"
    advice = "name the folder of its recordings with --data-dir"
    raise FedloomError(rule, "there are none", advice)


def clip_of(file: Path) -> Clip:
    match = FILE_NAME.fullmatch(file.name)
    if match is None:
        rule = f"{file} must be named DIGIT_SPEAKER_INDEX.wav like all files of fsdd"
        advice = "move it away, or use class folders and --data PATH"
        raise FedloomError(rule, "it is not", advice)
    digit, speaker, number = match.groups()
    part = TEST if int(number) < TEST_RECORDINGS else TRAIN
    return Clip(file, digit, speaker, part)

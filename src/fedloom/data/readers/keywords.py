"""Speech Commands in its 12-class form.

The classes are ten keywords; `unknown`, drawn without replacement from all other words; and
`silence`, seconds cut from the recordings in `_background_noise_`.

In each official part, unknown and silence each have a tenth as many clips as all keywords together,
rounded up. No noise is in two parts: training clips are cut from the first 80 % of each recording,
validation clips from the next 10 %, test clips from the last. A clip of silence gets the speaker of
a keyword drawn from its part. The draws depend on the files alone, not on the seed of a run, so
that all runs use the same data set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fedloom.data.readers.recordings import LONGEST_NOISE, TEST, TRAIN, VALIDATION, Clip, to_source
from fedloom.data.readers.speech import NOISE, SETTINGS, commands_folder, tree
from fedloom.data.readers.wav import read_wav
from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.rng import rng

NAME = "speech-commands-12"
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SHARES = (0.0, 0.8, 0.9, 1.0)  # where each part's stretch of a recording of noise begins and ends
SHORTEST_NOISE = 11  # seconds: a tenth of that is more than one second, however it is rounded
ADVICE = "`fedloom data get speech-commands` brings all of it, or use --data speech-commands"


def commands12(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Speech Commands as ten keywords, unknown and silence, as MFCC; from under --data-dir."""
    return twelve(directory, "mfcc", skip_bad)


def commands12_logmel(directory: Path | None = None, skip_bad: bool = False) -> Source:
    """Speech Commands as ten keywords, unknown and silence, as log-mel."""
    return twelve(directory, "logmel", skip_bad)


def twelve(directory: Path | None, kind: str, skip_bad: bool) -> Source:
    folder = commands_folder(directory)
    settings = SETTINGS[kind]
    clips = tree(folder)
    words = {clip.label for clip in clips}
    missing = [word for word in KEYWORDS if word not in words]
    if missing:
        rule = f"{folder} must have a folder for each of the ten keywords"
        raise FedloomError(rule, f"{', '.join(missing)} is missing", ADVICE)
    keywords = [clip for clip in clips if clip.label in KEYWORDS]
    others = [clip for clip in clips if clip.label not in KEYWORDS]
    chosen = [
        *keywords,
        *unknown_words(folder, keywords, others),
        *silences(folder, keywords, settings.rate),
    ]
    labels = (*KEYWORDS, "unknown", "silence")
    return to_source(NAME, chosen, labels, settings, parts=True, skip_bad=skip_bad)


def quota(keywords: Sequence[Clip], part: int) -> int:
    return math.ceil(len(clips_of_part(keywords, part)) / 10)


def clips_of_part(clips: Sequence[Clip], part: int) -> list[Clip]:
    return [clip for clip in clips if clip.part == part]


def unknown_words(folder: Path, keywords: Sequence[Clip], others: Sequence[Clip]) -> list[Clip]:
    """Draws the clips of `unknown`: for each part, from its words that are no keywords."""
    drawn: list[Clip] = []
    for part in (TRAIN, VALIDATION, TEST):
        pool = clips_of_part(others, part)
        count = quota(keywords, part)
        if len(pool) < count:
            rule = f"{folder} must have {count} clips of other words in its official part {part}"
            raise FedloomError(rule, f"it has {len(pool)}", ADVICE)
        picks = rng(0, NAME, "unknown", part).permutation(len(pool))[:count]
        for pick in sorted(picks):
            drawn.append(pool[pick]._replace(label="unknown"))
    return drawn


def silences(folder: Path, keywords: Sequence[Clip], rate: int) -> list[Clip]:
    """Draws the clips of `silence`, each one second of noise.

    Each is cut at a random place of a random recording, within its part's stretch of it.
    """
    files = sorted((folder / NOISE).glob("*.wav"))
    if not files:
        rule = f"{folder / NOISE} must hold .wav files, from which the class silence is cut"
        raise FedloomError(rule, "it has none", ADVICE)
    lengths = [noise_length(file, rate) for file in files]
    drawn: list[Clip] = []
    for part in (TRAIN, VALIDATION, TEST):
        generator = rng(0, NAME, "silence", part)
        spoken = clips_of_part(keywords, part)
        for _ in range(quota(keywords, part)):
            recording = int(generator.integers(len(files)))
            begin = int(SHARES[part] * lengths[recording])
            end = int(SHARES[part + 1] * lengths[recording])
            start = int(generator.integers(begin, end - rate + 1))
            speaker = spoken[generator.integers(len(spoken))].speaker
            drawn.append(Clip(files[recording], "silence", speaker, part, start))
    return sorted(drawn, key=lambda clip: (clip.part, clip.file, clip.start))


def noise_length(file: Path, rate: int) -> int:
    length = len(read_wav(file, rate, longest=LONGEST_NOISE, silent=True))
    if length < SHORTEST_NOISE * rate:
        shortest = f"at least {SHORTEST_NOISE} s, to cut silence for every part from it"
        rule = f"{file} must last {shortest}"
        raise FedloomError(rule, f"it lasts {length / rate:.1f} s", "replace or remove it")
    return length

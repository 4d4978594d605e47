"""Speech Commands in its 12-class form: ten keywords; `unknown`, drawn without replacement from all other words; and
`silence`, seconds cut from the recordings in `_background_noise_`.

In each official part, unknown and silence have a tenth as many clips as the keywords together, rounded up. No noise is
in two parts: training cuts from the first 80 % of each recording, validation from the next 10 %, test from the last.
A silence has the speaker of a keyword drawn from its part. The draws depend on the files alone, not on a run's seed, so
that there is one such data set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fedloom.data.readers.recordings import LONGEST_NOISE, TEST, TRAIN, VALIDATION, Clip, to_source
from fedloom.data.readers.speech import NOISE, WIDE, commands_folder, tree
from fedloom.data.readers.wav import read_wav
from fedloom.data.source import Source
from fedloom.errors import FedloomError
from fedloom.rng import rng

NAME = "speech-commands-12"
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SHARES = (0.0, 0.8, 0.9, 1.0)  # where in a recording of noise each part's stretch begins and ends
ADVICE = "`fedloom data get speech-commands` brings all of it, or use --data speech-commands"


def commands12(directory: Path | None = None) -> Source:
    """Speech Commands as ten keywords, unknown and silence, as MFCC; from its folder under --data-dir."""
    return twelve(directory, "mfcc")


def commands12_logmel(directory: Path | None = None) -> Source:
    """Speech Commands as ten keywords, unknown and silence, as log-mel."""
    return twelve(directory, "logmel")


def twelve(directory: Path | None, kind: str) -> Source:
    folder, hearing = commands_folder(directory), WIDE[kind]
    clips = tree(folder)
    lost = [word for word in KEYWORDS if not any(clip.label == word for clip in clips)]
    if lost:
        must = f"{folder} must have a folder for each of the ten keywords"
        raise FedloomError(must, f"{', '.join(lost)} is missing", ADVICE)
    known = [clip for clip in clips if clip.label in KEYWORDS]
    others = [clip for clip in clips if clip.label not in KEYWORDS]
    chosen = [*known, *strangers(folder, known, others), *silences(folder, known, hearing.rate)]
    return to_source(NAME, chosen, (*KEYWORDS, "unknown", "silence"), hearing, parts=True)


def quota(known: Sequence[Clip], part: int) -> int:
    return math.ceil(sum(clip.part == part for clip in known) / 10)


def strangers(folder: Path, known: Sequence[Clip], others: Sequence[Clip]) -> list[Clip]:
    """Words that are no keyword, drawn for each part from those of that part."""
    drawn: list[Clip] = []
    for part in (TRAIN, VALIDATION, TEST):
        pool, count = [clip for clip in others if clip.part == part], quota(known, part)
        if len(pool) < count:
            must = f"{folder} must have {count} clips of other words in its official part {part}"
            raise FedloomError(must, f"it has {len(pool)}", ADVICE)
        picks = rng(0, NAME, "unknown", part).permutation(len(pool))[:count]
        drawn += [pool[pick]._replace(label="unknown") for pick in sorted(picks)]
    return drawn


def silences(folder: Path, known: Sequence[Clip], rate: int) -> list[Clip]:
    """Seconds of noise, each cut at a random place of a random recording, within its part's stretch of it."""
    files = sorted((folder / NOISE).glob("*.wav"))
    if not files:
        must = f"{folder / NOISE} must hold .wav files, of which the class silence is cut"
        raise FedloomError(must, "it has none", ADVICE)
    lengths = [noise_length(file, rate) for file in files]
    drawn: list[Clip] = []
    for part in (TRAIN, VALIDATION, TEST):
        draw, near = rng(0, NAME, "silence", part), [clip for clip in known if clip.part == part]
        for _ in range(quota(known, part)):
            which = int(draw.integers(len(files)))
            first, last = (int(share * lengths[which]) for share in SHARES[part : part + 2])
            start, speaker = int(draw.integers(first, last - rate + 1)), near[draw.integers(len(near))].speaker
            drawn.append(Clip(files[which], "silence", speaker, part, start))
    return sorted(drawn, key=lambda clip: (clip.part, clip.file, clip.start))


def noise_length(file: Path, rate: int) -> int:
    length = len(read_wav(file, rate, longest=LONGEST_NOISE, silent=True))
    if length < 11 * rate:  # so that a tenth of it is more than a second, whatever the rounding
        must = f"{file} must last at least 11 s, to cut silence for every part from it"
        raise FedloomError(must, f"it lasts {length / rate:.1f} s", "replace or remove it")
    return length

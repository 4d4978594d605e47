"""Reads sound from RIFF/WAVE files.

Samples are integers of 8, 16, 24 or 32 bits or floats of 32, plain or WAVE_FORMAT_EXTENSIBLE. Files
must have one channel and 4 to 192 kHz. They are resampled to the wanted rate by
`scipy.signal.resample_poly`, at the ratio of the two rates. What a header claims is compared with
the file's real size before anything is read. The size in the RIFF header itself is not used,
because many programs write a wrong one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from math import gcd
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from fedloom.errors import FedloomError

Sound = npt.NDArray[np.float32]  # [samples], full scale is −1..1
PCM = 1
FLOAT = 3
EXTENSIBLE = 0xFFFE
KNOWN = {PCM: "PCM", FLOAT: "float", 2: "ADPCM", 6: "A-law", 7: "µ-law", 17: "ADPCM", 85: "MP3"}
FORMATS = {(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32)}
# The end of every sub-format that stands for a plain tag.
GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
SLOWEST = 4_000  # Hz
FASTEST = 192_000
LOUDEST = 8.0  # floats may exceed full scale a little; another scale is a mistake
MOST_CHUNKS = 1_000  # before the sound; a huge file of zeros would have millions
LONGEST = 30.0  # seconds: a clip of one word is not longer
WHOLE_FILE = "a complete WAVE file"  # what a file must be


class Format(NamedTuple):
    tag: int
    channels: int
    rate: int
    bits: int

    @property
    def frame(self) -> int:
        """Bytes of one sample of every channel."""
        return self.channels * self.bits // 8


class Chunk(NamedTuple):
    name: bytes
    size: int  # as it claims


def read_wav(file: Path, rate: int, *, longest: float = LONGEST, silent: bool = False) -> Sound:
    """Returns the sound of a file at `rate` Hz.

    A file in which all samples are equal is refused, unless it may be `silent`.
    """
    try:
        with file.open("rb") as handle:
            form, raw = parsed(file, handle, longest)
    except OSError as error:
        raise broken(file, f"it cannot be read ({error.strerror})") from error
    sound = decoded(form, raw)
    if form.tag == FLOAT and not np.all(np.abs(sound) <= LOUDEST):  # false for NaN, too
        rule = f"{file} must have finite samples with a full scale of −1 to 1"
        problem = "some samples are NaN or far beyond that"
        raise FedloomError(rule, problem, "convert it to 16-bit PCM")
    if form.channels > 1:
        rule = f"{file} must have one channel"
        advice = "convert it to mono, e.g. with sox IN OUT remix -"
        raise FedloomError(rule, f"it has {form.channels} channels", advice)
    if not silent and sound.min() == sound.max():
        rule = f"{file} must not be silent"
        problem = f"all its {len(sound)} samples are {sound[0]:g}: it is silent"
        raise FedloomError(rule, problem, "remove or replace it")
    return resampled(sound, form.rate, rate)


def broken(file: Path, problem: str) -> FedloomError:
    rule = f"{file} must be {WHOLE_FILE}"
    return FedloomError(rule, problem, "copy, convert or fetch it again")


def parsed(file: Path, handle: BinaryIO, longest: float) -> tuple[Format, bytes]:
    """Returns the format and the bytes of the sound, and checks all that the header claims."""
    size = os.fstat(handle.fileno()).st_size
    if size == 0:
        raise broken(file, "it is empty")
    head = handle.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise broken(file, "it does not begin as one")
    form = None
    for chunk in chunks(handle, size):
        if chunk.name == b"fmt ":
            form = format_of(file, handle.read(min(chunk.size, 40)))
        elif chunk.name == b"data":
            if form is None:
                raise broken(file, "its sound comes before its format")
            check_length(file, form, chunk.size, size - handle.tell(), longest)
            return form, handle.read(chunk.size)
    raise broken(file, "it has no sound: it was cut short or is damaged")


def chunks(handle: BinaryIO, size: int) -> Iterator[Chunk]:
    """Yields the chunks of a file.

    It is then positioned at the first byte of the chunk's content.
    """
    position = 12
    for _ in range(MOST_CHUNKS):
        if position + 8 > size:
            return
        handle.seek(position)
        chunk = Chunk(*struct.unpack("<4sI", handle.read(8)))
        yield chunk
        position += 8 + chunk.size + chunk.size % 2  # padded to an even size


def format_of(file: Path, raw: bytes) -> Format:
    if len(raw) < 16:
        raise broken(file, "its format is cut short")
    tag, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", raw[:16])
    if tag == EXTENSIBLE and raw[26:40] == GUID_TAIL:
        tag = int.from_bytes(raw[24:26], "little")
    if (tag, bits) not in FORMATS:
        rule = f"{file} must be PCM of 8, 16, 24 or 32 bits, or float of 32"
        encoding = KNOWN.get(tag, f"of format {tag}")
        raise FedloomError(rule, f"it is {bits}-bit {encoding}", "convert it to 16-bit PCM")
    form = Format(tag, channels, rate, bits)
    if channels == 0 or frame != form.frame:
        raise broken(file, f"it claims {channels} channels in frames of {frame} bytes")
    if not SLOWEST <= rate <= FASTEST:
        rule = f"{file} must have {SLOWEST} to {FASTEST} samples per second"
        raise FedloomError(rule, f"it has {rate} samples per second", "record it again")
    return form


def check_length(file: Path, form: Format, claimed: int, present: int, longest: float) -> None:
    if claimed > present:
        lengths = f"it claims {claimed} bytes of sound and has {present}"
        raise broken(file, f"{lengths}: it was cut short")
    if claimed == 0 or claimed % form.frame:
        samples = f"whole samples of {form.frame} bytes"
        raise broken(file, f"its {claimed} bytes of sound are not {samples}")
    seconds = claimed / form.frame / form.rate
    if seconds > longest:
        rule = f"{file} must last at most {longest:g} s"
        problem = f"it lasts {seconds:.1f} s"
        raise FedloomError(rule, problem, "cut it into clips of one word each")


def decoded(form: Format, raw: bytes) -> Sound:
    """Returns all samples, channels in turn. Widening 24 bits to 32 is exact: the low byte is 0."""
    if form.tag == FLOAT:
        return np.frombuffer(raw, "<f4").astype(np.float32)
    if form.bits == 8:
        values = np.frombuffer(raw, np.uint8).astype(np.float32)
        return (values - np.float32(128)) / np.float32(128)
    if form.bits == 24:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw = wide.tobytes()
    width = 2 if form.bits == 16 else 4
    scaled: npt.NDArray[np.float64] = np.frombuffer(raw, f"<i{width}") / 2.0 ** (8 * width - 1)
    return scaled.astype(np.float32)


def resampled(sound: Sound, rate: int, wanted: int) -> Sound:
    if rate == wanted:
        return sound
    from scipy.signal import resample_poly

    shared = gcd(rate, wanted)
    wide = resample_poly(sound.astype(np.float64), wanted // shared, rate // shared)
    result: Sound = wide.astype(np.float32)
    return result

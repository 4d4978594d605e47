"""Sound to test with: WAVE files of every form, made byte by byte."""

import struct
from pathlib import Path

import numpy as np

PCM = 1
FLOAT = 3
EXTENSIBLE = 0xFFFE
GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def tone(hertz: float, rate: int = 16_000, seconds: float = 1.0, loud: float = 0.5) -> np.ndarray:
    return loud * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)


def encoded(values: np.ndarray, tag: int, bits: int) -> bytes:
    if tag == FLOAT:
        return values.astype("<f4").tobytes()
    if bits == 8:
        return (np.round(values * 128) + 128).astype(np.uint8).tobytes()
    whole = np.round(values * 2.0 ** (bits - 1)).astype("<i8")
    return whole.view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()


def fmt(tag=PCM, bits=16, rate=16_000, channels=1, *, extensible=False) -> bytes:
    frame = channels * bits // 8
    plain = struct.pack(
        "<HHIIHH", EXTENSIBLE if extensible else tag, channels, rate, rate * frame, frame, bits
    )
    if not extensible:
        return plain
    return plain + struct.pack("<HHIH", 22, bits, 0, tag) + GUID_TAIL


def chunk(name: bytes, content: bytes, claimed: int | None = None) -> bytes:
    size = len(content) if claimed is None else claimed
    return name + struct.pack("<I", size) + content + b"\0" * (len(content) % 2)


def riff(*chunks: bytes, claimed: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if claimed is None else claimed) + body


def wav(
    values: np.ndarray, tag=PCM, bits=16, rate=16_000, channels=1, *, extensible=False
) -> bytes:
    head = fmt(tag, bits, rate, channels, extensible=extensible)
    return riff(chunk(b"fmt ", head), chunk(b"data", encoded(values, tag, bits)))


def save(file: Path, content: bytes | None = None, hertz: float = 440.0) -> Path:
    """A file with this content, or with a tone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(wav(tone(hertz)) if content is None else content)
    return file

"""The folder of data sets that `evidence_auto.py` reads, made of their canonical files.

    python bench/evidence_data.py --from DOWNLOADS --to DATA

In DOWNLOADS: `cifar-10-batches-bin/data_batch_1.bin` (CIFAR-10's binary version),
`medmnist/pneumoniamnist.npz`, `speech/fsdd_wav.tar` (the Free Spoken Digit Dataset with its folder
`recordings`) and `shakespeare/tinyshakespeare_input.txt`. Files may be compressed with xz.

What is made of them: 3,000 images of CIFAR-10 at 16×16 and 1,500 at 32×32, 3,000 of PneumoniaMNIST
at 14×14, the first 25 recordings of each spoken digit and speaker (five of them are for testing),
and the first 6,000 characters of each of the ten longest roles of Shakespeare. All small, so that
five seeds of everything take hours and not days.
"""

from __future__ import annotations

import argparse
import io
import lzma
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CIFAR_LABELS = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
RECORDINGS = 25  # of each digit and speaker
ROLES = 10
CHARACTERS = 6000  # of each role


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="the data sets of the evidence for auto")
    parser.add_argument("--from", dest="downloads", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args(words)
    arguments.to.mkdir(parents=True)
    for save in (save_cifar10, save_pneumonia, save_recordings, save_shakespeare):
        save(arguments.downloads, arguments.to)
    return 0


def opened(path: Path) -> bytes:
    """The content of a file, or of the same file compressed."""
    if path.exists():
        return path.read_bytes()
    return lzma.decompress(path.with_name(path.name + ".xz").read_bytes())


def cifar10(downloads: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first batch: images as numbers 0 to 255, and labels."""
    batch = opened(downloads / "cifar-10-batches-bin" / "data_batch_1.bin")
    rows = np.frombuffer(batch, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, rows[:, 0].astype(np.int64)


def halved(images: np.ndarray) -> np.ndarray:
    """Half the side: means of 2×2 pixels, rounded."""
    count, height, width, *colours = images.shape
    blocks = images.reshape(count, height // 2, 2, width // 2, 2, *colours)
    means: np.ndarray = np.rint(blocks.mean(axis=(2, 4)))
    return means.astype(np.uint8)


def save_cifar10(downloads: Path, to: Path) -> None:
    images, labels = cifar10(downloads)
    names = np.array(CIFAR_LABELS)
    np.savez(to / "cifar16.npz", x=halved(images[:3000]), y=labels[:3000], labels=names)
    np.savez(to / "cifar32.npz", x=images[:1500], y=labels[:1500], labels=names)


def save_pneumonia(downloads: Path, to: Path) -> None:
    with np.load(downloads / "medmnist" / "pneumoniamnist.npz") as parts:
        images = np.concatenate([parts["train_images"], parts["val_images"], parts["test_images"]])
        labels = np.concatenate([parts["train_labels"], parts["val_labels"], parts["test_labels"]])
    names = np.array(["normal", "pneumonia"])
    np.savez(
        to / "pneumonia14.npz",
        x=halved(images[:3000]),
        y=labels[:3000, 0].astype(np.int64),
        labels=names,
    )


def save_recordings(downloads: Path, to: Path) -> None:
    archive = io.BytesIO(opened(downloads / "speech" / "fsdd_wav.tar"))
    folder = to / "recordings"
    folder.mkdir()
    with tarfile.open(fileobj=archive) as members:
        for member in members:
            path = Path(member.name)
            file = members.extractfile(member)
            if file is None or path.suffix != ".wav":
                continue
            _, _, number = path.stem.split("_")
            if int(number) < RECORDINGS:
                (folder / path.name).write_bytes(file.read())


def save_shakespeare(downloads: Path, to: Path) -> None:
    """A play in the same form: the name of a role on a line of its own, then what it says."""
    text = opened(downloads / "shakespeare" / "tinyshakespeare_input.txt").decode()
    speeches: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        role, _, speech = paragraph.partition(":\n")
        speeches[role] = speeches.get(role, "") + speech + "\n"
    longest = sorted(speeches, key=lambda role: len(speeches[role]), reverse=True)[:ROLES]
    paragraphs = []
    for role in longest:
        paragraphs.append(f"{role}:\n{speeches[role][:CHARACTERS]}")
    (to / "shakespeare10.txt").write_text("\n\n".join(paragraphs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

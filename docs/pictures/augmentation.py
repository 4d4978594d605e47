"""Draws augmentation.png: one image of CIFAR-10 under every operation.

Run `python docs/pictures/augmentation.py DATA`. DATA holds data_batch_1.bin of CIFAR-10's binary
version.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from fedloom.data.augmenting.augment import augmenter, rotate, shift_hue
from fedloom.data.augmenting.randaugment import OPERATIONS
from fedloom.data.readers.cifar import TEN, present, read_files

NUMBER = 4  # of the file's images: a car
MAGNITUDE = 9 / 30
SEED = 49  # its first draw is far from the middle, so that every effect shows
SCALE, GAP, CAPTION, COLUMNS = 3, 14, 14, 7
DRAWN = [
    "crop:4",
    "flip",
    "cutout:16",
    "rotate:15",
    "hue:0.1",
    "randaugment:2:9",
    "flip+hue:0.5+cutout:8",
]


def find(folder: Path) -> Path:
    file = present(folder, TEN.files[0]) or present(folder / TEN.folder, TEN.files[0])
    return file or sys.exit(f"{folder} must hold {TEN.files[0]}")


def tiles(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Captions and pictures, in rows."""
    fixed = {"as it is": x, "rotate(90)": rotate(x, 90), "rotate(30)": rotate(x, 30)}
    fixed |= {f"shift_hue({turns})": shift_hue(x, turns) for turns in (0.25, 0.5, 0.75)}
    fixed["shift_hue(1)"] = shift_hue(x, 1)
    single = {
        name: operation(x.float(), torch.tensor([MAGNITUDE])).round().byte()
        for name, operation in OPERATIONS.items()
    }
    drawn = {
        text: augmenter(text, "image", TEN.mean, x)(x, torch.Generator().manual_seed(SEED))
        for text in DRAWN
    }
    return {**fixed, **drawn, **single}


def main() -> None:
    source = read_files([find(Path(sys.argv[1]))])
    pictures = tiles(torch.tensor(source.x[NUMBER : NUMBER + 1]))
    side = 32 * SCALE
    rows = -(-len(pictures) // COLUMNS)
    sheet = Image.new(
        "RGB", (COLUMNS * (side + GAP) + GAP, rows * (side + CAPTION + GAP) + GAP), "white"
    )
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for number, (caption, picture) in enumerate(pictures.items()):
        left, top = (
            GAP + number % COLUMNS * (side + GAP),
            GAP + number // COLUMNS * (side + CAPTION + GAP),
        )
        pixels = Image.fromarray(np.ascontiguousarray(picture[0].permute(1, 2, 0).numpy()))
        sheet.paste(pixels.resize((side, side), Image.Resampling.NEAREST), (left, top + CAPTION))
        pen.text((left, top), caption, fill="black", font=font)
    sheet.quantize(128).save(Path(__file__).with_suffix(".png"), optimize=True)


if __name__ == "__main__":
    main()

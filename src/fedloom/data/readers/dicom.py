"""DICOM images, read with pydicom, which the extra `fedloom[dicom]` installs.

A grey image has its scanner's units: values are rescaled by slope and intercept (to Hounsfield
units for a CT, say), as float32. If low values are shown white (MONOCHROME1), they are inverted, so
that white is high in every file. A colour image is RGB with 8 bits. A file must have one frame. No
other field of a file is read: what it says about a patient stays in it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from fedloom.data.readers.image_heads import Head, check_size, repeated
from fedloom.errors import FedloomError

GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


def require() -> None:
    """Refuses to continue without pydicom, and says how to install it."""
    if find_spec("pydicom") is None:
        raise FedloomError(
            "DICOM files must be read with pydicom",
            "it is not installed",
            "install it with `pip install 'fedloom[dicom]'`",
        )


def head_of(file: str) -> Head:
    import pydicom

    dataset = pydicom.dcmread(file, stop_before_pixels=True)
    check(file, dataset)
    width = int(dataset.Columns)
    height = int(dataset.Rows)
    if dataset.PhotometricInterpretation in COLOUR:
        return Head(width, height, is_colour=True, depth="byte")
    return Head(width, height, is_colour=False, depth="own")


def check(file: str, dataset: Any) -> None:
    check_size(file, int(dataset.Columns), int(dataset.Rows))
    frames = int(dataset.get("NumberOfFrames", 1) or 1)
    if frames != 1:
        rule = f"{file} must be one image"
        raise FedloomError(rule, f"it has {frames} frames", "save the frame you mean")
    colours = dataset.PhotometricInterpretation
    if colours not in GREY + COLOUR:
        rule = f"{file} must be grey or RGB"
        raise FedloomError(rule, f"its colours are {colours}", "convert it")
    if colours in COLOUR and int(dataset.BitsAllocated) != 8:
        rule = f"{file} must have 8 bits per colour"
        raise FedloomError(rule, f"it has {dataset.BitsAllocated}", "convert it")


def planes(file: str, channels: int) -> np.ndarray:
    """Decodes an image as [c,h,w]: float32 if it is grey, else uint8."""
    import pydicom
    from pydicom.pixels.processing import apply_rescale
    from pydicom.pixels.utils import pixel_array

    dataset = pydicom.dcmread(file)
    check(file, dataset)
    values = pixel_array(dataset)  # colours come as RGB
    if dataset.PhotometricInterpretation in COLOUR:
        return np.moveaxis(values, 2, 0)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        values = inverted(values, int(dataset.BitsStored), int(dataset.PixelRepresentation))
    return repeated(apply_rescale(values, dataset).astype(np.float32), channels)


def inverted(values: np.ndarray, bits: int, signed: int) -> np.ndarray:
    """Exchanges the lowest and the highest value that can be stored, and so on."""
    lowest_plus_highest = -1 if signed else (1 << bits) - 1
    return lowest_plus_highest - values.astype(np.int64)

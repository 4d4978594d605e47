"""DICOM images through pydicom, which the extra `fedloom[dicom]` brings.

A grey image has the values that its scanner means: rescaled by its slope and intercept (Hounsfield
units of a CT, say), in float32, and inverted where low values are shown white (MONOCHROME1), so
that white is high in every file. A colour image has RGB with 8 bits. One frame a file. No other
field of a file is looked at: what it says of a patient stays in it.
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
    """Refuses to go on without pydicom, and says how to get it."""
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
        rule = f"{file} must have 8 bits a colour"
        raise FedloomError(rule, f"it has {dataset.BitsAllocated}", "convert it")


def planes(file: str, channels: int) -> np.ndarray:
    """[c,h,w], float32 if it is grey, else uint8."""
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
    """The highest value that can be stored for the lowest, and so on."""
    ends = (1 << bits) - 1  # the lowest and the highest together, of values from 0
    if signed:
        ends = -1
    return ends - values.astype(np.int64)

"""Augmentation of training batches in plain torch: whole batches [n,c,h,w] in raw units, as Samples hold them."""

from fedloom.data.colour import shift_hue
from fedloom.data.geometry import rotate

__all__ = ["rotate", "shift_hue"]

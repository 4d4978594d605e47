"""The names of a chain's operations, and what they say.

Over maps: `conv3` is a convolution of 3×3; `ds3e0.5` a depthwise one to half the channels and a
1×1 one back, beside a residual; `mb3e2` a full one to twice the channels, squeeze-excite and a 1×1
one back, beside a residual; `identity` passes its input on. Over symbols there are seven and
`identity`, all without parameters in their names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

IDENTITY = "identity"
ZERO = "zero"  # adds nothing to the sum that it stands in
FREE = (IDENTITY, ZERO)  # have no parameters and cost nothing
SEQUENCE_OPS = ("lstm", "gru", "ligru", "qrnn", "linear", "conv5", IDENTITY, ZERO)
KERNELS = (1, 3, 5, 7)
EXPANSIONS = ("0.25", "0.5", "1", "1.5", "2", "3", "4", "6")
MAP_OP = re.compile(r"(conv|ds|mb)([0-9])(?:e([0-9]+(?:\.[0-9]+)?))?")


@dataclass(frozen=True)
class MapOp:
    """`ds3e0.5` in its parts."""

    kind: str  # conv, ds, mb or identity
    kernel: int = 1
    expansion: Fraction = Fraction(1)

    def inner(self, channels: int) -> int:
        """The channels between its two convolutions."""
        return int(self.expansion * channels)


def parse_map_op(name: str) -> MapOp | None:
    """None: there is no such operation."""
    if name == IDENTITY:
        return MapOp(IDENTITY)
    match = MAP_OP.fullmatch(name)
    if match is None or int(match[2]) not in KERNELS:
        return None
    kind, kernel, expansion = match.groups()
    if kind == "conv":
        if expansion is not None:
            return None
        return MapOp(kind, int(kernel))
    if expansion not in EXPANSIONS:
        return None
    return MapOp(kind, int(kernel), Fraction(expansion))


def map_op(name: str) -> MapOp:
    """Of a name that was checked."""
    op = parse_map_op(name)
    assert op is not None, name
    return op


def map_op_names() -> list[str]:
    """All that there are."""
    names = [IDENTITY]
    for kernel in KERNELS:
        names.append(f"conv{kernel}")
        for kind in ("ds", "mb"):
            names += [f"{kind}{kernel}e{expansion}" for expansion in EXPANSIONS]
    return names


def why_not(op: MapOp, channels: int) -> str | None:
    """Why an operation cannot be built for so many channels; None: it can."""
    inner = op.expansion * channels
    if inner.denominator != 1:
        return f"{op.expansion} of {channels} channels is no whole number"
    divides = inner % channels == 0 or channels % inner == 0
    if op.kind == "ds" and not divides:
        return f"a depthwise convolution cannot lead from {channels} to {inner} channels"
    return None


def module_key(name: str) -> str:
    """What an operation is called in a network's keys, where a point parts names."""
    return name.replace(".", "_")


def op_of_key(key: str) -> str:
    return key.replace("_", ".")

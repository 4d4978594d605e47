"""The names of a chain's operations, and their meaning.

Over maps, `conv3` is a 3×3 convolution. `ds3e0.5` is a depthwise 3×3 convolution to half the
channels and a 1×1 convolution back, with a residual connection. `mb3e2` is a full 3×3 convolution
to twice the channels, squeeze-excite and a 1×1 convolution back, with a residual connection.
`identity` returns its input. Over symbols there are seven operations and `identity`; their names
have no parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

IDENTITY = "identity"
ZERO = "zero"  # adds nothing to its sum
SEQUENCE_OPS = ("lstm", "gru", "ligru", "qrnn", "linear", "conv5", IDENTITY, ZERO)
KERNELS = (1, 3, 5, 7)
EXPANSIONS = ("0.25", "0.5", "1", "1.5", "2", "3", "4", "6")
MAP_OP = re.compile(r"(conv|ds|mb)([0-9])(?:e([0-9]+(?:\.[0-9]+)?))?")


@dataclass(frozen=True)
class MapOp:
    """The parts of a name such as `ds3e0.5`."""

    kind: str  # conv, ds, mb or identity
    kernel: int = 1
    expansion: Fraction = Fraction(1)

    def inner(self, channels: int) -> int:
        """The channels between its two convolutions."""
        return int(self.expansion * channels)


def parse_map_op(name: str) -> MapOp | None:
    """Returns the parts of an operation's name; None: there is no such operation."""
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
    """Returns the parts of a name that has been checked."""
    op = parse_map_op(name)
    assert op is not None, name
    return op


def map_op_names() -> list[str]:
    """Returns the names of all operations over maps."""
    names = [IDENTITY]
    for kernel in KERNELS:
        names.append(f"conv{kernel}")
        for kind in ("ds", "mb"):
            names += [f"{kind}{kernel}e{expansion}" for expansion in EXPANSIONS]
    return names


def why_not(op: MapOp, channels: int) -> str | None:
    """Returns why an operation cannot be built for this many channels; None: it can."""
    inner = op.expansion * channels
    if inner.denominator != 1:
        return f"{op.expansion} of {channels} channels is not a whole number"
    divides = inner % channels == 0 or channels % inner == 0
    if op.kind == "ds" and not divides:
        return f"a depthwise convolution cannot lead from {channels} to {inner} channels"
    return None


def module_key(name: str) -> str:
    """Returns an operation's name in a network's keys, in which a dot separates names."""
    return name.replace(".", "_")


def op_of_key(key: str) -> str:
    return key.replace("_", ".")

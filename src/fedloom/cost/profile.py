"""A device profile: how long each operation took on one machine.

The latency of a network is the sum of its operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.cost.steps import Piece
from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, read_json
from fedloom.types import Json

FORMAT: Literal[1] = 1


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        strict=True,
        defer_build=True,
    )


class Machine(Part):
    """The machine and software that a time was measured on."""

    processor: str
    system: str
    device: str  # as torch names it
    torch: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.system}, torch {self.torch} on {self.device}"


class Entry(Part):
    """The time of one piece: the mean of `repeats` measurements.

    The spread is the distance between their first and third quartile.
    """

    op: str = Field(max_length=64)
    inputs: int = Field(ge=1)
    outputs: int = Field(ge=1)
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    stride: int = Field(ge=1)
    ms: float = Field(ge=0)
    spread_ms: float = Field(ge=0)
    repeats: int = Field(ge=1)

    @property
    def piece(self) -> Piece:
        return Piece(self.op, self.inputs, self.outputs, self.height, self.width, self.stride)


class Profile(Part):
    """The measured times of operations, for one sample at a time on one thread."""

    format: Literal[1] = FORMAT
    machine: Machine
    made: str = Field(max_length=40)  # when, by ISO 8601
    entries: tuple[Entry, ...] = Field(strict=False, min_length=1)

    @cached_property
    def times(self) -> Mapping[Piece, float]:
        return {entry.piece: entry.ms for entry in self.entries}

    def latency_ms(self, pieces: Mapping[Piece, int], name: str = "the profile") -> float:
        """The sum over a network's pieces. A piece that was not measured is an error."""
        missing = sorted(piece for piece in pieces if piece not in self.times)
        if missing:
            problem = f"it has no {missing[0]}"
            if len(missing) > 1:
                problem += f" and {len(missing) - 1} more"
            measure = "measure them into it with `fedloom profile --run RUN --name NAME`"
            advice = f"{measure}, or name the same size by flags"
            raise FedloomError(f"{name} must have every operation of the network", problem, advice)
        return sum(count * self.times[piece] for piece, count in pieces.items())

    def to_json(self) -> Json:
        return self.model_dump(mode="json")


def read_profile(path: Path) -> Profile:
    """Read a profile from JSON of a closed schema. Anything else is a FedloomError."""
    try:
        profile = Profile.model_validate(read_json(path))
    except Unreadable as error:
        raise not_a_profile(path, str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise not_a_profile(path, f"{where}: {first['msg']}") from None
    if len(profile.times) != len(profile.entries):
        raise not_a_profile(path, "it has an operation twice")
    return profile


def not_a_profile(path: Path, problem: str) -> FedloomError:
    rule = f"{path} must be a device profile of format {FORMAT}"
    advice = "see `fedloom profile list`, or measure one with `fedloom profile`"
    return FedloomError(rule, problem, advice)


def this_machine(device: str) -> Machine:
    import platform

    processor = processor_name() or platform.processor() or platform.machine()
    if device.startswith("cuda"):
        processor = torch.cuda.get_device_name(device)
    system = f"{platform.system()} {platform.machine()}"
    return Machine(processor=processor, system=system, device=device, torch=torch.__version__)


def processor_name() -> str | None:
    """The name of the processor from a file of Linux; None: there is no such file."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None

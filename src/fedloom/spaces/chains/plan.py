"""The channels and map sizes of every layer of a chain, for one shape of samples; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fedloom.errors import FedloomError
from fedloom.spaces.chains.definition import Definition, Reduction
from fedloom.spaces.chains.files import where

MapSize = tuple[int, int]


@dataclass(frozen=True)
class StagePlan:
    """A stage over maps."""

    ops: tuple[tuple[str, ...], ...]  # the operations of every layer
    reduce: Reduction
    inputs: int  # channels of its layers
    outputs: int  # channels after its reduction
    size: MapSize  # map size of its layers
    after: MapSize  # map size after its reduction


@dataclass(frozen=True)
class MapPlan:
    """A whole chain over maps."""

    channels: int  # of a sample
    stem: MapSize  # map size after the stem
    stages: tuple[StagePlan, ...]

    @property
    def outputs(self) -> int:
        return self.stages[-1].outputs

    @property
    def size(self) -> MapSize:
        return self.stages[-1].after


@lru_cache(maxsize=64)
def map_plan(definition: Definition, shape: tuple[int, ...]) -> MapPlan:
    """Plans a chain over maps, and refuses samples that are too small for its reductions."""
    if len(shape) != 3:
        rule = f"samples for {definition.name} must be maps of channels, rows and columns"
        raise FedloomError(rule, f"their shape is {list(shape)}", "choose another space")
    assert definition.stem is not None
    size = (
        rounded_up(shape[1], definition.stem.stride),
        rounded_up(shape[2], definition.stem.stride),
    )
    stem = size
    inputs = definition.inputs
    stages = []
    for number, stage in enumerate(definition.stage):
        after = reduced(stage.reduce, size)
        if min(after) < 1:
            place = where(definition, ("stage", number, "reduce"))
            problem = f"stage {number + 1} reduces {size[0]}×{size[1]} to {after[0]}×{after[1]}"
            problem += f" for samples of {shape[1]}×{shape[2]}"
            rule = f"{place}: maps must stay at least 1×1"
            raise FedloomError(rule, problem, "use larger samples or fewer reductions")
        stages.append(
            StagePlan(stage.ops, stage.reduce, inputs[number], inputs[number + 1], size, after)
        )
        size = after
    return MapPlan(shape[0], stem, tuple(stages))


def reduced(reduce: Reduction, size: MapSize) -> MapSize:
    """Returns the map size after a reduction.

    One part of `dw+proj` has no padding, so it ignores the last row or column of an odd side.
    """
    if reduce == "none":
        return size
    if reduce == "pool":
        return rounded_up(size[0], 2), rounded_up(size[1], 2)
    return size[0] // 2, size[1] // 2


def rounded_up(length: int, stride: int) -> int:
    return -(-length // stride)


@dataclass(frozen=True)
class SumPlan:
    """A stage over symbols: the sum of its layers."""

    ops: tuple[tuple[str, ...], ...]  # the operations of every layer
    inputs: int  # numbers per symbol that every layer reads
    outputs: int  # numbers per symbol of the sum


@dataclass(frozen=True)
class SequencePlan:
    """A whole chain over symbols."""

    symbols: int  # per window
    embedding: int
    stages: tuple[SumPlan, ...]

    @property
    def hidden(self) -> int:
        return self.stages[-1].outputs


@lru_cache(maxsize=64)
def sequence_plan(definition: Definition, shape: tuple[int, ...]) -> SequencePlan:
    if len(shape) != 1:
        rule = f"samples for {definition.name} must be windows of symbols"
        raise FedloomError(rule, f"their shape is {list(shape)}", "choose another space")
    inputs = definition.inputs
    stages = []
    for number, stage in enumerate(definition.stage):
        stages.append(SumPlan(stage.ops, inputs[number], inputs[number + 1]))
    return SequencePlan(shape[0], inputs[0], tuple(stages))

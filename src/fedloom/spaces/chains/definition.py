"""The definition of a chain: a few lines of TOML, sent to other machines as JSON without code.

Over maps, a stem is followed by stages. A stage has some layers, for each of which one operation is
chosen, and a reduction. Over symbols, a stage is the sum of its layers, which all read the same
sequence: the first stage reads the embedding, every other stage reads the one before it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from math import ceil
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedloom.errors import FedloomError, shortened
from fedloom.reading import Unreadable, bounded, parse_json
from fedloom.spaces.chains.faults import Fault, Place, of_validation
from fedloom.spaces.chains.grammar import (
    IDENTITY,
    SEQUENCE_OPS,
    ZERO,
    map_op,
    map_op_names,
    parse_map_op,
    why_not,
)

MOST_STAGES = 32
MOST_LAYERS = 64  # per stage
MOST_CHANNELS = 4096
# How many channels more than wanted a resized chain may have, so that its operations fit.
MOST_STEP = 64
NAME = r"[a-z0-9][a-z0-9-]*"
Kind = Literal["image", "speech", "text"]
Reduction = Literal["dw+proj", "pool", "none"]
STEM_OPS = ("conv3", "conv5", "conv7")  # a strided 1×1 convolution is unsafe: nets/strided.py


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Stem(Part):
    """The first convolution, which is not a slot."""

    op: str = "conv3"
    channels: int = Field(ge=1, le=MOST_CHANNELS, strict=True)
    stride: int = Field(1, ge=1, le=2, strict=True)

    @property
    def kernel(self) -> int:
        return map_op(self.op).kernel


class Stage(Part):
    """Layers that follow one another or are summed, and the reduction after them."""

    layers: int = Field(ge=1, le=MOST_LAYERS, strict=True)
    ops: tuple[tuple[str, ...], ...]  # the operations of every layer
    reduce: Reduction = "none"
    scale: float = Field(1.0, gt=0, le=8)

    @field_validator("ops", mode="before")
    @classmethod
    def _of_every_layer(cls, value: Any, info: Any) -> Any:
        """A single list of operations applies to all layers."""
        is_list = isinstance(value, list | tuple)
        if is_list and value and all(isinstance(name, str) for name in value):
            return (tuple(value),) * info.data.get("layers", 1)
        return value

    def plain(self) -> dict[str, Any]:
        ops: list[Any] = [list(names) for names in self.ops]
        if len(set(self.ops)) == 1:
            ops = ops[0]
        stage: dict[str, Any] = {"layers": self.layers, "ops": ops}
        if self.reduce != "none":
            stage["reduce"] = self.reduce
        if self.scale != 1:
            stage["scale"] = self.scale
        return stage


class Definition(Part):
    """Everything that determines a chain."""

    name: str = Field(pattern=f"^{NAME}$", max_length=40)
    kind: Kind
    stem: Stem | None = None
    stage: tuple[Stage, ...] = Field((), max_length=MOST_STAGES)
    embedding: int | None = Field(None, ge=1, le=MOST_CHANNELS, strict=True)
    hidden: int | None = Field(None, ge=1, le=MOST_CHANNELS, strict=True)

    @property
    def is_text(self) -> bool:
        return self.kind == "text"

    @property
    def layers(self) -> int:
        return sum(stage.layers for stage in self.stage)

    @property
    def channels(self) -> int:
        """The channels of the stem, or the length of every vector after the embedding."""
        if self.stem is not None:
            return self.stem.channels
        assert self.hidden is not None
        return self.hidden

    @property
    def inputs(self) -> list[int]:
        """The input channels of every stage, and the output channels of the last."""
        if self.is_text:
            assert self.embedding is not None and self.hidden is not None
            return [self.embedding, *[self.hidden] * len(self.stage)]
        channels = [self.channels]
        for stage in self.stage:
            channels.append(int(channels[-1] * stage.scale))
        return channels

    def to_json(self) -> str:
        """Returns the same text for the same space, however its file is written."""
        return json.dumps(self.plain(), separators=(",", ":"))

    def plain(self) -> dict[str, Any]:
        definition: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.stem is not None:
            definition["stem"] = self.stem.model_dump()
        if self.is_text:
            definition["embedding"] = self.embedding
            definition["hidden"] = self.hidden
        definition["stage"] = [stage.plain() for stage in self.stage]
        return definition


def from_json(text: str) -> Definition:
    """Reads a definition from a space's name, which may come from a message."""
    where = "the definition of a space"
    try:
        return checked(bounded(parse_json(text)))
    except Unreadable as error:
        advice = "name the space by its TOML file"
        raise FedloomError(f"{where} must be JSON", str(error), advice) from None
    except Fault as fault:
        raise fault.at(where) from None


def checked(raw: Any) -> Definition:
    """Returns a consistent definition, or raises a `Fault` that names the faulty place."""
    if not isinstance(raw, dict):
        rule = "a space must be defined by keys and values"
        raise Fault((), rule, f"got {shortened(repr(raw), 80)}", "see docs/spaces.md")
    check_keys(raw)
    try:
        definition = Definition.model_validate(raw)
    except ValidationError as error:
        raise of_validation(error) from None
    if not definition.stage:
        advice = "add a [[stage]] with `layers` and `ops`"
        raise Fault(("stage",), "a space must have a stage", "it has none", advice)
    for number, stage in enumerate(definition.stage):
        check_stage(definition, number, stage)
    check_channels(definition)
    return definition


@lru_cache(maxsize=64)
def of_path(definition: Definition, ops: tuple[str, ...], width: float) -> Definition | None:
    """Returns a chain with only these operations, one per layer, and `width` times the channels.

    Over maps, the stem gets the nearest number of channels that fits every operation; if two are
    equally near, the smaller one. None: no number fits.
    """
    names = iter(ops)
    raw = definition.plain()
    for stage in raw["stage"]:
        stage["ops"] = [[next(names)] for _ in range(stage["layers"])]
    if definition.is_text:
        for key in ("embedding", "hidden"):
            raw[key] = times(raw[key], width)
        return checked(raw)
    target = definition.channels * width
    for channels in nearest_first(target):
        raw["stem"]["channels"] = channels
        with suppress(Fault):
            return checked(raw)
    return None


def times(channels: int, width: float) -> int:
    """Returns `width` times the channels, at least one and at most `MOST_CHANNELS`."""
    return min(MOST_CHANNELS, max(1, round(channels * width)))


def nearest_first(target: float) -> list[int]:
    """Returns allowed numbers of channels, in the order of their distance to this one."""
    most = min(MOST_CHANNELS, 2 * ceil(target) + MOST_STEP)
    return sorted(range(1, most + 1), key=lambda channels: (abs(channels - target), channels))


def check_keys(raw: dict[str, Any]) -> None:
    """Refuses unknown keys, with their nearest match, and missing keys."""
    is_text = raw.get("kind") == "text"
    check_names((), raw, keys_of(is_text))
    for number, stage in enumerate(stages_in(raw)):
        if isinstance(stage, dict):
            names = ["layers", "ops"]
            if not is_text:
                names += ["reduce", "scale"]
            check_names(("stage", number), stage, names)
    if isinstance(raw.get("stem"), dict):
        check_names(("stem",), raw["stem"], list(Stem.model_fields))
    for name in keys_of(is_text):
        if name not in raw and name != "stage":
            rule = f"a space for {raw.get('kind', 'any data')} must have `{name}`"
            raise Fault((name,), rule, "it has none", "see the examples in docs/spaces.md")


def keys_of(is_text: bool) -> list[str]:
    if is_text:
        return ["name", "kind", "embedding", "hidden", "stage"]
    return ["name", "kind", "stem", "stage"]


def stages_in(raw: dict[str, Any]) -> list[Any]:
    stages = raw.get("stage")
    if isinstance(stages, list):
        return stages
    return []


def check_names(place: Place, table: dict[str, Any], names: list[str]) -> None:
    for name in table:
        if name not in names:
            raise Fault.unknown((*place, name), "a key of a space", name, names)


def check_stage(definition: Definition, number: int, stage: Stage) -> None:
    place: Place = ("stage", number, "ops")
    if len(stage.ops) != stage.layers:
        rule = f"stage {number + 1} must have a list of operations for each of its layers"
        problem = f"it has {len(stage.ops)} for {stage.layers}"
        raise Fault(place, rule, problem, "give one list for all layers, or one per layer")
    for names in stage.ops:
        if not names or len(set(names)) != len(names):
            rule = f"a layer of stage {number + 1} must have operations, each once"
            raise Fault(place, rule, f"got {shortened(repr(list(names)), 80)}", "fix the list")
        for name in names:
            check_op(definition, place, name)
    if definition.is_text:
        check_sum(definition, number, stage)
    elif stage.reduce == "none" and stage.scale != 1:
        rule = f"stage {number + 1} must reduce to change its channels"
        found = f"it has scale {stage.scale:g} and no reduction"
        advice = 'set reduce = "dw+proj" or "pool", or leave scale out'
        raise Fault(("stage", number, "scale"), rule, found, advice)


def check_op(definition: Definition, place: Place, name: str) -> None:
    if definition.is_text and name not in SEQUENCE_OPS:
        raise Fault.unknown(place, "an operation over symbols", name, SEQUENCE_OPS)
    if not definition.is_text and parse_map_op(name) is None:
        raise Fault.unknown(place, "an operation over maps", name, map_op_names())


def check_sum(definition: Definition, number: int, stage: Stage) -> None:
    """The layers of a stage over symbols are summed: the sum must never be empty."""
    place: Place = ("stage", number, "ops")
    if all(ZERO in names for names in stage.ops):
        rule = f"a layer of stage {number + 1} must be without {ZERO}"
        advice = "leave it out of one layer: otherwise the sum may be empty"
        raise Fault(place, rule, "all have it", advice)
    inputs, outputs = definition.inputs[number : number + 2]
    if inputs != outputs and any(IDENTITY in names for names in stage.ops):
        rule = f"stage {number + 1} must keep its {inputs} numbers per symbol to have {IDENTITY}"
        problem = f"it changes them to {outputs}"
        raise Fault(place, rule, problem, f"leave {IDENTITY} out of it")


def check_channels(definition: Definition) -> None:
    """Refuses operations that cannot be built for the channels of their stage."""
    if definition.stem is None:
        return
    if definition.stem.op not in STEM_OPS:
        raise Fault.unknown(("stem", "op"), "the stem's op", definition.stem.op, STEM_OPS)
    inputs = definition.inputs
    for number, stage in enumerate(definition.stage):
        after = inputs[number + 1]
        if not 1 <= after <= MOST_CHANNELS:
            rule = f"stage {number + 1} must have 1 to {MOST_CHANNELS} output channels"
            problem = f"it changes {inputs[number]} to {after}"
            raise Fault(("stage", number, "scale"), rule, problem, "choose another scale")
        for names in stage.ops:
            for name in names:
                reason = why_not(map_op(name), inputs[number])
                if reason is not None:
                    rule = f"the channels of stage {number + 1} must suit its operation {name}"
                    advice = "choose other channels for the stem, another scale or other operations"
                    raise Fault(("stage", number, "ops"), rule, reason, advice)

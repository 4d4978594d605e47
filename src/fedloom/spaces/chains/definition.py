"""A chain as a few lines of TOML define it, and as it travels: JSON without a line of Python.

Over maps a stem is followed by stages. A stage is some layers, one operation of each of which is
chosen, and a reduction. Over symbols a stage is the sum of its layers, which all read the same
sequence: the first stage reads the embedding, every other one the stage before it.
"""

from __future__ import annotations

import json
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
MOST_LAYERS = 64  # of a stage
MOST_CHANNELS = 4096
NAME = r"[a-z0-9][a-z0-9-]*"
Kind = Literal["image", "speech", "text"]
Reduction = Literal["dw+proj", "pool", "none"]
STEM_OPS = ("conv3", "conv5", "conv7")  # a strided 1×1 convolution is unsafe: nets/strided.py


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Stem(Part):
    """The first convolution, which is no choice."""

    op: str = "conv3"
    channels: int = Field(ge=1, le=MOST_CHANNELS, strict=True)
    stride: int = Field(1, ge=1, le=2, strict=True)

    @property
    def kernel(self) -> int:
        return map_op(self.op).kernel


class Stage(Part):
    """Layers that follow one another, or are summed; and what follows them."""

    layers: int = Field(ge=1, le=MOST_LAYERS, strict=True)
    ops: tuple[tuple[str, ...], ...]  # of every layer
    reduce: Reduction = "none"
    scale: float = Field(1.0, gt=0, le=8)

    @field_validator("ops", mode="before")
    @classmethod
    def _of_every_layer(cls, value: Any, info: Any) -> Any:
        """One list stands for all layers."""
        is_list = isinstance(value, list | tuple)
        if is_list and value and all(isinstance(name, str) for name in value):
            return (tuple(value),) * info.data.get("layers", 1)
        return value

    def plain(self) -> dict[str, Any]:
        ops: list[Any] = [list(names) for names in self.ops]
        if len(set(self.ops)) == 1:
            ops = ops[0]
        described: dict[str, Any] = {"layers": self.layers, "ops": ops}
        if self.reduce != "none":
            described["reduce"] = self.reduce
        if self.scale != 1:
            described["scale"] = self.scale
        return described


class Definition(Part):
    """All that a chain follows from."""

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
        """Of the stem, or of every vector behind the embedding."""
        if self.stem is not None:
            return self.stem.channels
        assert self.hidden is not None
        return self.hidden

    @property
    def inputs(self) -> list[int]:
        """The channels that go into every stage, and those that leave the last."""
        if self.is_text:
            assert self.embedding is not None and self.hidden is not None
            return [self.embedding, *[self.hidden] * len(self.stage)]
        channels = [self.channels]
        for stage in self.stage:
            channels.append(int(channels[-1] * stage.scale))
        return channels

    def to_json(self) -> str:
        """The same for the same space, however its file is written."""
        described: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.stem is not None:
            described["stem"] = self.stem.model_dump()
        if self.is_text:
            described["embedding"] = self.embedding
            described["hidden"] = self.hidden
        described["stage"] = [stage.plain() for stage in self.stage]
        return json.dumps(described, separators=(",", ":"))


def from_json(text: str) -> Definition:
    """A definition out of a space's name, which may come in a message."""
    where = "the definition of a space"
    try:
        return checked(bounded(parse_json(text)))
    except Unreadable as error:
        advice = "name the space by its TOML file"
        raise FedloomError(f"{where} must be JSON", str(error), advice) from None
    except Fault as fault:
        raise fault.at(where) from None


def checked(raw: Any) -> Definition:
    """A definition that connects, or a `Fault` that names the place."""
    if not isinstance(raw, dict):
        rule = "a space must be defined by names and values"
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


def check_keys(raw: dict[str, Any]) -> None:
    """Those that a space of this kind has, each by its nearest match."""
    text = raw.get("kind") == "text"
    check_names((), raw, keys_of(text))
    for number, stage in enumerate(stages_in(raw)):
        if isinstance(stage, dict):
            names = ["layers", "ops"]
            if not text:
                names += ["reduce", "scale"]
            check_names(("stage", number), stage, names)
    if isinstance(raw.get("stem"), dict):
        check_names(("stem",), raw["stem"], list(Stem.model_fields))
    for name in keys_of(text):
        if name not in raw and name != "stage":
            rule = f"a space for {raw.get('kind', 'any data')} must have `{name}`"
            raise Fault((name,), rule, "it has none", "see the examples in docs/spaces.md")


def keys_of(text: bool) -> list[str]:
    if text:
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
        found = f"it has {len(stage.ops)} for {stage.layers}"
        raise Fault(place, rule, found, "give one list for all, or one a layer")
    for names in stage.ops:
        if not names or len(set(names)) != len(names):
            rule = f"a layer of stage {number + 1} must have operations, each once"
            raise Fault(place, rule, f"got {shortened(repr(list(names)), 80)}", "mend the list")
        for name in names:
            check_op(definition, place, name)
    if definition.is_text:
        check_sum(definition, number, stage)
    elif stage.reduce == "none" and stage.scale != 1:
        rule = f"stage {number + 1} must reduce to change its channels"
        found = f"it has scale {stage.scale:g} and no reduction"
        advice = 'say reduce = "dw+proj" or "pool", or leave scale out'
        raise Fault(("stage", number, "scale"), rule, found, advice)


def check_op(definition: Definition, place: Place, name: str) -> None:
    if definition.is_text and name not in SEQUENCE_OPS:
        raise Fault.unknown(place, "an operation over symbols", name, SEQUENCE_OPS)
    if not definition.is_text and parse_map_op(name) is None:
        raise Fault.unknown(place, "an operation over maps", name, map_op_names())


def check_sum(definition: Definition, number: int, stage: Stage) -> None:
    """The layers of a stage over symbols are summed: something must be left of the sum."""
    place: Place = ("stage", number, "ops")
    if all(ZERO in names for names in stage.ops):
        rule = f"a layer of stage {number + 1} must be without {ZERO}"
        advice = "leave it out of one layer: a sum of zeros leads nowhere"
        raise Fault(place, rule, "all have it", advice)
    inputs, outputs = definition.inputs[number : number + 2]
    if inputs != outputs and any(IDENTITY in names for names in stage.ops):
        rule = f"stage {number + 1} must keep its {inputs} numbers a symbol to have {IDENTITY}"
        found = f"it makes {outputs} of them"
        raise Fault(place, rule, found, f"leave {IDENTITY} out of it")


def check_channels(definition: Definition) -> None:
    """Whether every operation can be built for the channels that reach it."""
    if definition.stem is None:
        return
    if definition.stem.op not in STEM_OPS:
        raise Fault.unknown(("stem", "op"), "the stem's op", definition.stem.op, STEM_OPS)
    inputs = definition.inputs
    for number, stage in enumerate(definition.stage):
        after = inputs[number + 1]
        if not 1 <= after <= MOST_CHANNELS:
            rule = f"stage {number + 1} must leave 1 to {MOST_CHANNELS} channels"
            found = f"it makes {after} of {inputs[number]}"
            raise Fault(("stage", number, "scale"), rule, found, "choose another scale")
        for names in stage.ops:
            for name in names:
                reason = why_not(map_op(name), inputs[number])
                if reason is not None:
                    rule = f"the channels of stage {number + 1} must suit its operation {name}"
                    advice = "choose other channels of the stem, another scale or other operations"
                    raise Fault(("stage", number, "ops"), rule, reason, advice)

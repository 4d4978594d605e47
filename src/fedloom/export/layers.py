"""One of torch's layers as the text that makes it again: `nn.Conv2d(16, 32, 3, bias=False)`.

A number in the text stands between marks: layers that differ in numbers alone can be recognised.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.export.tracing import plain_class, unwritable
from fedloom.nets.model import seeded
from fedloom.nets.standing import stands_alone

# Private characters, that no text of ours holds.
OPEN = "\ue000"
CLOSE = "\ue001"
OF = "\ue002"
NUMBER = re.compile(f"{OPEN}([a-z_0-9]*){OF}(-?[0-9]+){CLOSE}")


def marked(value: int, name: str = "") -> str:
    """A number, and what it is called."""
    return f"{OPEN}{name}{OF}{value}{CLOSE}"


def without_marks(text: str) -> str:
    return NUMBER.sub(r"\2", text)


def layer_text(part: nn.Module) -> str:
    """The expression that makes such a layer, with weights drawn anew."""
    if isinstance(part, nn.Sequential):
        return f"nn.Sequential({', '.join(layer_text(inner) for inner in part)})"
    kind: type[nn.Module] | None = type(part)
    module = ""  # where a reader finds its class: in the same file
    if not stands_alone(part):
        kind = plain_class(part)
        module = "nn."
    assert kind is not None  # the tracer stops at nothing else
    settings = arguments(part, kind)
    words = []
    positional = True
    for setting in settings:
        word = written(setting.value, setting.name)
        positional = positional and setting.required
        if not positional:
            word = f"{setting.name}={word}"
        words.append(word)
    check(part, kind, {setting.name: setting.value for setting in settings})
    return f"{module}{kind.__name__}({', '.join(words)})"


@dataclass(frozen=True)
class Argument:
    """One of those that a layer was made with."""

    name: str
    value: Any
    required: bool  # whether the layer cannot be made without it


def arguments(part: nn.Module, kind: type[nn.Module]) -> list[Argument]:
    """What a layer was made with, as far as it is not usual: layers keep it by name."""
    unusual = []
    for name, parameter in signature(kind).items():
        # A normalisation without weights has no bias either; older torch does not know the word.
        if name == "bias" and getattr(part, "affine", None) is False:
            continue
        value = getattr(part, name, None)
        if isinstance(value, torch.Tensor) or name == "bias":
            value = value is not None and value is not False
        if isinstance(value, tuple) and len(value) > 1 and len(set(value)) == 1:
            value = value[0]  # (3, 3) is 3
        required = parameter.default is inspect.Parameter.empty
        if required or (name not in ("device", "dtype") and value != parameter.default):
            unusual.append(Argument(name, value, required))
    return unusual


def signature(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    if issubclass(kind, nn.RNNBase):  # whose signature is (*args, **kwargs)
        return recurrent_signature(kind)
    parameters = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            parameters[name] = parameter
    return parameters


def recurrent_signature(kind: type[nn.RNNBase]) -> dict[str, inspect.Parameter]:
    usual: dict[str, Any] = {
        "input_size": inspect.Parameter.empty,
        "hidden_size": inspect.Parameter.empty,
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
    }
    if kind is nn.LSTM:
        usual["proj_size"] = 0
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = {}
    for name, value in usual.items():
        parameters[name] = inspect.Parameter(name, either, default=value)
    return parameters


def written(value: Any, name: str = "") -> str:
    if type(value) is int:
        return marked(value, name)
    if isinstance(value, tuple) and len(value) == 1:
        return f"({written(value[0], name)},)"
    if isinstance(value, tuple):
        return f"({', '.join(written(item, name) for item in value)})"
    if isinstance(value, list):
        return f"[{', '.join(written(item, name) for item in value)}]"
    if value is None or isinstance(value, bool | float | str):
        return repr(value)
    rule = "a layer's settings must be numbers and words"
    raise FedloomError(rule, f"{name} is a {type(value).__name__}", "use others")


def check(part: nn.Module, kind: type[nn.Module], settings: dict[str, Any]) -> None:
    """A layer that does not keep all that it was made with would come out as another one."""
    try:
        with seeded(0):  # whoever draws next finds the generator as it was
            again = kind(**settings)
        alike = shapes(again) == shapes(part) and again.extra_repr() == part.extra_repr()
    except (TypeError, ValueError, RuntimeError):
        alike = False
    if not alike:
        raise unwritable(part, f"its layer {part} does not tell how it was made")


def shapes(part: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in part.state_dict().items()}

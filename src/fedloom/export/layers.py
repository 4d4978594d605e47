"""Writing one of torch's layers as an expression: `nn.Conv2d(16, 32, 3, bias=False)`.

Numbers in the text are enclosed in marks, so that layers that differ only in numbers can be
recognised.
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
from fedloom.nets.standalone import stands_alone

# Private characters, which none of our texts contains.
OPEN = "\ue000"
CLOSE = "\ue001"
OF = "\ue002"
NUMBER = re.compile(f"{OPEN}([a-z_0-9]*){OF}(-?[0-9]+){CLOSE}")


def marked(value: int, name: str = "") -> str:
    """A number with its name, between marks."""
    return f"{OPEN}{name}{OF}{value}{CLOSE}"


def without_marks(text: str) -> str:
    return NUMBER.sub(r"\2", text)


def layer_text(part: nn.Module) -> str:
    """The expression that creates such a layer, with new random weights."""
    if isinstance(part, nn.Sequential):
        return f"nn.Sequential({', '.join(layer_text(inner) for inner in part)})"
    kind: type[nn.Module] | None = type(part)
    module = ""  # its class is in the same file
    if not stands_alone(part):
        kind = plain_class(part)
        module = "nn."
    assert kind is not None  # the tracer stops at nothing else
    settings = arguments(part, kind)
    texts = []
    positional = True
    for setting in settings:
        text = written(setting.value, setting.name)
        positional = positional and setting.required
        if not positional:
            text = f"{setting.name}={text}"
        texts.append(text)
    check(part, kind, {setting.name: setting.value for setting in settings})
    return f"{module}{kind.__name__}({', '.join(texts)})"


@dataclass(frozen=True)
class Argument:
    """One of the arguments that a layer was created with."""

    name: str
    value: Any
    required: bool  # whether the layer cannot be created without it


def arguments(part: nn.Module, kind: type[nn.Module]) -> list[Argument]:
    """The arguments that a layer was created with, without those that equal their defaults.

    torch's layers keep their arguments as attributes of the same name.
    """
    settings = []
    for name, parameter in signature(kind).items():
        # A normalisation without weights has no bias either; older versions of torch do not have
        # this parameter.
        if name == "bias" and getattr(part, "affine", None) is False:
            continue
        value = getattr(part, name, None)
        if isinstance(value, torch.Tensor) or name == "bias":
            value = value is not None and value is not False
        if isinstance(value, tuple) and len(value) > 1 and len(set(value)) == 1:
            value = value[0]  # (3, 3) is 3
        required = parameter.default is inspect.Parameter.empty
        if required or (name not in ("device", "dtype") and value != parameter.default):
            settings.append(Argument(name, value, required))
    return settings


def signature(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    if issubclass(kind, nn.RNNBase):  # whose signature is (*args, **kwargs)
        return recurrent_signature(kind)
    parameters = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            parameters[name] = parameter
    return parameters


def recurrent_signature(kind: type[nn.RNNBase]) -> dict[str, inspect.Parameter]:
    defaults: dict[str, Any] = {
        "input_size": inspect.Parameter.empty,
        "hidden_size": inspect.Parameter.empty,
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
    }
    if kind is nn.LSTM:
        defaults["proj_size"] = 0
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = {}
    for name, value in defaults.items():
        parameters[name] = inspect.Parameter(name, either, default=value)
    return parameters


def written(value: Any, name: str = "") -> str:
    """The text of an argument, with marks around its whole numbers."""
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
    rule = "a layer's arguments must be numbers or text"
    raise FedloomError(rule, f"{name} is a {type(value).__name__}", "use other arguments")


def check(part: nn.Module, kind: type[nn.Module], settings: dict[str, Any]) -> None:
    """Refuse a layer that these arguments do not create again.

    A layer that does not keep all of its arguments would be written as a different one.
    """
    try:
        with seeded(0):  # leaves the random generator as it was
            again = kind(**settings)
        alike = shapes(again) == shapes(part) and again.extra_repr() == part.extra_repr()
    except (TypeError, ValueError, RuntimeError):
        alike = False
    if not alike:
        raise unwritable(part, f"its layer {part} does not keep the arguments it was created with")


def shapes(part: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in part.state_dict().items()}

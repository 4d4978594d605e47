"""One of torch's layers as the text that makes it again: `nn.Conv2d(16, 32, 3, padding=1, bias=False)`.

A number in the text stands between marks, so that two layers which differ in numbers alone can be told.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.export.tracing import plain_class, unwritable
from fedloom.nets.model import seeded

OPEN, CLOSE, OF = "\ue000", "\ue001", "\ue002"  # private characters, that no text of ours holds
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
    kind = plain_class(part)
    assert kind is not None  # the tracer stops at nothing else
    given, words = arguments(part, kind), []
    positional = True
    for name, (value, required) in given.items():
        positional = positional and required
        words.append(written(value, name) if positional else f"{name}={written(value, name)}")
    check(part, kind, {name: value for name, (value, _) in given.items()})
    return f"nn.{kind.__name__}({', '.join(words)})"


def arguments(part: nn.Module, kind: type[nn.Module]) -> dict[str, tuple[Any, bool]]:
    """What a layer was made with, as far as it is not usual, and whether it must be said: layers keep it by name."""
    found: dict[str, tuple[Any, bool]] = {}
    for name, parameter in signature(kind).items():
        if name == "bias" and getattr(part, "affine", None) is False:
            continue  # a normalisation without weights has none either, and older torch does not know the word
        value = getattr(part, name, None)
        if isinstance(value, torch.Tensor) or name == "bias":
            value = value is not None and value is not False
        if isinstance(value, tuple) and len(value) > 1 and len(set(value)) == 1:
            value = value[0]  # (3, 3) is 3
        required = parameter.default is inspect.Parameter.empty
        if required or (name not in ("device", "dtype") and value != parameter.default):
            found[name] = (value, required)
    return found


def signature(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(kind).parameters
    parameters = {name: parameter for name, parameter in found.items() if parameter.kind not in several}
    if issubclass(kind, nn.RNNBase):  # whose signature is (*args, **kwargs)
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        sort = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = {name: inspect.Parameter(name, sort) for name in ("input_size", "hidden_size")}
        parameters |= {name: inspect.Parameter(name, sort, default=value) for name, value in usual.items()}
        parameters |= {"proj_size": inspect.Parameter("proj_size", sort, default=0)} if kind is nn.LSTM else {}
    return parameters


def written(value: Any, name: str = "") -> str:
    if type(value) is int:
        return marked(value, name)
    if isinstance(value, tuple | list):
        inner = ", ".join(written(item, name) for item in value)
        return f"({inner}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inner}]"
    if value is None or isinstance(value, bool | float | str):
        return repr(value)
    raise FedloomError(
        "a layer's settings must be numbers and words", f"{name} is a {type(value).__name__}", "use others"
    )


def check(part: nn.Module, kind: type[nn.Module], given: dict[str, Any]) -> None:
    """A layer that does not keep all that it was made with would come out as another one."""
    try:
        with seeded(0):  # whoever draws next finds the generator as it was
            again = kind(**given)
        alike = shapes(again) == shapes(part) and again.extra_repr() == part.extra_repr()
    except (TypeError, ValueError, RuntimeError):
        alike = False
    if not alike:
        raise unwritable(part, f"its layer {part} does not tell how it was made")


def shapes(part: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in part.state_dict().items()}

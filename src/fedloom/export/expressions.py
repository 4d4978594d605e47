"""Writing the steps of a graph as lines of Python: names, calls and operators."""

from __future__ import annotations

import inspect
import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from fedloom.errors import FedloomError

LONGEST = 110  # characters of a line
INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}


@dataclass(frozen=True)
class InPlace:
    """An operator that changes its left operand."""

    sign: str  # of the operator that computes a new value instead
    method: str  # the tensor method that does the same in place


IN_PLACE: Mapping[Any, InPlace] = {
    operator.iadd: InPlace("+", "add_"),
    operator.isub: InPlace("-", "sub_"),
    operator.imul: InPlace("*", "mul_"),
    operator.itruediv: InPlace("/", "div_"),
}
MODULES: Mapping[str, Any] = {"torch": torch, "functional": functional}


class Names:
    """Hands out unique Python identifiers."""

    def __init__(self, taken: Sequence[str] = (), before_number: str = "_") -> None:
        self.taken = set(taken)
        self.before_number = before_number

    def new(self, suggestion: str) -> str:
        """A name like the suggested one that has not been handed out yet."""
        base = re.sub(r"\W+", "_", suggestion, flags=re.ASCII).strip("_") or "value"
        if base[0].isdecimal() or keyword.iskeyword(base):
            base = f"_{base}"
        name = base
        number = 2
        while name in self.taken:
            name = f"{base}{self.before_number}{number}"
            number += 1
        self.taken.add(name)
        return name


class Writer:
    """Writes the lines of one function.

    `outside` has the names of values that are computed outside the function. `layer` returns the
    attribute that holds the layer or tensor that a node uses, without `self`.
    """

    def __init__(self, outside: Mapping[fx.Node, str], layer: Callable[[fx.Node], str]) -> None:
        self.texts: dict[fx.Node, str] = dict(outside)
        self.layer = layer
        self.names = Names(["self", "torch", "functional", "nn", *outside.values()])
        self.lines: list[str] = []

    def write(self, nodes: Sequence[fx.Node], needed_later: Sequence[fx.Node]) -> None:
        """Write all steps. A short one that only the next step uses is written inside that step.

        The values of `needed_later` get a name in any case.
        """
        steps = [node for node in nodes if node.op != "get_attr"]
        for node in nodes:
            if node.op == "get_attr":
                self.texts[node] = f"self.{self.layer(node)}"
        for node, after in zip(steps, [*steps[1:], None], strict=True):
            text = self.expression(node)
            is_short = len(text) < LONGEST // 2
            if is_short and node not in needed_later and is_only_for(node, after):
                self.texts[node] = text
            else:
                self.assign(node, text)

    def assign(self, node: fx.Node, text: str) -> None:
        suggestion = name_of(node)
        if node.op == "call_module":
            suggestion = self.layer(node)
        name = self.names.new(suggestion)
        self.texts[node] = name
        self.lines.append(f"{name} = {text}")

    def expression(self, node: fx.Node) -> str:
        positional = [self.value(argument) for argument in node.args]
        named = []
        for name, argument in node.kwargs.items():
            if not is_default(node.target, name, argument):
                named.append(f"{name}={self.value(argument)}")
        if node.op == "call_module":
            return f"self.{self.layer(node)}({', '.join([*positional, *named])})"
        if node.op == "call_method":
            arguments = ", ".join([*positional[1:], *named])
            return f"{self.atom(node.args[0])}.{node.target}({arguments})"
        return self.function(node, positional, named)

    def function(self, node: fx.Node, positional: list[str], named: list[str]) -> str:
        target: Any = node.target
        if target is getattr:
            return f"{self.atom(node.args[0])}.{node.args[1]}"
        if target is operator.getitem:
            return f"{self.atom(node.args[0])}[{self.index(node.args[1])}]"
        if target is operator.neg:
            return f"-{self.atom(node.args[0])}"
        sign = INFIX.get(target)
        if target in IN_PLACE:
            in_place = IN_PLACE[target]
            if not is_fresh(node.args[0]):
                return f"{self.atom(node.args[0])}.{in_place.method}({positional[1]})"
            sign = in_place.sign
        if sign is not None:
            return f"{self.atom(node.args[0])} {sign} {self.atom(node.args[1])}"
        return f"{public_name(target)}({', '.join([*positional, *named])})"

    def atom(self, value: Any) -> str:
        """The text of a value, in brackets if an operator or a dot next to it would change it."""
        text = self.value(value)
        if re.fullmatch(r"[\w.]+(\(.*\)|\[.*\])?", text) and balanced(text):
            return text
        return f"({text})"

    def index(self, value: Any) -> str:
        """The text between the brackets of `x[…]`."""
        if isinstance(value, tuple) and len(value) == 1:
            return f"{self.index(value[0])},"
        if isinstance(value, tuple) and value:
            return ", ".join(self.index(part) for part in value)
        if isinstance(value, slice):
            text = f"{self.bound(value.start)}:{self.bound(value.stop)}"
            if value.step is not None:
                text += f":{self.value(value.step)}"
            return text
        return self.value(value)

    def bound(self, value: Any) -> str:
        if value is None:
            return ""
        return self.value(value)

    def value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.texts[value]
        if isinstance(value, tuple) and len(value) == 1:
            return f"({self.value(value[0])},)"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if value is Ellipsis:
            return "..."
        if isinstance(value, slice):
            parts = [self.value(part) for part in (value.start, value.stop, value.step)]
            return f"slice({', '.join(parts)})"
        if isinstance(value, torch.dtype | torch.memory_format):
            return str(value)
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        rule = "a network's steps must have plain arguments"
        raise FedloomError(rule, f"one has a {type(value).__name__}", "write it with layers")


def is_only_for(node: fx.Node, after: fx.Node | None) -> bool:
    """Whether a value is used by the step `after` only, and only once."""
    if after is None or list(node.users) != [after]:
        return False
    return list(after.all_input_nodes).count(node) == 1


def balanced(text: str) -> bool:
    """Whether the last character closes the first bracket: `f(a)`, not `f(a) + g(b)`."""
    depth = 0
    for place, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth == 0:
                return place == len(text) - 1
    return depth == 0


def is_fresh(value: Any) -> bool:
    """Whether a value is a sum with no other use.

    Then it makes no difference whether a number is added to it in place.
    """
    if not isinstance(value, fx.Node):
        return False
    return value.target in (operator.add, operator.iadd) and len(value.users) == 1


def is_default(target: Any, name: str, value: Any) -> bool:
    """Whether this is the default value of the function's parameter."""
    try:
        own_name = getattr(target, "__name__", "")
        # For poolings the signature is that of a private function of the same name.
        function = getattr(functional, f"_{own_name}", target)
        default = inspect.signature(function).parameters[name].default
    except (TypeError, ValueError, KeyError):  # the name of a method, or a function without one
        return False
    return type(default) is type(value) and default == value


def name_of(node: fx.Node) -> str:
    """A name for the value of a step."""
    target: Any = node.target
    if isinstance(target, str):
        return target
    return str(getattr(target, "__name__", "value")).strip("_")


def public_name(target: Any) -> str:
    """The public name of one of torch's functions, such as `functional.relu`."""
    own_name = getattr(target, "__name__", "")
    for module_name, module in MODULES.items():
        if getattr(module, own_name, None) is target:
            return f"{module_name}.{own_name}"
    for module_name, module in MODULES.items():
        for name in dir(module):
            if not name.startswith("_") and getattr(module, name, None) is target:
                return f"{module_name}.{name}"
    raise FedloomError(
        "a network must be made of torch's own functions",
        f"it calls {target!r}",
        "write it with torch's functions",
    )

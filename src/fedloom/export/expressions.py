"""The steps of a graph as lines of Python: names, calls, operators."""

from __future__ import annotations

import inspect
import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from fedloom.errors import FedloomError

LONGEST = 110  # characters of a line
INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.eq: "==", operator.ne: "!=",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
IN_PLACE: Mapping[Any, tuple[str, str]] = {
    operator.iadd: ("+", "add_"), operator.isub: ("-", "sub_"), operator.imul: ("*", "mul_"),
    operator.itruediv: ("/", "div_"),
}  # fmt: skip
KNOWN: Mapping[str, Any] = {"torch": torch, "functional": functional}


class Names:
    """Words that can be used in Python, each once."""

    def __init__(self, taken: Sequence[str] = (), before_number: str = "_") -> None:
        self.taken, self.before_number = set(taken), before_number

    def new(self, wanted: str) -> str:
        word = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or "value"
        word = f"_{word}" if word[0].isdecimal() or keyword.iskeyword(word) else word
        number, name = 2, word
        while name in self.taken:
            name, number = f"{word}{self.before_number}{number}", number + 1
        self.taken.add(name)
        return name


class Writer:
    """Lines of one function. `known` says what values are called that were made outside it.

    `layer` gives the attribute that holds what a node uses, without `self`.
    """

    def __init__(self, known: Mapping[fx.Node, str], layer: Callable[[fx.Node], str]) -> None:
        self.texts: dict[fx.Node, str] = dict(known)
        self.layer, self.names = layer, Names(["self", "torch", "functional", "nn", *known.values()])
        self.lines: list[str] = []

    def write(self, nodes: Sequence[fx.Node], kept: Sequence[fx.Node]) -> None:
        """Every step; one whose value only the next step needs is written inside that."""
        steps = [node for node in nodes if node.op != "get_attr"]
        for node in nodes:
            if node.op == "get_attr":
                self.texts[node] = f"self.{self.layer(node)}"
        for node, after in zip(steps, [*steps[1:], None], strict=True):
            text = self.expression(node)
            inside = after is not None and list(node.users) == [after] and node not in kept and len(text) < LONGEST // 2
            if inside and after is not None and list(after.all_input_nodes).count(node) == 1:
                self.texts[node] = text
            else:
                self.assign(node, text)

    def assign(self, node: fx.Node, text: str) -> None:
        self.texts[node] = self.names.new(self.layer(node) if node.op == "call_module" else word_of(node))
        self.lines.append(f"{self.texts[node]} = {text}")

    def expression(self, node: fx.Node) -> str:
        words = [self.value(argument) for argument in node.args]
        unusual = {name: value for name, value in node.kwargs.items() if not is_usual(node.target, name, value)}
        pairs = [f"{name}={self.value(argument)}" for name, argument in unusual.items()]
        if node.op == "call_module":
            return f"self.{self.layer(node)}({', '.join([*words, *pairs])})"
        if node.op == "call_method":
            return f"{self.atom(node.args[0])}.{node.target}({', '.join([*words[1:], *pairs])})"
        return self.function(node, words, pairs)

    def function(self, node: fx.Node, words: list[str], pairs: list[str]) -> str:
        target: Any = node.target
        if target is getattr:
            return f"{self.atom(node.args[0])}.{node.args[1]}"
        if target is operator.getitem:
            return f"{self.atom(node.args[0])}[{self.index(node.args[1])}]"
        if target is operator.neg:
            return f"-{self.atom(node.args[0])}"
        sign = INFIX.get(target)
        if target in IN_PLACE:
            sign, method = IN_PLACE[target]
            if not is_fresh(node.args[0]):
                return f"{self.atom(node.args[0])}.{method}({words[1]})"
        if sign is not None:
            return f"{self.atom(node.args[0])} {sign} {self.atom(node.args[1])}"
        return f"{known_as(target)}({', '.join([*words, *pairs])})"

    def atom(self, value: Any) -> str:
        """In brackets, if an operator or a dot beside it could be misread."""
        text = self.value(value)
        return text if re.fullmatch(r"[\w.]+(\(.*\)|\[.*\])?", text) and balanced(text) else f"({text})"

    def index(self, value: Any) -> str:
        if isinstance(value, tuple) and value:
            return ", ".join(self.index(part) for part in value) + ("," if len(value) == 1 else "")
        if isinstance(value, slice):
            parts = ["" if part is None else self.value(part) for part in (value.start, value.stop)]
            return ":".join(parts if value.step is None else [*parts, self.value(value.step)])
        return self.value(value)

    def value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.texts[value]
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if value is Ellipsis:
            return "..."
        if isinstance(value, slice):
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if isinstance(value, torch.dtype | torch.memory_format):
            return str(value)
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        raise FedloomError(
            "a network's steps must have plain arguments", f"one has a {type(value).__name__}", "write it with layers"
        )


def balanced(text: str) -> bool:
    """Whether the first bracket that opens is closed by the last character: `f(a)`, not `f(a) + g(b)`."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in ")]":
            return place == len(text) - 1
    return depth == 0


def is_fresh(value: Any) -> bool:
    """A sum that nobody else looks at: to add to it in place, or to make a new one, is the same."""
    return isinstance(value, fx.Node) and value.target in (operator.add, operator.iadd) and len(value.users) == 1


def is_usual(target: Any, name: str, value: Any) -> bool:
    """Whether a function would take this value anyway."""
    try:
        told = getattr(functional, f"_{getattr(target, '__name__', '')}", target)  # what a pooling is a mere name for
        usual = inspect.signature(told).parameters[name].default
    except (TypeError, ValueError, KeyError):  # a name of a method, or one of torch's own functions
        return False
    return type(usual) is type(value) and usual == value


def word_of(node: fx.Node) -> str:
    target: Any = node.target
    return target if isinstance(target, str) else str(getattr(target, "__name__", "value")).strip("_")


def known_as(target: Any) -> str:
    """What a function of torch's is called by everybody."""
    for module, place in KNOWN.items():
        name = getattr(target, "__name__", "")
        if getattr(place, name, None) is target:
            return f"{module}.{name}"
    for module, place in KNOWN.items():
        for name in dir(place):
            if not name.startswith("_") and getattr(place, name, None) is target:
                return f"{module}.{name}"
    raise FedloomError(
        "a network must be made of torch's own functions", f"it calls {target!r}", "write it with functions of torch's"
    )

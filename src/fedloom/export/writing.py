"""A traced network as a file of plain torch: a class a block, one for the whole, and its weights.

Blocks that differ in numbers alone, as the cells of a network do in their channels, become one
class, and the numbers that differ become its parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import fx, nn

from fedloom.export.blocks import TOP, Block, blocks, local
from fedloom.export.expressions import Names, Writer
from fedloom.export.folding import folded
from fedloom.export.layers import NUMBER, layer_text, marked, without_marks
from fedloom.nets.standing import stands_alone

ROW = 80  # characters of a row of layers, from which on each has a line of its own
INPUTS = ("x", "y", "z", "u", "v", "w")


@dataclass(frozen=True)
class Program:
    classes: str  # Python
    weights: Mapping[str, torch.Tensor]


def program(traced: fx.GraphModule) -> Program:
    """The classes of a traced network, and the weights under the names that these give them."""
    in_order = blocks(folded(traced).graph)
    copied = standing_alone(traced)
    parts = {block.name: inner(traced, block) for block in in_order if block.name != TOP}
    classes = shared_classes(parts, [kind.__name__ for kind in copied])
    calls = {name: classes[part.shape].call(part) for name, part in parts.items()}
    whole = outer(traced, in_order, parts, calls)
    texts = [inspect.getsource(kind).strip() for kind in copied]
    texts += [shared.text() for shared in classes.values()]
    texts.append(SharedClass("Network", [whole]).text())
    return Program("\n\n\n".join(texts), whole.weights)


def standing_alone(traced: fx.GraphModule) -> list[type[nn.Module]]:
    """The classes whose source is copied, each once."""
    kinds: dict[type[nn.Module], None] = {}
    for node in traced.graph.nodes:
        if node.op != "call_module":
            continue
        for layer in traced.get_submodule(str(node.target)).modules():
            if stands_alone(layer):
                kinds[type(layer)] = None
    return list(kinds)


# The parts of a network


@dataclass(frozen=True)
class Number:
    """A number in the text of a layer."""

    name: str  # what torch calls it; may be empty
    value: str


@dataclass
class Part:
    """One class on its way: a block, or the whole network."""

    layers: list[str] = field(default_factory=list)  # lines that make its layers, numbers marked
    lines: list[str] = field(default_factory=list)  # of its forward
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)  # by what the graph calls them

    @property
    def shape(self) -> str:
        """All but its numbers."""
        layers = [NUMBER.sub(r"#\1", line) for line in self.layers]
        return "\n".join([*layers, *self.inputs, *self.lines, *self.outputs])

    @property
    def numbers(self) -> list[Number]:
        numbers = []
        for line in self.layers:
            for match in NUMBER.finditer(line):
                numbers.append(Number(match[1], match[2]))
        return numbers


def inner(traced: fx.GraphModule, block: Block) -> Part:
    """A block as a class of its own."""
    part = Part(inputs=input_names(len(block.inputs)))
    attributes = Names()

    def layer(node: fx.Node) -> str:
        return own(part, attributes, traced, node, block.name)

    writer = Writer(dict(zip(block.inputs, part.inputs, strict=True)), layer)
    writer.write(block.nodes, block.outputs)
    part.lines = writer.lines
    part.outputs = [writer.texts[node] for node in block.outputs]
    return part


def input_names(number: int) -> list[str]:
    names = Names()
    wanted = list(INPUTS[:number])
    while len(wanted) < number:
        wanted.append("x")
    return [names.new(name) for name in wanted]


def outer(
    traced: fx.GraphModule,
    in_order: Sequence[Block],
    parts: Mapping[str, Part],
    calls: Mapping[str, str],
) -> Part:
    """The network itself: its own layers, and its blocks one after the other.

    `calls` says how an object of each block's class is made.
    """
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    assert isinstance(result, fx.Node)
    whole = Part(inputs=[node.name for node in placeholders])
    attributes = Names()

    def layer(node: fx.Node) -> str:
        return own(whole, attributes, traced, node, TOP)

    writer = Writer(dict(zip(placeholders, whole.inputs, strict=True)), layer)
    for block in in_order:
        if block.name == TOP:
            writer.write(block.nodes, [*block.outputs, result])
            continue
        attribute = attributes.new(block.name)
        whole.layers.append(f"self.{attribute} = {calls[block.name]}")
        for name, tensor in parts[block.name].weights.items():
            whole.weights[f"{attribute}.{name}"] = tensor
        write_call(writer, block, attribute)
    whole.lines = writer.lines
    whole.outputs = [writer.texts[result]]
    return whole


def write_call(writer: Writer, block: Block, attribute: str) -> None:
    """The line of the network's forward that goes through a block."""
    results = []
    for number, node in enumerate(block.outputs):
        wanted = block.name
        if number > 0:
            wanted = f"{block.name}_{number}"
        name = writer.names.new(wanted)
        writer.texts[node] = name
        results.append(name)
    arguments = ", ".join(writer.texts[node] for node in block.inputs)
    writer.lines.append(f"{', '.join(results)} = self.{attribute}({arguments})")


def own(part: Part, names: Names, traced: fx.GraphModule, node: fx.Node, block: str) -> str:
    """The attribute that holds what a node uses; made when it is first met."""
    target = str(node.target)
    if target in part.attributes:
        return part.attributes[target]
    path = local(target)
    if block != TOP:
        path = path.removeprefix(f"{block}.")
    name = names.new(path)
    part.attributes[target] = name
    if node.op == "get_attr":
        tensor = attribute_of(traced, target)
        part.layers.append(f'self.register_buffer("{name}", {zeros_text(tensor)})')
        part.weights[name] = tensor.detach()
        return name
    layer = traced.get_submodule(target)
    part.layers += list(layer_lines(name, layer))
    for key, tensor in layer.state_dict().items():
        part.weights[f"{name}.{key}"] = tensor
    return name


def attribute_of(traced: nn.Module, path: str) -> torch.Tensor:
    owner, _, name = path.rpartition(".")
    tensor = getattr(traced.get_submodule(owner), name)
    assert isinstance(tensor, torch.Tensor)
    return tensor


def zeros_text(tensor: torch.Tensor) -> str:
    """The expression that makes room for a tensor; its values come with the weights."""
    arguments = ", ".join(marked(size) for size in tensor.shape) or "()"
    if tensor.dtype != torch.float32:
        arguments += f", dtype={tensor.dtype}"
    return f"torch.zeros({arguments})"


def layer_lines(name: str, layer: nn.Module) -> Iterator[str]:
    text = f"self.{name} = {layer_text(layer)}"
    if not isinstance(layer, nn.Sequential) or len(without_marks(text)) <= ROW:
        yield text
        return
    yield f"self.{name} = nn.Sequential("
    for part in layer:
        yield f"    {layer_text(part)},"
    yield ")"


# Classes that parts share


def shared_classes(parts: Mapping[str, Part], taken: Sequence[str]) -> dict[str, SharedClass]:
    """A class for all parts of one shape, by that shape. Names that are taken are no class's."""
    alike: dict[str, dict[str, Part]] = {}
    for name, part in parts.items():
        alike.setdefault(part.shape, {})[name] = part
    names = Names(["Network", *taken], before_number="")
    classes = {}
    for shape, members in alike.items():
        first = next(iter(members))
        classes[shape] = SharedClass(names.new(class_name(first)), list(members.values()))
    return classes


def class_name(block: str) -> str:
    """`cells.3` is a Cell."""
    word = "Block"
    for part in block.split("."):
        if not part.isdecimal():
            word = part
            break
    return "".join(piece.capitalize() for piece in word.removesuffix("s").split("_"))


class SharedClass:
    """The text of a class that one or several parts share."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.name = name
        self.first = parts[0]
        self.parameters: dict[int, str] = {}  # by the place among the numbers, where parts differ
        names = Names(["self"])
        called: dict[tuple[str, ...], str] = {}  # numbers that always go together are one parameter
        for place, column in enumerate(zip(*(part.numbers for part in parts), strict=True)):
            values = tuple(number.value for number in column)
            if len(set(values)) == 1:
                continue
            if values not in called:
                called[values] = names.new(column[0].name or "size")
            self.parameters[place] = called[values]

    def call(self, part: Part) -> str:
        """The expression that makes an object of this class for a part."""
        numbers = part.numbers
        values = {name: numbers[place].value for place, name in self.parameters.items()}
        words = [f"{name}={marked(int(value))}" for name, value in values.items()]
        return f"{self.name}({', '.join(words)})"

    def text(self) -> str:
        """As a person would have written it, more or less."""
        parameters = ""
        for name in dict.fromkeys(self.parameters.values()):
            parameters += f", {name}: int"
        inputs = ", ".join(f"{name}: torch.Tensor" for name in self.first.inputs)
        result = "torch.Tensor"
        if len(self.first.outputs) != 1:
            result = "tuple[torch.Tensor, ...]"
        lines = [
            f"class {self.name}(nn.Module):",
            f"    def __init__(self{parameters}) -> None:",
            "        super().__init__()",
        ]
        for line in self.layers():
            lines.append(f"        {line}")
        lines.append("")
        lines.append(f"    def forward(self, {inputs}) -> {result}:")
        for line in self.first.lines:
            lines.append(f"        {line}")
        lines.append(f"        return {', '.join(self.first.outputs)}")
        return "\n".join(lines)

    def layers(self) -> list[str]:
        """The lines that make its layers, with parameters where parts differ in a number."""
        places = count()

        def written(match: re.Match[str]) -> str:
            return self.parameters.get(next(places), match[2])

        return [NUMBER.sub(written, line) for line in self.first.layers]

"""Writing a traced network as plain torch: one class per block, one for the network, and weights.

Blocks that differ only in numbers, as the cells of a network do in their channels, share one class,
and the numbers that differ become its parameters.
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
from fedloom.nets.standalone import stands_alone

ROW = 80  # the longest nn.Sequential on one line, in characters; a longer one has a line per layer
INPUTS = ("x", "y", "z", "u", "v", "w")


@dataclass(frozen=True)
class Program:
    """A network as plain torch."""

    classes: str  # Python source
    weights: Mapping[str, torch.Tensor]


def program(traced: fx.GraphModule) -> Program:
    """The classes of a traced network, and the weights under the names used in these classes."""
    in_order = blocks(folded(traced).graph)
    copied = standing_alone(traced)
    parts = {block.name: part_of_block(traced, block) for block in in_order if block.name != TOP}
    classes = shared_classes(parts, [kind.__name__ for kind in copied])
    calls = {name: classes[part.shape].call(part) for name, part in parts.items()}
    whole = part_of_network(traced, in_order, parts, calls)
    texts = [inspect.getsource(kind).strip() for kind in copied]
    texts += [shared.text() for shared in classes.values()]
    texts.append(SharedClass("Network", [whole]).text())
    return Program("\n\n\n".join(texts), whole.weights)


def standing_alone(traced: fx.GraphModule) -> list[type[nn.Module]]:
    """The classes of standalone layers, whose source is copied, each once."""
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
    """The class of a block, or of the whole network, while it is being written."""

    layers: list[str] = field(default_factory=list)  # lines that create layers, with marked numbers
    lines: list[str] = field(default_factory=list)  # of its forward
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)  # by their targets in the graph

    @property
    def shape(self) -> str:
        """The text of the class without its numbers, which parts of one class have in common."""
        layers = [NUMBER.sub(r"#\1", line) for line in self.layers]
        return "\n".join([*layers, *self.inputs, *self.lines, *self.outputs])

    @property
    def numbers(self) -> list[Number]:
        numbers = []
        for line in self.layers:
            for match in NUMBER.finditer(line):
                numbers.append(Number(match[1], match[2]))
        return numbers


def part_of_block(traced: fx.GraphModule, block: Block) -> Part:
    """The class of a block."""
    part = Part(inputs=input_names(len(block.inputs)))
    attributes = Names()

    def layer(node: fx.Node) -> str:
        return attribute_for(part, attributes, traced, node, block.name)

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


def part_of_network(
    traced: fx.GraphModule,
    in_order: Sequence[Block],
    parts: Mapping[str, Part],
    calls: Mapping[str, str],
) -> Part:
    """The class of the network itself: its own layers, and its blocks one after the other.

    `calls` has the expression that creates each block.
    """
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    assert isinstance(result, fx.Node)
    whole = Part(inputs=[node.name for node in placeholders])
    attributes = Names()

    def layer(node: fx.Node) -> str:
        return attribute_for(whole, attributes, traced, node, TOP)

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
    """Write the line of the network's forward that calls a block."""
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


def attribute_for(
    part: Part, names: Names, traced: fx.GraphModule, node: fx.Node, block: str
) -> str:
    """The attribute that holds the layer or tensor that a node uses; added on first use."""
    target = str(node.target)
    if target in part.attributes:
        return part.attributes[target]
    path = local(target)
    if block != TOP:
        path = path.removeprefix(f"{block}.")
    name = names.new(path)
    part.attributes[target] = name
    if node.op == "get_attr":
        tensor = tensor_at(traced, target)
        part.layers.append(f'self.register_buffer("{name}", {zeros_text(tensor)})')
        part.weights[name] = tensor.detach()
        return name
    layer = traced.get_submodule(target)
    part.layers += list(layer_lines(name, layer))
    for key, tensor in layer.state_dict().items():
        part.weights[f"{name}.{key}"] = tensor
    return name


def tensor_at(traced: nn.Module, path: str) -> torch.Tensor:
    owner, _, name = path.rpartition(".")
    tensor = getattr(traced.get_submodule(owner), name)
    assert isinstance(tensor, torch.Tensor)
    return tensor


def zeros_text(tensor: torch.Tensor) -> str:
    """The expression that allocates a tensor, whose values are loaded with the weights."""
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
    """One class for all parts of equal shape, by that shape; none gets a name that is taken."""
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
    """The name of a block's class: `Cell` for `cells.3`."""
    name = "Block"
    for part in block.split("."):
        if not part.isdecimal():
            name = part
            break
    return "".join(piece.capitalize() for piece in name.removesuffix("s").split("_"))


class SharedClass:
    """The text of a class that one or several parts share."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.name = name
        self.first = parts[0]
        self.parameters = parameters_of(parts)

    def call(self, part: Part) -> str:
        """The expression that creates an object of this class for a part."""
        numbers = part.numbers
        values = {name: numbers[place].value for place, name in self.parameters.items()}
        arguments = [f"{name}={marked(int(value))}" for name, value in values.items()]
        return f"{self.name}({', '.join(arguments)})"

    def text(self) -> str:
        """The source of the class, much as a person would write it."""
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
        """The lines that create its layers, with parameters where parts differ in a number."""
        places = count()

        def written(match: re.Match[str]) -> str:
            return self.parameters.get(next(places), match[2])

        return [NUMBER.sub(written, line) for line in self.first.layers]


def parameters_of(parts: Sequence[Part]) -> dict[int, str]:
    """The names of a class's parameters, by their place among its numbers: where parts differ.

    Numbers that are equal to each other in every part share one parameter.
    """
    parameters = {}
    names = Names(["self"])
    name_of_values: dict[tuple[str, ...], str] = {}
    for place, column in enumerate(zip(*(part.numbers for part in parts), strict=True)):
        values = tuple(number.value for number in column)
        if len(set(values)) == 1:
            continue
        if values not in name_of_values:
            name_of_values[values] = names.new(column[0].name or "size")
        parameters[place] = name_of_values[values]
    return parameters

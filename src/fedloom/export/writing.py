"""A traced network as a file of plain torch: a class a block, one for the whole, and the weights that belong in it.

Blocks that differ in numbers alone, as the cells of a network do in their channels, become one class, and the numbers
that differ what it is made with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from fedloom.export.blocks import TOP, Block, blocks, local
from fedloom.export.expressions import Names, Writer
from fedloom.export.folding import folded
from fedloom.export.layers import NUMBER, layer_text, marked, without_marks

ROW = 80  # characters of a row of layers, from which on each has a line of its own
INPUTS = ("x", "y", "z", "u", "v", "w")


@dataclass
class Part:
    """One class on its way: a block, or the whole network."""

    made: list[str] = field(default_factory=list)  # lines that make its layers, numbers marked
    lines: list[str] = field(default_factory=list)  # of its forward
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)  # of what the graph calls otherwise

    @property
    def shape(self) -> str:
        """All but its numbers."""
        return "\n".join([*(NUMBER.sub(r"#\1", line) for line in self.made), *self.inputs, *self.lines, *self.outputs])

    @property
    def numbers(self) -> list[tuple[str, str]]:
        """What each is called, and its value."""
        return [(found[1], found[2]) for line in self.made for found in NUMBER.finditer(line)]


@dataclass(frozen=True)
class Program:
    classes: str  # Python
    weights: Mapping[str, torch.Tensor]


def program(traced: fx.GraphModule) -> Program:
    found, whole = blocks(folded(traced).graph), Part()
    parts = {block.name: inner(traced, block) for block in found if block.name != TOP}
    shapes = dict.fromkeys(part.shape for part in parts.values())
    names, kinds = Names(["Network"], before_number=""), dict[str, Class]()
    for shape in shapes:
        alike = {name: part for name, part in parts.items() if part.shape == shape}
        kinds[shape] = Class(names.new(class_name(next(iter(alike)))), list(alike.values()))
    called = {name: kinds[part.shape].made_with(part) for name, part in parts.items()}
    outer(traced, found, parts, called, whole)
    texts = [kind.text() for kind in kinds.values()]
    return Program("\n\n\n".join([*texts, Class("Network", [whole]).text()]), whole.weights)


def class_name(block: str) -> str:
    """`cells.3` is a Cell."""
    word = next((part for part in block.split(".") if not part.isdecimal()), "Block")
    return "".join(piece.capitalize() for piece in word.removesuffix("s").split("_"))


def inner(traced: fx.GraphModule, block: Block) -> Part:
    """A block as a class of its own."""
    part, attributes, names = Part(), Names(), Names()
    part.inputs = [
        names.new(name) for name, _ in zip((*INPUTS, *["x"] * len(block.inputs)), block.inputs, strict=False)
    ]
    known = dict(zip(block.inputs, part.inputs, strict=True))
    writer = Writer(known, lambda node: own(part, attributes, traced, node, block.name))
    writer.write(block.nodes, block.outputs)
    part.lines, part.outputs = writer.lines, [writer.texts[node] for node in block.outputs]
    return part


def outer(
    traced: fx.GraphModule, found: Sequence[Block], parts: Mapping[str, Part], called: Mapping[str, str], whole: Part
) -> None:
    """The network itself: its own layers, and its blocks one after the other."""
    attributes = Names()
    given = [node for node in traced.graph.nodes if node.op == "placeholder"]
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    assert isinstance(result, fx.Node)
    whole.inputs = [node.name for node in given]
    known = dict(zip(given, whole.inputs, strict=True))
    writer = Writer(known, lambda node: own(whole, attributes, traced, node, TOP))
    for block in found:
        if block.name == TOP:
            writer.write(block.nodes, [*block.outputs, result])
            continue
        attribute, part = attributes.new(block.name), parts[block.name]
        whole.made.append(f"self.{attribute} = {called[block.name]}")
        whole.weights |= {f"{attribute}.{name}": tensor for name, tensor in part.weights.items()}
        made = [writer.names.new(block.name if n == 0 else f"{block.name}_{n}") for n in range(len(block.outputs))]
        writer.texts |= dict(zip(block.outputs, made, strict=True))
        words = ", ".join(writer.texts[node] for node in block.inputs)
        writer.lines.append(f"{', '.join(made)} = self.{attribute}({words})")
    whole.lines, whole.outputs = writer.lines, [writer.texts[result]]


def own(part: Part, names: Names, traced: fx.GraphModule, node: fx.Node, block: str) -> str:
    """The attribute that holds what a node uses; made when it is first met."""
    target = str(node.target)
    if target in part.attributes:
        return part.attributes[target]
    name = names.new(local(target).removeprefix(f"{block}.") if block != TOP else local(target))
    part.attributes[target] = name
    if node.op == "get_attr":
        tensor = attribute_of(traced, target)
        size = ", ".join(marked(size) for size in tensor.shape) or "()"
        kind = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
        part.made.append(f'self.register_buffer("{name}", torch.zeros({size}{kind}))')
        part.weights[name] = tensor.detach()
        return name
    layer = traced.get_submodule(target)
    part.made += list(layer_lines(name, layer))
    part.weights |= {f"{name}.{key}": tensor for key, tensor in layer.state_dict().items()}
    return name


def attribute_of(traced: nn.Module, path: str) -> torch.Tensor:
    owner, _, name = path.rpartition(".")
    found = getattr(traced.get_submodule(owner), name)
    assert isinstance(found, torch.Tensor)
    return found


def layer_lines(name: str, layer: nn.Module) -> Iterator[str]:
    text = f"self.{name} = {layer_text(layer)}"
    if not isinstance(layer, nn.Sequential) or len(without_marks(text)) <= ROW:
        yield text
        return
    yield f"self.{name} = nn.Sequential("
    yield from (f"    {layer_text(part)}," for part in layer)
    yield ")"


class Class:
    """The text of a class that one or several parts share."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.name, self.first = name, parts[0]
        columns = list(zip(*([value for _, value in part.numbers] for part in parts), strict=True))
        names, self.places, known = Names(["self"]), dict[int, str](), dict[tuple[str, ...], str]()
        for place, values in enumerate(columns):
            if len(set(values)) > 1:  # numbers that always go together are one
                if values not in known:
                    known[values] = names.new(self.first.numbers[place][0] or "size")
                self.places[place] = known[values]

    def made_with(self, part: Part) -> str:
        given = {name: part.numbers[place][1] for place, name in self.places.items()}
        words = [f"{name}={marked(int(value))}" for name, value in given.items()]
        return f"{self.name}({', '.join(words)})"

    def text(self) -> str:
        """As a person would have written it, more or less."""
        place = iter(range(len(self.first.numbers)))
        made = [
            NUMBER.sub(lambda found: self.places.get(next(place), found[2]), line) for line in self.first.made
        ]  # fmt: skip
        given = "".join(f", {name}: int" for name in dict.fromkeys(self.places.values()))
        taken = ", ".join(f"{name}: torch.Tensor" for name in self.first.inputs)
        gives = "torch.Tensor" if len(self.first.outputs) == 1 else "tuple[torch.Tensor, ...]"
        return "\n".join([
            f"class {self.name}(nn.Module):", f"    def __init__(self{given}) -> None:", "        super().__init__()",
            *(f"        {line}" for line in made), "", f"    def forward(self, {taken}) -> {gives}:",
            *(f"        {line}" for line in self.first.lines), f"        return {', '.join(self.first.outputs)}",
        ])  # fmt: skip

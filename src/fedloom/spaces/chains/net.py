"""The networks of chains, over maps and over windows of symbols."""

from __future__ import annotations

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import settled, vector_length
from fedloom.nets.model import MOST_WEIGHTS
from fedloom.nets.pooling import as_vector
from fedloom.spaces.chains.cost import network_cost
from fedloom.spaces.chains.grammar import module_key, op_of_key
from fedloom.spaces.chains.ops import Stem, build_map_op, build_reduction, build_sequence_op
from fedloom.spaces.chains.plan import map_plan, sequence_plan
from fedloom.spaces.chains.space import ChainSpace
from fedloom.spaces.choice import CheckedChoice, Choice, Part, is_asked
from fedloom.spaces.edges import Run, Value, add, now
from fedloom.spaces.paths import EveryPosition, Passing, PathNetwork, is_live, scale_of
from fedloom.spaces.space import OpId, Size
from fedloom.types import Arch

LAYERS = "layers"  # keys of operations are layers.NUMBER.OPERATION.…; all other keys are shared


class ChainNetwork(PathNetwork):
    """What chains over maps and over symbols have in common: layers of operations."""

    space: ChainSpace
    layers: nn.ModuleList

    def __init__(
        self,
        space: ChainSpace,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        arch: Arch | None,
        affine: bool,
    ) -> None:
        super().__init__(space, shape, classes, size, arch, affine)
        weights = network_cost(space.definition, shape, classes, self.arch, size.head).params
        if weights > MOST_WEIGHTS:
            rule = f"a network must have at most {MOST_WEIGHTS:,} weights"
            problem = f"{space.definition.name} has {weights:,}"
            raise FedloomError(rule, problem, "define a space of fewer channels or layers")
        self.size = space.usual._replace(head=size.head)

    def terms(self, number: int, part: Part, x: Value, run: Run) -> list[Value]:
        """Returns the results of a layer's live operations on its input."""
        layer = self.layers[number]
        assert isinstance(layer, nn.ModuleDict)
        values = []
        for op, name in enumerate(self.space.slots[number].options):
            key = module_key(name)
            if key not in layer or not is_live(part, op):
                continue
            scale = scale_of(part, op)
            if scale is None:
                values.append(run(layer[key], x))
            else:
                values.append(run(layer[key], x, scale))
        return values

    def owner(self, key: str) -> OpId | None:
        parts = key.split(".")
        if parts[0] != LAYERS:
            return None
        slot = int(parts[1])
        options = self.space.slots[slot].options
        return OpId(slot, options.index(op_of_key(parts[2])))

    def names_in(self, number: int) -> list[str]:
        """Returns the operations that exist in a layer of this network."""
        options = self.space.slots[number].options
        return [options[op] for op in self.arch.choice[number]]


class MapNetwork(ChainNetwork):
    """A stem, stages of layers that each end in a reduction, the head and a classifier."""

    def __init__(
        self,
        space: ChainSpace,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        arch: Arch | None,
        affine: bool,
    ) -> None:
        super().__init__(space, shape, classes, size, arch, affine)
        definition = space.definition
        plan = map_plan(definition, shape)
        assert definition.stem is not None
        stem = definition.stem
        self.stem = Stem(plan.channels, stem.channels, stem.kernel, stem.stride)
        self.layers = nn.ModuleList()
        self.reductions = nn.ModuleList()
        self.stage_ended_by: dict[int, int] = {}  # the number of the last layer → its stage
        for number, stage in enumerate(plan.stages):
            for _ in stage.ops:
                layer = nn.ModuleDict()
                for name in self.names_in(len(self.layers)):
                    layer[module_key(name)] = build_map_op(name, stage.inputs)
                self.layers.append(layer)
            self.stage_ended_by[len(self.layers) - 1] = number
            self.reductions.append(build_reduction(stage))
        self.head = settled(size.head, *plan.size)
        self.size = self.size._replace(head=self.head)
        self.classifier = nn.Linear(vector_length(self.head, plan.outputs), classes)

    def begin(self, x: Value, run: Run = now) -> Passing:
        return Passing(run(self.stem, x))

    def through(self, number: int, part: Part, state: Passing, run: Run = now) -> Passing:
        terms = self.terms(number, part, state.entry, run)
        x = sum_of(terms, run)
        stage = self.stage_ended_by.get(number)
        if stage is not None:
            x = run(self.reductions[stage], x)
        return Passing(x)

    def finish(self, state: Passing, run: Run = now) -> Value:
        return run(self.classifier, run(as_vector, state.entry, self.head))


class SequenceNetwork(ChainNetwork, EveryPosition):
    """An embedding, stages that are sums of their layers, a classifier at every position.

    A forward pass returns the scores of the last position.
    """

    def __init__(
        self,
        space: ChainSpace,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        arch: Arch | None,
        affine: bool,
    ) -> None:
        super().__init__(space, shape, classes, size, arch, affine)
        plan = sequence_plan(space.definition, shape)
        # These are the numbers that nn.Embedding would draw, but it is fast on the meta device.
        vectors = torch.randn(classes, plan.embedding)
        self.embedding = nn.Embedding.from_pretrained(vectors, freeze=False)
        self.layers = nn.ModuleList()
        self.stage_ends: set[int] = set()  # the number of the last layer of each stage
        for stage in plan.stages:
            for _ in stage.ops:
                layer = nn.ModuleDict()
                for name in self.names_in(len(self.layers)):
                    operation = build_sequence_op(name, stage.inputs, stage.outputs)
                    if operation is not None:
                        layer[module_key(name)] = operation
                self.layers.append(layer)
            self.stage_ends.add(len(self.layers) - 1)
        self.classifier = nn.Linear(plan.hidden, classes)

    def begin(self, x: Value, run: Run = now) -> Passing:
        return Passing(run(self.embedding, run(as_numbers, x)))

    def through(self, number: int, part: Part, state: Passing, run: Run = now) -> Passing:
        terms = self.terms(number, part, state.entry, run)
        if state.total is not None:
            terms = [state.total, *terms]
        total = None  # all layers of the stage so far are `zero`
        if terms:
            total = sum_of(terms, run)
        if number in self.stage_ends:
            return Passing(total)
        return Passing(state.entry, total)

    def finish(self, state: Passing, run: Run = now) -> Value:
        return run(last_position, self.scores(state, run))

    def scores(self, state: Passing, run: Run) -> Value:
        """Returns the scores of every position."""
        return run(self.classifier, state.entry)

    def every_position(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        if is_asked(choice):
            choice = CheckedChoice.of(choice, self.space.slots)
        scores: torch.Tensor = self.scores(self.up_to_the_end(now, x, choice), now)
        return scores


def sum_of(terms: list[Value], run: Run) -> Value:
    if len(terms) == 1:
        return terms[0]
    return run(add, *terms)


def as_numbers(x: torch.Tensor) -> torch.Tensor:
    """Returns symbols as the integers that index an embedding."""
    return x.long()


def last_position(scores: torch.Tensor) -> torch.Tensor:
    return scores[:, -1]

"""The cost of a chain, operation by operation, by formula."""

from __future__ import annotations

from functools import lru_cache

from fedloom.nets.heads import HeadChoice, settled, vector_length
from fedloom.spaces.chains.definition import Definition
from fedloom.spaces.chains.grammar import IDENTITY, ZERO, map_op
from fedloom.spaces.chains.plan import MapPlan, StagePlan, map_plan, sequence_plan
from fedloom.spaces.cost_table import CostTable, OpCost, together
from fedloom.spaces.space import Cost
from fedloom.types import Arch


@lru_cache(maxsize=64)
def cost_table(
    definition: Definition, shape: tuple[int, ...], classes: int, head: HeadChoice
) -> CostTable:
    """Returns the cost of every operation.

    It takes a millisecond, once for every shape, because nothing is built.
    """
    if definition.is_text:
        return sequence_table(definition, shape, classes)
    return map_table(definition, shape, classes, head)


def network_cost(
    definition: Definition, shape: tuple[int, ...], classes: int, arch: Arch, head: HeadChoice
) -> Cost:
    """Returns the cost of a path's network, or of a part with several operations per layer."""
    table = cost_table(definition, shape, classes, head)
    live_costs = [table.fixed]
    for row, live in zip(table.rows, arch.choice, strict=True):
        live_costs += [row[op] for op in live]
    cost = together(live_costs)
    sums = elements_of_sums(definition, shape, arch)
    return Cost(cost.params, cost.macs, cost.activations + sums)


def elements_of_sums(definition: Definition, shape: tuple[int, ...], arch: Arch) -> int:
    """Returns the elements of the sums of a layer's operations, or of a stage's layers."""
    if definition.is_text:
        return elements_of_stage_sums(definition, shape, arch)
    elements = 0
    layer = 0
    for stage in map_plan(definition, shape).stages:
        for _ in stage.ops:
            additions = len(arch.choice[layer]) - 1
            elements += additions * stage.inputs * pixels(stage.size)
            layer += 1
    return elements


def elements_of_stage_sums(definition: Definition, shape: tuple[int, ...], arch: Arch) -> int:
    elements = 0
    layer = 0
    for stage in sequence_plan(definition, shape).stages:
        terms = 0
        for names in stage.ops:
            terms += len([op for op in arch.choice[layer] if names[op] != ZERO])
            layer += 1
        additions = max(terms - 1, 0)
        elements += additions * stage.outputs * shape[0]
    return elements


# Over maps


def map_table(
    definition: Definition, shape: tuple[int, ...], classes: int, head: HeadChoice
) -> CostTable:
    plan = map_plan(definition, shape)
    assert definition.stem is not None
    stem = conv_cost(plan.channels, definition.channels, definition.stem.kernel, plan.stem)
    fixed = [stem]
    rows = []
    for stage in plan.stages:
        fixed.append(reduction_cost(stage))
        for names in stage.ops:
            rows.append(tuple(map_op_cost(name, stage) for name in names))
    fixed.append(classifier_cost(plan, classes, head))
    return CostTable(together(fixed), tuple(rows))


def map_op_cost(name: str, stage: StagePlan) -> OpCost:
    """Returns the cost of one operation on a layer's maps."""
    op = map_op(name)
    channels = stage.inputs
    if op.kind == IDENTITY:
        return OpCost()
    if op.kind == "conv":
        return conv_cost(channels, channels, op.kernel, stage.size)
    inner = op.inner(channels)
    residual = OpCost(activations=channels * pixels(stage.size))
    back = conv_cost(inner, channels, 1, stage.size)
    if op.kind == "ds":
        groups = min(channels, inner)
        depthwise = conv_cost(channels, inner, op.kernel, stage.size, groups)
        return together([depthwise, back, residual])
    full = conv_cost(channels, inner, op.kernel, stage.size)
    return together([full, squeeze_excite_cost(inner, stage.size), back, residual])


def conv_cost(
    inputs: int, outputs: int, kernel: int, out: tuple[int, int], groups: int = 1
) -> OpCost:
    """The cost of a convolution without bias, BN with weights and ReLU, to a map of size `out`."""
    weights = inputs // groups * outputs * kernel**2
    elements = outputs * pixels(out)
    products = weights * pixels(out)
    norm = 2 * outputs
    return OpCost(
        params=weights + norm,
        macs=products,
        macs_paper=products + 3 * elements,  # BN 2, ReLU 1
        activations=2 * elements,  # ReLU writes in place
    )


def squeeze_excite_cost(channels: int, size: tuple[int, int]) -> OpCost:
    """The cost of the mean, two 1×1 convolutions with a bias, and the product with the map."""
    products = 2 * channels * channels
    biases = 2 * channels
    pooled = channels * pixels(size)
    return OpCost(
        params=products + biases,
        macs=products,
        macs_paper=products + biases + channels + pooled,  # one ReLU
        activations=4 * channels + pooled,
    )


def reduction_cost(stage: StagePlan) -> OpCost:
    if stage.reduce == "none":
        return OpCost()
    pointwise = conv_cost(stage.inputs, stage.outputs, 1, stage.after)
    if stage.reduce == "pool":
        pooled = OpCost(
            macs_paper=stage.inputs * pixels(stage.size),
            activations=stage.inputs * pixels(stage.after),
        )
        return together([pooled, pointwise])
    depthwise = conv_cost(stage.inputs, stage.inputs, 3, stage.after, stage.inputs)
    projection = conv_cost(stage.inputs, stage.outputs, 2, stage.after)
    both = OpCost(activations=stage.outputs * pixels(stage.after))
    return together([depthwise, pointwise, projection, both])


def classifier_cost(plan: MapPlan, classes: int, head: HeadChoice) -> OpCost:
    """The cost of the head on the last map, and of a linear layer with a bias."""
    length = vector_length(settled(head, *plan.size), plan.outputs)
    pool = plan.outputs * pixels(plan.size)
    linear = length * classes
    return OpCost(
        params=linear + classes,
        macs=linear,
        macs_paper=linear + classes + pool,
        activations=length + classes,
    )


def pixels(size: tuple[int, int]) -> int:
    return size[0] * size[1]


# Over symbols


def sequence_table(definition: Definition, shape: tuple[int, ...], classes: int) -> CostTable:
    plan = sequence_plan(definition, shape)
    symbols = plan.symbols
    embedding = OpCost(params=classes * plan.embedding, activations=symbols * plan.embedding)
    linear = plan.hidden * classes
    classifier = OpCost(
        params=linear + classes,
        macs=linear * symbols,
        macs_paper=linear * symbols + classes,
        activations=classes * symbols,
    )
    rows = []
    for stage in plan.stages:
        for names in stage.ops:
            row = [sequence_op_cost(name, stage.inputs, stage.outputs, symbols) for name in names]
            rows.append(tuple(row))
    return CostTable(together([embedding, classifier]), tuple(rows))


def sequence_op_cost(name: str, inputs: int, hidden: int, symbols: int) -> OpCost:
    """Returns the cost of one operation on a window of this many symbols."""
    outputs = hidden * symbols
    if name == "lstm":
        return gated_cost(inputs, hidden, symbols, gates=4, biases=2, others=18)
    if name == "gru":
        return gated_cost(inputs, hidden, symbols, gates=3, biases=2, others=13)
    if name == "ligru":
        return gated_cost(inputs, hidden, symbols, gates=2, biases=0, others=0)
    if name == "qrnn":
        weights = 3 * hidden * inputs
        bias = 3 * hidden
        products = weights * symbols
        return OpCost(weights + bias, products, products + bias, outputs)
    if name == "linear":
        weights = hidden * inputs
        products = weights * symbols
        return OpCost(weights + hidden, products, products + hidden, 2 * outputs)
    if name == "conv5":
        weights = 5 * hidden * inputs
        products = weights * symbols
        padded = (symbols + 4) * inputs
        return OpCost(weights + hidden, products, products + outputs, padded + 2 * outputs)
    return OpCost()  # identity and zero


def gated_cost(
    inputs: int, hidden: int, symbols: int, *, gates: int, biases: int, others: int
) -> OpCost:
    """The cost of matrices from the input and from the last output to every gate.

    `others` is the number of elementwise operations of a step, per number of its output.
    """
    weights = gates * hidden * (inputs + hidden)
    products = weights * symbols
    return OpCost(
        params=weights + biases * gates * hidden,
        macs=products,
        macs_paper=products + others * hidden * symbols,
        activations=hidden * symbols,
    )

"""Layers that follow one another inside one part of a network become one row of layers.

That is easier to read, and the bits are equal.
"""

from __future__ import annotations

from torch import fx, nn

from fedloom.export.blocks import INSIDE, block_of, local


def folded(traced: fx.GraphModule) -> fx.GraphModule:
    """Every part that is nothing but a chain of layers becomes an nn.Sequential of its name."""
    chain: list[fx.Node] = []
    for node in list(traced.graph.nodes):
        if chain and not follows(node, chain[-1]):
            fold(traced, chain)
            chain = []
        if node.op == "call_module" and parent(node).startswith(INSIDE):
            chain.append(node)
    traced.graph.lint()
    return traced


def parent(node: fx.Node) -> str:
    return str(node.target).rpartition(".")[0]


def follows(node: fx.Node, last: fx.Node) -> bool:
    """Whether it is the next layer of the same part.

    Nothing else may look at the value between the two.
    """
    return (
        node.op == "call_module"
        and parent(node) == parent(last)
        and node.args == (last,)
        and not node.kwargs
        and list(last.users) == [node]
    )


def takes_one_input(node: fx.Node) -> bool:
    return len(node.args) == 1 and not node.kwargs


def is_whole_part(traced: fx.GraphModule, chain: list[fx.Node]) -> bool:
    """Whether a chain holds every layer of its part, and each is called once."""
    path = parent(chain[0])
    calls = 0
    for node in traced.graph.nodes:
        if node.op == "call_module" and parent(node) == path:
            calls += 1
    children = {name for name, _ in traced.get_submodule(path).named_children()}
    in_chain = {str(node.target).rpartition(".")[2] for node in chain}
    return calls == len(chain) and children == in_chain


def fold(traced: fx.GraphModule, chain: list[fx.Node]) -> None:
    """Make a chain one row, if it is all of its part."""
    path = parent(chain[0])
    first = chain[0]
    last = chain[-1]
    if not takes_one_input(first) or not is_whole_part(traced, chain):
        return
    is_block = block_of(f"{local(path)}.") == local(path)
    if len(chain) == 1 or is_block:  # a block becomes a class of its own
        return
    layers = [traced.get_submodule(str(node.target)) for node in chain]
    traced.set_submodule(path, nn.Sequential(*layers))
    with traced.graph.inserting_before(first):
        row = traced.graph.call_module(path, first.args)
    row.meta = dict(first.meta)
    last.replace_all_uses_with(row)
    for node in reversed(chain):
        traced.graph.erase_node(node)

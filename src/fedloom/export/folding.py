"""Folding consecutive layers inside one module of a network into one nn.Sequential.

The written network is easier to read that way, and its results are equal to the bit.
"""

from __future__ import annotations

from torch import fx, nn

from fedloom.export.blocks import INSIDE, block_of, local


def folded(traced: fx.GraphModule) -> fx.GraphModule:
    """Replace every module that is a mere chain of layers by an nn.Sequential of the same name."""
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
    """Whether a node is the next layer of the same module as `last`.

    Nothing else may use the value between the two.
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


def is_whole_module(traced: fx.GraphModule, chain: list[fx.Node]) -> bool:
    """Whether a chain holds every layer of its module, and each is called once."""
    path = parent(chain[0])
    calls = 0
    for node in traced.graph.nodes:
        if node.op == "call_module" and parent(node) == path:
            calls += 1
    children = {name for name, _ in traced.get_submodule(path).named_children()}
    in_chain = {str(node.target).rpartition(".")[2] for node in chain}
    return calls == len(chain) and children == in_chain


def fold(traced: fx.GraphModule, chain: list[fx.Node]) -> None:
    """Turn a chain into one nn.Sequential, if it is the whole of its module."""
    path = parent(chain[0])
    first = chain[0]
    last = chain[-1]
    if not takes_one_input(first) or not is_whole_module(traced, chain):
        return
    is_block = block_of(f"{local(path)}.") == local(path)
    if len(chain) == 1 or is_block:  # a block becomes a separate class
        return
    layers = [traced.get_submodule(str(node.target)) for node in chain]
    traced.set_submodule(path, nn.Sequential(*layers))
    with traced.graph.inserting_before(first):
        call = traced.graph.call_module(path, first.args)
    call.meta = dict(first.meta)
    last.replace_all_uses_with(call)
    for node in reversed(chain):
        traced.graph.erase_node(node)

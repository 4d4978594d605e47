"""Layers that follow one another inside one part of a network, made one row of layers: easier to read, equal bits."""

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
    """Whether it is the next layer of the same part, and nothing else looks at the value between them."""
    return (
        node.op == "call_module"
        and parent(node) == parent(last)
        and node.args == (last,)
        and not node.kwargs
        and list(last.users) == [node]
    )


def fold(traced: fx.GraphModule, chain: list[fx.Node]) -> None:
    path, first, last = parent(chain[0]), chain[0], chain[-1]
    part = traced.get_submodule(path)
    once = sum(parent(node) == path for node in traced.graph.nodes if node.op == "call_module") == len(chain)
    whole = {name for name, _ in part.named_children()} == {str(node.target).rpartition(".")[2] for node in chain}
    single = len(chain) > 1 and len(first.args) == 1 and not first.kwargs and block_of(f"{local(path)}.") != local(path)
    if not (once and whole and single):
        return
    traced.set_submodule(path, nn.Sequential(*(traced.get_submodule(str(node.target)) for node in chain)))
    with traced.graph.inserting_before(first):
        row = traced.graph.call_module(path, first.args)
    row.meta = dict(first.meta)
    last.replace_all_uses_with(row)
    for node in reversed(chain):
        traced.graph.erase_node(node)

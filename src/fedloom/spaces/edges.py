"""The forward pass of a cell, in one place for all spaces, so that a native backend can replace it.

A node is the sum of its incoming operations. What several operations need from one source (its
ReLU, its pools) is computed once. Operations that are not alive are not built here; `none` never
is.

Every step goes through a `Run`: `now` computes it at once, `spaces.joint` records it for later, so
that several architectures can share what they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional

from fedloom.nets import recomputed
from fedloom.nets.recomputed import worth_recomputing
from fedloom.spaces import merged
from fedloom.spaces.choice import DispatchedOps, Live, Routes, Scales
from fedloom.spaces.merged import SideBySide
from fedloom.spaces.ops import Op, Takes, build_op, scaled
from fedloom.spaces.routing import Nothing, RoutedEdge, RoutedSources, groups_of, joined
from fedloom.spaces.space import NONE, Slot

Value = Any  # a tensor, or a placeholder for one that is computed later
Run = Callable[..., Value]  # (work, *inputs) → work(*inputs), now or later


def now(work: Callable[..., torch.Tensor], *inputs: Any) -> torch.Tensor:
    return work(*inputs)


class Sources:
    """The states of a cell, and their ReLU and pools, each computed once."""

    def __init__(self, run: Run, states: list[Value]) -> None:
        self.run = run
        self.states = states
        self.computed: dict[tuple[int, Takes, int], Value] = {}

    def take(self, source: int, takes: Takes, stride: int) -> Value:
        if takes == "raw":
            return self.states[source]
        if takes == "relu":  # the same for every stride
            stride = 1
        key = (source, takes, stride)
        if key not in self.computed:
            self.computed[key] = self.run(make, self.states[source], takes, stride)
        return self.computed[key]


def make(state: torch.Tensor, takes: Takes, stride: int) -> torch.Tensor:
    """Computes the ReLU or the pool of a state."""
    if takes == "relu":
        if worth_recomputing(state):
            return recomputed.relu(state)
        return functional.relu(state)
    if takes == "max":
        if worth_recomputing(state):
            return recomputed.max_pool(state, stride)
        return functional.max_pool2d(state, 3, stride, 1)
    return functional.avg_pool2d(state, 3, stride, 1, count_include_pad=False)


def dispatched_source(state: Value, takes: Takes, stride: int) -> Value:
    """Returns what an operation takes from its samples, computed by torch's own functions."""
    if takes == "relu":
        return functional.relu(state)
    if takes == "max":
        return functional.max_pool2d(state, 3, stride, 1)
    if takes == "avg":
        return functional.avg_pool2d(state, 3, stride, 1, count_include_pad=False)
    return state


class Term(NamedTuple):
    """One operation of one edge. A node's terms are added up in the order of these tuples."""

    edge: int
    number: int  # the number of the option


class Edges(nn.Module):
    """All edges of one cell, with the operations that exist on each."""

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]],
        slots: Sequence[Slot],
        live: Sequence[Sequence[int]],
        channels: int,
        strides: Sequence[int],
        size: tuple[int, int],
        *,
        affine: bool,
        overrides: Mapping[str, type[Op]] | None = None,
        nodes_are_means: bool = False,
    ) -> None:
        """`pairs` are the source and target of every edge; `size` is the size of the cell's inputs.

        `overrides` are a space's own classes for operations, by name. With `nodes_are_means`, a
        node is the mean of its edges instead of their sum.
        """
        super().__init__()
        self.nodes_are_means = nodes_are_means
        self.pairs = list(pairs)
        self.slots = list(slots)
        self.strides = list(strides)
        self.channels = channels
        self.out = (-(-size[0] // max(strides)), -(-size[1] // max(strides)))
        for edge, slot in enumerate(slots):
            ops = nn.ModuleDict()
            source_size = size if strides[edge] > 1 else self.out
            for number in live[edge]:
                name = slot.options[number]
                op = build_op(name, channels, strides[edge], source_size, affine=affine)
                if overrides is not None and name in overrides:
                    op = overrides[name]()
                if op is not None:
                    ops[name] = op
            self.add_module(str(edge), ops)

    def flow(
        self,
        run: Run,
        states: list[Value],
        nodes: int,
        scales: Scales,
        live: Live,
    ) -> list[Value]:
        """Computes `nodes` further nodes one after the other, and returns their states."""
        if isinstance(run, SideBySide):
            assert scales is not None and live is None
            return self._flow_merged(run, states, nodes, scales)
        if isinstance(scales, Routes):
            return self._flow_routed(states, nodes, scales)
        if isinstance(scales, DispatchedOps):
            return self._flow_dispatched(states, nodes, scales)
        sources = Sources(run, states)
        first = len(states)
        for node in range(first, first + nodes):
            terms = []
            for edge, (source, target) in enumerate(self.pairs):
                if target == node:
                    terms += self._terms(edge, source, sources, scales, live)
            if terms:
                states.append(self._node(run, node, terms))
            else:
                states.append(run(self._zero, states[0]))
        return states[first:]

    def _node(self, run: Run, node: int, terms: Sequence[Value]) -> Value:
        total = run(add, *terms)
        edges = self._edges_into(node)
        if self.nodes_are_means and edges > 1:
            return run(torch.div, total, edges)
        return total

    def _edges_into(self, node: int) -> int:
        return sum(target == node for _, target in self.pairs)

    def _terms(
        self,
        edge: int,
        source: int,
        sources: Sources,
        scales: Scales,
        live: Live,
    ) -> list[Value]:
        """Returns the results of an edge's live operations on its source."""
        ops: nn.ModuleDict = getattr(self, str(edge))
        terms = []
        for number, name in enumerate(self.slots[edge].options):
            if name not in ops:
                continue
            if live is not None and number not in live[edge]:
                continue
            op = ops[name]
            assert isinstance(op, Op)
            value = sources.take(source, op.takes, self.strides[edge])
            scale = None if scales is None else scales[edge][number]
            terms.append(sources.run(op, value, scale))
        return terms

    def _flow_routed(self, states: list[Value], nodes: int, routes: Routes) -> list[Value]:
        """Sends every sample through its own operations: see spaces/routing.py."""
        sources = RoutedSources(states)
        groups = groups_of(routes)
        first = len(states)
        for node in range(first, first + nodes):
            into_node = {}
            for edge, (source, target) in enumerate(self.pairs):
                if target == node:
                    into_node[edge] = RoutedEdge(
                        sources.of(source), self.strides[edge], self._by_number(edge), groups[edge]
                    )
            states.append(self._routed_node(node, into_node, routes))
        return states[first:]

    def _routed_node(
        self, node: int, into_node: Mapping[int, RoutedEdge], routes: Routes
    ) -> torch.Tensor:
        """Adds up the edges in `into_node`, which are keyed by the number of the edge."""
        if all(edge.is_whole for edge in into_node.values()):  # the same bits as a path's
            terms = []
            for number, edge in into_node.items():
                (result,) = edge.results()
                terms.append(scaled(result, routes.factors_of(number)))
            return cast(torch.Tensor, self._node(now, node, terms))
        divisor = 1
        if self.nodes_are_means:
            divisor = len(into_node)
        factors = None
        if routes.factors is not None:
            factors = routes.factors[:, list(into_node)]
        return joined(list(into_node.values()), factors, divisor)

    def _flow_dispatched(
        self, states: list[Value], nodes: int, dispatched: DispatchedOps
    ) -> list[Value]:
        """The same in steps that read no values, for a network that is traced."""
        first = len(states)
        for node in range(first, first + nodes):
            terms = []
            for edge, (source, target) in enumerate(self.pairs):
                if target == node:
                    terms.append(self._dispatched(edge, states[source], dispatched))
            states.append(self._node(now, node, terms))
        return states[first:]

    def _dispatched(self, edge: int, state: Value, dispatched: DispatchedOps) -> Value:
        """Every operation computes the samples that take it, if any, and writes them back.

        Where there is only one operation, all samples take it.
        """
        ops = self._by_number(edge)
        if len(ops) == 1:
            (op,) = ops.values()
            return op(dispatched_source(state, op.takes, self.strides[edge]))
        chosen = dispatched.ops[:, edge]
        result = state.new_zeros((state.shape[0], self.channels, *self.out))
        for number, op in ops.items():
            samples = torch.nonzero(chosen == number)[:, 0]
            inputs = torch.index_select(state, 0, samples)
            inputs = dispatched_source(inputs, op.takes, self.strides[edge])
            result = torch.index_copy(result, 0, samples, op(inputs))
        return result

    def _by_number(self, edge: int) -> dict[int, Op]:
        """Returns the operations that exist on an edge, including `none`."""
        ops: nn.ModuleDict = getattr(self, str(edge))
        existing: dict[int, Op] = {}
        for number, name in enumerate(self.slots[edge].options):
            if name == NONE:
                existing[number] = Nothing(self.channels, self.out)
            elif name in ops:
                op = ops[name]
                assert isinstance(op, Op)
                existing[number] = op
        return existing

    def _flow_merged(
        self,
        run: SideBySide,
        states: list[Value],
        nodes: int,
        scales: Sequence[Sequence[torch.Tensor]],
    ) -> list[Value]:
        """The same in fewer calls: see spaces/merged.py."""
        sources = Sources(run, states)
        first = len(states)
        terms = self._merged_terms(range(first), sources, run, scales)
        for node in range(first, first + nodes):
            into_node = []
            for term in sorted(terms):
                _, target = self.pairs[term.edge]
                if target == node:
                    into_node.append(terms[term])
            if into_node:
                states.append(run(add, *into_node))
            else:
                states.append(run(self._zero, states[0]))
            terms |= self._merged_terms([node], sources, run, scales)
        return states[first:]

    def _merged_terms(
        self,
        ready: Container[int],
        sources: Sources,
        run: SideBySide,
        scales: Sequence[Sequence[torch.Tensor]],
    ) -> dict[Term, Value]:
        """Returns the results of all operations on the states that have just become ready."""
        terms = {}
        waiting: dict[merged.Kind, dict[Term, merged.Waiting]] = {}
        for edge, (source, _) in enumerate(self.pairs):
            if source not in ready:
                continue
            ops: nn.ModuleDict = getattr(self, str(edge))
            for number, name in enumerate(self.slots[edge].options):
                if name not in ops:
                    continue
                op = ops[name]
                assert isinstance(op, Op)
                term = Term(edge, number)
                state = sources.take(source, op.takes, self.strides[edge])
                scale = scales[edge][number]
                if merged.norms_of(op):
                    together = waiting.setdefault(merged.kind_of(op, state), {})
                    together[term] = merged.Waiting(op, state, scale)
                else:
                    terms[term] = run.one_by_one(op, state, scale)
        for kind, together in waiting.items():
            results = run.compute(kind, list(together.values()))
            terms |= dict(zip(together, results, strict=True))
        return terms

    def _zero(self, like: torch.Tensor) -> torch.Tensor:
        """The state of a node without incoming operations."""
        return like.new_zeros(like.shape[0], self.channels, *self.out)


def add(*terms: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the terms.

    Only the running total is written in place, never a term, which may be another node's state.
    """
    if len(terms) == 1:
        return terms[0]
    total = terms[0] + terms[1]
    for term in terms[2:]:
        total += term
    return total


def join(*states: torch.Tensor) -> torch.Tensor:
    return torch.cat(states, dim=1)


def pooled(state: torch.Tensor) -> torch.Tensor:
    """Returns the mean over the map, for a space without a choice of heads."""
    return state.mean((2, 3))

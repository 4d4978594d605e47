"""The base class of every space's network.

A supernet computes under a choice, knows the owner of each weight, and can be cut down to a plain
torch module.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import fx, nn

from fedloom.errors import FedloomError
from fedloom.nets.depthwise import as_plain
from fedloom.nets.heads import head_of_network
from fedloom.nets.standalone import stands_alone
from fedloom.spaces.choice import CheckedChoice, Choice, Mixture, is_asked
from fedloom.spaces.edges import Run, Value, now
from fedloom.spaces.space import OpId, Size, Space
from fedloom.types import Arch, Json


class BothScores(NamedTuple):
    """The scores of the two batches of a search step."""

    train: torch.Tensor
    validation: torch.Tensor


class Supernet(nn.Module):
    """A network that contains all architectures of a space.

    Every step of `flow` goes through a `Run`: see spaces/edges.py.
    """

    def __init__(
        self,
        space: Space,
        shape: tuple[int, ...],
        classes: int,
        size: Size,
        arch: Arch | None,
        affine: bool,
    ) -> None:
        super().__init__()
        self.space = space
        self.shape = shape
        self.classes = classes
        self.size = size
        if arch is None:
            arch = space.full()
        self.arch = arch  # the operations that exist in it
        self.affine = affine
        space.check(self.arch)

    def forward(self, x: torch.Tensor, choice: Choice = None) -> torch.Tensor:
        if is_asked(choice):
            choice = CheckedChoice.of(choice, self.space.slots)
        scores: torch.Tensor = self.flow(now, x, choice)
        return scores

    def forward_both(
        self, train: torch.Tensor, validation: torch.Tensor, mixture: Mixture
    ) -> BothScores | None:
        """Computes both batches in one pass; weights and BN statistics learn only from `train`.

        None: the batches must be computed one after the other, which is also the answer where that
        is no slower.
        """
        return None

    def flow(self, run: Run, x: Value, choice: Choice) -> Value:
        """Computes the scores of samples, step by step."""
        raise NotImplementedError

    def owner(self, key: str) -> OpId | None:
        """Returns the operation that owns a state_dict key, parameter or buffer.

        None: all operations share it, like the stem, the preprocessing and the classifier.
        """
        raise NotImplementedError

    def smaller(self, arch: Arch) -> Supernet:
        """Returns the same network with only the operations of `arch` and fresh weights."""
        return self.space.network(
            self.shape,
            self.classes,
            self.size,
            arch=arch,
            affine=self.affine,
        )

    def cut(self, arch: Arch, *, inherit: bool = True) -> nn.Module:
        """Returns a plain torch module with only the operations of `arch`.

        It inherits this network's weights, or has fresh ones.
        """
        self._check_part(arch)
        if inherit:
            with torch.device("meta"):  # no fresh weights are drawn
                part = self.smaller(arch)
        else:
            part = self.smaller(arch)
        as_plain(part)
        if inherit:  # clones keep device and memory format, which decide the last bits
            weights = self.state_dict()
            inherited = {key: weights[key].clone() for key in part.state_dict()}
            part.load_state_dict(inherited, assign=True)
        tracer = PlainTracer()
        graph = tracer.trace(part, concrete_args={"choice": None})
        plain = without_choice(fx.GraphModule(tracer.root, graph, type(part).__name__))
        plain.train(self.training)
        # Reports and exports read these attributes. `setattr`, because mypy expects every attribute
        # of a module to be a tensor.
        setattr(plain, "architecture", part.architecture)  # noqa: B010
        setattr(plain, "size", part.size)  # noqa: B010
        setattr(plain, "head", head_of_network(part))  # noqa: B010
        setattr(plain, "affine", part.affine)  # noqa: B010
        return plain

    def _check_part(self, arch: Arch) -> None:
        self.space.check(arch)
        for live, existing in zip(arch.choice, self.arch.choice, strict=True):
            if not set(live) <= set(existing):
                rule = "an architecture must be part of the network it is cut from"
                problem = "it names operations that were removed before"
                raise FedloomError(rule, problem, "cut it from the larger network")

    @property
    def architecture(self) -> Json:
        return self.arch.to_plain()


class PlainTracer(fx.Tracer):
    """Traces into all modules except torch's own layers and modules that stand alone.

    A module that stands alone may loop over time, which a tracer cannot follow.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, nn.RNNBase) or stands_alone(m):
            return True
        is_leaf: bool = super().is_leaf_module(m, module_qualified_name)
        return is_leaf


def without_choice(traced: fx.GraphModule) -> fx.GraphModule:
    """Removes the argument `choice` from a traced network, so that it can be saved as a whole."""
    for node in reversed(traced.graph.nodes):
        node.type = None  # annotations are strings here, with which the module cannot be saved
        checks_choice = any(is_choice(argument) for argument in node.all_input_nodes)
        if is_choice(node) or checks_choice:
            traced.graph.erase_node(node)  # the argument, or torch's check that it is None
    traced.recompile()
    return traced


def is_choice(node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name.startswith("choice")

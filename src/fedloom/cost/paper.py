"""The MACs of one sample as FedorAS's tool counts them: products and elementwise operations.

In addition to products it counts biases, 2 for each element of a BN, 1 for each element of a ReLU
and for each element that a pool reads, and the elementwise steps of an LSTM. Limits of device tiers
may be given in this unit; a search space has its own table of it (`spaces/cost_table.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedloom.cost.count import macs

LSTM_STEPS = 18  # for each number in an output: gates, state, their sums and products
NORMS = ("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
POOLS = ("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "mean")
ONE_EACH = ("relu", "relu_", *POOLS)  # these count 1 for each element that they read


class BothCounts(NamedTuple):
    macs: int  # products only, as the meter counts them
    macs_paper: int


def macs_both_ways(net: nn.Module, shape: tuple[int, ...]) -> BothCounts:
    with ElementwiseCounter() as elementwise:
        handles = [module.register_forward_hook(elementwise.add_module) for module in net.modules()]
        try:
            products = macs(net, shape)
        finally:
            for handle in handles:
                handle.remove()
    return BothCounts(products, products + elementwise.count)


class ElementwiseCounter(TorchDispatchMode):
    """Counts what is computed in addition to products, by torch operation and by module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for it
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in NORMS:
            self.count += 2 * args[0].numel()
        elif name in ONE_EACH:
            self.count += args[0].numel()
        return output

    def add_module(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Add what only the module knows: its bias, or the length of its sequence."""
        if isinstance(module, nn.LSTM):
            outputs: torch.Tensor = output[0]
            self.count += LSTM_STEPS * module.num_layers * outputs.numel()
        elif isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            self.count += output.numel()

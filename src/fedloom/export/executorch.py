"""Writing a network for ExecuTorch, torch's runtime for phones and boards, and comparing it."""

from __future__ import annotations

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from fedloom.errors import FedloomError
from fedloom.export.tracing import Whole, first_line
from fedloom.files import write_whole

MOST = 256  # samples at a time, for which ExecuTorch plans its memory
EXAMPLE = 32  # samples that its compiler is given


def write(file: Path, whole: Whole, samples: torch.Tensor) -> float:
    """Write the file, and return the largest difference of its scores from the network's own.

    They are compared on all samples at once, and on the first sample alone.
    """
    try:
        from executorch.exir import to_edge_transform_and_lower
        from executorch.runtime import Runtime
    except ImportError as error:
        rule = "--format executorch must have executorch"
        advice = "pip install 'fedloom[executorch]'"
        raise FedloomError(rule, f"{error.name} is missing", advice) from None
    shapes = ({0: torch.export.Dim("batch", min=1, max=MOST)},)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these warnings are about its internals
            arguments = (example(samples),)
            exported = torch.export.export(plain_strides(whole), arguments, dynamic_shapes=shapes)
            lowered: Any = to_edge_transform_and_lower(exported).to_executorch()
    except Exception as error:  # its passes raise many types of errors
        failure = f"its compiler failed ({type(error).__name__}: {first_line(error)})"
        rule = "a network must be one that ExecuTorch can hold"
        raise FedloomError(rule, failure, "use --format torch") from error
    write_whole(file, [lowered.buffer], durable=True)
    forward = Runtime.get().load_program(str(file)).load_method("forward")
    return max(difference(forward, whole, part) for part in (samples, samples[:1]))


def example(samples: torch.Tensor) -> torch.Tensor:
    """Samples to compile with, many of them.

    From a few samples the compiler's passes conclude that there are never more than 15.
    """
    turns = -(-EXAMPLE // len(samples))
    return torch.cat([samples] * turns)[:EXAMPLE]


def plain_strides(whole: Whole) -> Whole:
    """A copy in which every tensor is contiguous.

    For a layer with one channel, the strides of channels-last are an order that ExecuTorch's
    kernels refuse.
    """
    copied = deepcopy(whole)
    for tensor in (*copied.parameters(), *copied.buffers()):
        tensor.data = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.data)
    return copied


@torch.no_grad()
def difference(forward: Any, whole: Whole, samples: torch.Tensor) -> float:
    scores = forward.execute([samples.contiguous()])[0]
    return float((scores - whole(samples)).abs().max())

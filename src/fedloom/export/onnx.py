"""Writing a network as ONNX, for batches of any size, and comparing it by onnxruntime."""

from __future__ import annotations

import logging
import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.export.tracing import Whole, first_line

BATCHES = (1, 5, 32)  # batch sizes to compare on, in addition to all samples at once


def write(file: Path, whole: Whole, samples: torch.Tensor) -> float:
    """Write the file, and return the largest difference of its scores from the network's own.

    They are compared on all samples at once and on smaller batches, down to a single sample.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it, with a less clear message
    except ImportError as error:
        rule = "--format onnx must have onnx, onnxscript and onnxruntime"
        advice = "pip install 'fedloom[onnx]'"
        raise FedloomError(rule, f"{error.name} is missing", advice) from None
    if whole.dispatches:
        export(file, without_norms(whole), samples)
    else:
        export(file, whole, samples)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    batches = [samples[:number] for number in BATCHES]
    return max(difference(session, whole, batch) for batch in [*batches, samples])


class ScaleAndShift(nn.Module):
    """BN in evaluation mode: every channel is multiplied by a number, and a number is added.

    It replaces BN where samples take their own paths. There an operation may get any number of
    samples, even none; BN asks whether that number is 0, which torch's exporter cannot trace.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None and norm.running_var is not None
        scale = 1 / torch.sqrt(norm.running_var.double() + norm.eps)
        if norm.weight is not None:
            scale = norm.weight.detach().double() * scale
        shift = -norm.running_mean.double() * scale
        if norm.bias is not None:
            shift = shift + norm.bias.detach().double()
        dtype = norm.running_mean.dtype
        self.register_buffer("scale", scale.to(dtype).view(1, -1, 1, 1))
        self.register_buffer("shift", shift.to(dtype).view(1, -1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


def without_norms(whole: Whole) -> Whole:
    """A copy in which every BN is a scale and a shift."""
    copied = deepcopy(whole)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            copied.set_submodule(name, ScaleAndShift(layer))
    copied.eval()
    return copied


def export(file: Path, whole: Whole, samples: torch.Tensor) -> None:
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these warnings are about torch's internals
            torch.onnx.export(
                whole,
                (samples[:2],),
                str(file),
                input_names=["samples"],
                output_names=["scores"],
                dynamo=True,
                dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # torch's exporter raises many types of errors
        failure = f"torch's exporter failed ({type(error).__name__}: {first_line(error)})"
        rule = "a network must be one that ONNX can hold"
        raise FedloomError(rule, failure, "use --format torch") from error
    finally:
        logger.setLevel(before)


@torch.no_grad()
def difference(session: object, whole: Whole, samples: torch.Tensor) -> float:
    (scores,) = session.run(None, {"samples": samples.numpy()})  # type: ignore[attr-defined]
    return float(np.abs(scores - whole(samples).numpy()).max())

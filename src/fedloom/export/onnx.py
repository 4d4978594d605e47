"""A network as ONNX, for any number of samples at a time, and compared with onnxruntime."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import torch

from fedloom.errors import FedloomError
from fedloom.export.tracing import Whole, first_line


def write(file: Path, whole: Whole, samples: torch.Tensor) -> float:
    """The largest difference of a score from the network's own.

    It is taken over all samples, and over the first alone.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it, and says so less clearly
    except ImportError as error:
        rule = "--format onnx must have onnx, onnxscript and onnxruntime"
        advice = "pip install 'fedloom[onnx]'"
        raise FedloomError(rule, f"{error.name} is missing", advice) from None
    export(file, whole, samples)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return max(difference(session, whole, part) for part in (samples, samples[:1]))


def export(file: Path, whole: Whole, samples: torch.Tensor) -> None:
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own insides
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
    except Exception as error:  # torch's exporter raises many kinds
        failure = f"torch's exporter failed ({type(error).__name__}: {first_line(error)})"
        rule = "a network must be one that ONNX can hold"
        raise FedloomError(rule, failure, "use --format torch") from error
    finally:
        logger.setLevel(before)


@torch.no_grad()
def difference(session: object, whole: Whole, samples: torch.Tensor) -> float:
    (scores,) = session.run(None, {"samples": samples.numpy()})  # type: ignore[attr-defined]
    return float(np.abs(scores - whole(samples).numpy()).max())

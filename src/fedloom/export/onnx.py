"""A network as ONNX, for any number of samples at a time, and compared with onnxruntime."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import torch

from fedloom.errors import FedloomError
from fedloom.export.tracing import Whole


def write(file: Path, whole: Whole, samples: torch.Tensor) -> float:
    """The largest difference of a score from the network's own, over all samples and over the first alone."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it, and says so less clearly
    except ImportError as error:
        must = "--format onnx must have onnx, onnxscript and onnxruntime"
        raise FedloomError(must, f"{error.name} is missing", "pip install 'fedloom[onnx]'") from None
    export(file, whole, samples)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return max(difference(session, whole, part) for part in (samples, samples[:1]))


def export(file: Path, whole: Whole, samples: torch.Tensor) -> None:
    loud, quiet = logging.getLogger("torch.onnx"), logging.ERROR
    before = loud.level
    loud.setLevel(quiet)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own insides
            torch.onnx.export(
                whole, (samples[:2],), str(file), input_names=["samples"], output_names=["scores"], dynamo=True,
                dynamic_shapes={"x": {0: torch.export.Dim("batch")}}, external_data=False, verbose=False,
            )  # fmt: skip
    except Exception as error:  # torch's exporter raises many kinds
        text = str(error).strip().splitlines()
        found = f"torch's exporter failed ({type(error).__name__}: {text[0] if text else ''})"
        raise FedloomError("a network must be one that ONNX can hold", found, "use --format torch") from error
    finally:
        loud.setLevel(before)


@torch.no_grad()
def difference(session: object, whole: Whole, samples: torch.Tensor) -> float:
    (found,) = session.run(None, {"samples": samples.numpy()})  # type: ignore[attr-defined]
    return float(np.abs(found - whole(samples).numpy()).max())

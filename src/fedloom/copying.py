"""Copying many tensors into many others with one call."""

from __future__ import annotations

from collections.abc import Mapping

import torch


@torch.no_grad()
def copy_all(targets: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    """Copy the value of the same name into every target.

    Their shapes must be equal: torch would broadcast a smaller value.
    """
    sources = [values[name] for name in targets]
    for (name, target), source in zip(targets.items(), sources, strict=True):
        if source.shape != target.shape:
            rule = f"{name} must have the shape {list(target.shape)}"
            raise RuntimeError(f"{rule}, got {list(source.shape)}")
    torch._foreach_copy_(list(targets.values()), sources)

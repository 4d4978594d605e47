"""Many tensors into many others, by one call."""

from __future__ import annotations

from collections.abc import Mapping

import torch


@torch.no_grad()
def copy_all(targets: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    """Every target gets the value of its name.

    Their shapes must be the same: torch would repeat a smaller value.
    """
    sources = [values[name] for name in targets]
    for (name, target), source in zip(targets.items(), sources, strict=True):
        if source.shape != target.shape:
            rule = f"{name} must have the shape {list(target.shape)}"
            raise RuntimeError(f"{rule}, got {list(source.shape)}")
    torch._foreach_copy_(list(targets.values()), sources)

"""Sparse training: Raihan, Aamodt, "Sparse Weight Activation Training", NeurIPS 2020 (SWAT); and
how a reply carries the kept part of a tensor.

In the forward pass and for the gradient of its input, a layer uses only its largest weights; for
the gradient of its weights it uses only the largest of its inputs. All weights get a gradient.
Hardware for sparse products could skip most of the work; here every product is computed, zeros
included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

LAYERS = (nn.Conv2d, nn.Linear, nn.RNNBase)  # the layers that compute products with weights

# Prefixes of a tensor's name in a reply.
KEPT = "kept/"  # its kept values, one after the other
BITS = "bits/"  # one bit per element: whether it was kept


def kept_count(elements: int, share: float) -> int:
    """Returns how many elements are kept: the share, rounded to a whole number, at least one."""
    return min(elements, max(1, round(share * elements)))


def largest(tensor: torch.Tensor, share: float) -> torch.Tensor:
    """Returns a mask of this share of a tensor's elements, the largest by absolute value."""
    flat = tensor.detach().abs().reshape(-1)
    mask = torch.zeros(flat.shape, dtype=torch.bool, device=tensor.device)
    if flat.numel():
        mask[flat.topk(kept_count(flat.numel(), share), sorted=False).indices] = True
    return mask.view(tensor.shape)


def pruned(tensor: torch.Tensor, share: float) -> torch.Tensor:
    """Returns the tensor with zeros in place of all but its largest elements."""
    return tensor.detach() * largest(tensor, share)


def sparse_names(net: nn.Module) -> list[str]:
    """Returns the names of the weights that sparse layers prune. Biases and BN stay whole."""
    names = []
    for prefix, module in net.named_modules():
        if isinstance(module, LAYERS):
            for name in weights_in(module):
                names.append(f"{prefix}.{name}".removeprefix("."))
    return names


def weights_in(module: nn.Module) -> dict[str, nn.Parameter]:
    weights = {}
    for name, parameter in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            weights[name] = parameter
    return weights


@contextmanager
def sparse_layers(net: nn.Module, sparsity: float) -> Iterator[None]:
    """Inside this context, the network's layers train as in SWAT."""
    if sparsity == 0:
        yield
        return
    modules = [module for module in net.modules() if isinstance(module, LAYERS)]
    for module in modules:
        sparse = partial(sparse_forward, module, module.forward, 1 - sparsity)
        vars(module)["forward"] = sparse  # it hides the class's method until it is deleted
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["forward"]


def sparse_forward(
    module: nn.Module,
    forward: Callable[..., Any],
    share: float,
    x: torch.Tensor,
    *others: Any,
) -> Any:
    """Runs a layer's own forward pass with pruned weights.

    The input that it saves for the backward pass is pruned too.
    """
    weights = list(weights_in(module).values())
    unpruned = [weight.data for weight in weights]

    def save(tensor: torch.Tensor) -> torch.Tensor:
        is_input = tensor.data_ptr() == x.data_ptr() and tensor.numel() == x.numel()
        if is_input:
            return pruned(tensor, share)
        return tensor.detach()  # if it is a weight, it is the pruned one now

    for weight in weights:
        weight.data = pruned(weight.data, share)
    try:
        with saved_tensors_hooks(save, lambda tensor: tensor):
            return forward(x, *others)
    finally:
        for weight, values in zip(weights, unpruned, strict=True):
            weight.data = values


# How a reply carries the kept part


def packed(name: str, tensor: torch.Tensor, share: float) -> dict[str, torch.Tensor]:
    """Returns the largest elements of a tensor, and where they are."""
    mask = largest(tensor, share).reshape(-1)
    bits = np.packbits(mask.numpy(force=True))
    return {
        f"{KEPT}{name}": tensor.detach().reshape(-1)[mask].cpu(),
        f"{BITS}{name}": torch.from_numpy(bits),
    }


def mask_in(reply: Mapping[str, torch.Tensor], name: str, shape: torch.Size) -> torch.Tensor:
    """Returns a mask of the elements that a reply has of a tensor of this shape."""
    bits = reply[f"{BITS}{name}"].numpy(force=True)
    flat = np.unpackbits(bits, count=math.prod(shape)).astype(bool)
    return torch.from_numpy(flat).view(shape)


def unpacked(
    reply: Mapping[str, torch.Tensor],
    name: str,
    sent: torch.Tensor,
) -> torch.Tensor:
    """Returns the whole tensor. Elements that the reply does not have are those that were sent."""
    whole = sent.clone().reshape(-1)
    mask = mask_in(reply, name, sent.shape).reshape(-1)
    whole[mask] = reply[f"{KEPT}{name}"].to(whole.dtype)
    return whole.view(sent.shape)


def fault_in(
    reply: Mapping[str, torch.Tensor],
    name: str,
    sent: torch.Tensor,
    share: float,
) -> str | None:
    """Returns why the kept part of a tensor cannot be an honest one, or None if it can be."""
    kept = reply.get(f"{KEPT}{name}")
    bits = reply.get(f"{BITS}{name}")
    if kept is None or bits is None:
        return f"the kept part of {name!r} is missing"
    count = kept_count(sent.numel(), share)
    if kept.dtype != sent.dtype or tuple(kept.shape) != (count,):
        return f"the kept part of {name!r} is not {count} numbers of {sent.dtype}"
    if bits.dtype != torch.uint8 or tuple(bits.shape) != (-(-sent.numel() // 8),):
        return f"the places of {name!r} are not a bit for each of {sent.numel()} elements"
    places = np.unpackbits(bits.numpy(force=True))
    if int(places.sum()) != count or places[sent.numel() :].any():
        return f"the places of {name!r} are not {count} of {sent.numel()}"
    return None

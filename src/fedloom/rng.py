"""The seed tree: every random draw has a name, and the name alone decides it.

A draw named by (seed, round, client, purpose) is the same in whichever process, order or attempt it
is made; this is what makes 1, 2 and 3 workers, and a resumed run, end with equal bits.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Part = int | str


def key(seed: int, *path: Part) -> int:
    """A 63-bit seed for the draw that `path` names. Types count: 1 and "1" are different names."""
    name = "/".join(f"{type(part).__name__}:{part}" for part in (seed, *path))
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def rng(seed: int, *path: Part) -> np.random.Generator:
    """A numpy generator for the draw that `path` names."""
    return np.random.Generator(np.random.PCG64(key(seed, *path)))


def torch_rng(seed: int, *path: Part) -> "torch.Generator":
    """A torch generator (on the CPU, whatever the device) for the draw that `path` names."""
    import torch

    return torch.Generator().manual_seed(key(seed, *path))

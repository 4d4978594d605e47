"""`python -m fedloom.commands.probing`: is torch's own strided 1×1 convolution sound here?

The probe is a separate process, because it may not survive (`fedloom.nets.strided` says why):
where the convolution is not sound, memory is corrupted, and the process crashes, hangs, or
computes wrong gradients. The networks of this project are not affected: all of them slice first.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from fedloom.federation.protocol.deaths import Death

# glibc's allocator that looks for damage; since glibc 2.34 it is a separate library
CHECKING = "libc_malloc_debug.so.0"
SECONDS = 60.0  # after which a probe is taken to hang: it takes about four, most of them to start
TRIES = 20  # damage is only seen when the memory beside the workspace is used again
CHANNELS = range(1, 17)  # fewer than a block of oneDNN, 8 or 16
# exit codes
SOUND = 0
WRONG = 3


@dataclass(frozen=True)
class Answer:
    sound: bool
    text: str  # completes the sentence "torch's strided 1×1 convolution …"


def has_checking_allocator() -> bool:
    try:
        ctypes.CDLL(CHECKING)
    except OSError:
        return False
    return True


def checked_environment() -> dict[str, str]:
    """Environment of a process that stops at the first damage to its memory.

    Where the system has no such allocator, it is an ordinary environment.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if has_checking_allocator():
        environment |= {"LD_PRELOAD": CHECKING, "MALLOC_CHECK_": "3"}
    return environment


def ask(environment: dict[str, str]) -> Answer:
    """Start the probe in a separate process, and interpret how it ends."""
    command = [sys.executable, "-P", "-m", "fedloom.commands.probing"]
    try:
        ended = subprocess.run(
            command,
            env=environment,
            timeout=SECONDS,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(sound=False, text=f"did not come to an end within {SECONDS:g} s")
    if ended.returncode == SOUND:
        return Answer(sound=True, text="computes correctly here")
    if ended.returncode == WRONG:
        return Answer(sound=False, text="computes wrong gradients here")
    if ended.returncode < 0:
        death = Death(ended.returncode)
        return Answer(sound=False, text=f"corrupts memory here: a process that tried it {death}")
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    raise RuntimeError(f"the probe {Death(ended.returncode)}: {''.join(last)}")


def main() -> int:
    import torch

    torch.set_num_threads(1)
    with suppress(ImportError, ValueError):  # an expected crash must leave no core file
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for channels in CHANNELS:
        for _ in range(TRIES):
            if not is_right(channels):
                return WRONG
    return SOUND


def is_right(channels: int) -> bool:
    """Whether the weight's gradient agrees with that in float64, which oneDNN does not compute."""
    import torch
    from torch.nn import functional

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        draw = torch.Generator().manual_seed(channels)
        x = torch.randn(8, channels, 16, 16, generator=draw).to(dtype)
        x = x.contiguous(memory_format=torch.channels_last)
        weight = torch.randn(8, channels, 1, 1, generator=draw).to(dtype)
        weight = weight.contiguous(memory_format=torch.channels_last).requires_grad_()
        functional.conv2d(x, weight, stride=2).square().sum().backward()
        assert weight.grad is not None
        return weight.grad.double()

    computed = gradient(torch.float32)
    exact = gradient(torch.float64)
    return torch.allclose(computed, exact, rtol=1e-3, atol=1e-2)


if __name__ == "__main__":
    sys.exit(main())

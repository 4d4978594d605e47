"""Networks leave memory alone, under an allocator that looks for damage: `make test-memory`.

The passes run once as oneDNN computes on this CPU, and once as on a CPU with only AVX2: the same
network may be sound with one and corrupt memory with the other. `fedloom.nets.strided` describes
what was found in this way.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from every_network import ARCHITECTURES, CHANNELS, LAYOUTS, spaces
from fedloom.commands.probing import ask, checked_environment, has_checking_allocator
from fedloom.networks import NETWORKS

HERE = Path(__file__).parent
ISA = {"native": {}, "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
MINUTES = 2.5  # for one pass over everything, which takes half of one

pytestmark = [
    pytest.mark.memory,
    pytest.mark.skipif(
        not has_checking_allocator(),
        reason="memory cannot be checked without glibc's libc_malloc_debug.so.0, which glibc 2.34 "
        "and later include",
    ),
]


def environment(isa: str) -> dict[str, str]:
    path = [str(HERE.parent)]
    if "PYTHONPATH" in os.environ:
        path.append(os.environ["PYTHONPATH"])
    return {**checked_environment(), **ISA[isa], "PYTHONPATH": os.pathsep.join(path)}


def test_damage_would_be_seen():
    """Torch's own strided 1×1 convolution does some with AVX2.

    If it no longer does, look for another control.
    """
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this CPU has no AVX2: there is nothing known here that damages memory")
    answer = ask(environment("AVX2"))
    assert not answer.sound, f"torch {torch.__version__}: the strided 1×1 convolution {answer.text}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("isa", ISA)
def test_every_network_and_space_leaves_memory_alone(isa, layout):
    command = [sys.executable, "-P", str(HERE / "exercise.py"), layout]
    ended = subprocess.run(
        command, env=environment(isa), timeout=60 * MINUTES, capture_output=True, text=True
    )
    assert ended.returncode == 0, f"it ended with {ended.returncode}: {ended.stderr[-2000:]}"
    built = 0
    for channels in CHANNELS:
        built += len(NETWORKS.names()) + (1 + ARCHITECTURES) * len(list(spaces(channels)))
    assert int(ended.stdout) % built == 0 < int(ended.stdout)

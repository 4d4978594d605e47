"""Are 10 MB encoded and decoded about as fast as memory is copied?

    python bench/bench_wire.py

Encoding copies the tensors into one message, and decoding copies them out again into new memory, so
the yardstick is two copies of the same bytes into new memory. All other work is per tensor: a line
of the header is written, read and checked. So the same 10 MB are measured in 1, in 50 and in 2,000
tensors; many small ones cost more in any format. safetensors and pickle are included for
comparison: safetensors checks less of what it reads, and pickle runs code.

A server only makes views of a reply ("decode to views"): nothing is copied until the mean is taken.
Messages of one layout follow one another here as in a run, so a table that was checked before is
not checked again.
"""

from __future__ import annotations

import pickle
from functools import partial

import safetensors.torch
import torch

from fedloom.federation.protocol.wire import read_reply, read_state, reply_chunks, state_chunks
from fedloom.types import Reply, State, Tensors
from measuring import heading, in_turns, verdict

BYTES = 10_000_000
REPEATS = 30
CLOSE = 2.0  # the largest accepted ratio to the two copies


def main() -> None:
    heading("Wire: encode + decode of 10 MB")
    torch.set_num_threads(1)
    for count in (1, 50, 2000):
        ratio = measure(count)
        verdict(
            f"  {count:,}",
            f"{ratio:.2f}× the time of two copies",
            f"at most {CLOSE:g}×",
            ratio <= CLOSE,
        )


def encode(tensors: Tensors) -> bytearray:
    return bytearray().join(state_chunks(State(tensors)))


def ours(tensors: Tensors) -> Tensors:
    return read_state(encode(tensors)).tensors


def copies(flat: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(flat.numpy().data), dtype=torch.float32).clone()


def by_safetensors(tensors: dict[str, torch.Tensor]) -> Tensors:
    return safetensors.torch.load(safetensors.torch.save(tensors))


def by_pickle(tensors: Tensors) -> Tensors:
    decoded: Tensors = pickle.loads(pickle.dumps(tensors, protocol=5))  # noqa: S301 - our own bytes
    return decoded


def measure(count: int) -> float:
    """Print one table, and return encode + decode relative to the two copies."""
    elements = BYTES // 4 // count
    tensors = {}
    for number in range(count):
        name = f"cells.{number // 250}.ops.{number % 250}.weight"
        tensors[name] = torch.randn(elements)
    flat = torch.randn(elements * count)
    message = encode(tensors)
    reply = bytearray().join(reply_chunks(Reply(0, tensors, 1.0)))
    timings = in_turns(
        {
            "two copies": partial(copies, flat),
            "fedloom": partial(ours, tensors),
            "  encode": partial(encode, tensors),
            "  decode": partial(read_state, message),
            "  decode to views": partial(read_reply, reply),
            "safetensors": partial(by_safetensors, tensors),
            "pickle": partial(by_pickle, tensors),
        },
        REPEATS,
    )
    tensors_text = "1 tensor"
    if count > 1:
        tensors_text = f"{count:,} tensors"
    print(f"{tensors_text} of {4 * elements / 1000:,.0f} kB:")
    two_copies = timings["two copies"].best
    for name, timing in timings.items():
        print(f"  {name:18} {timing}  {timing.best / two_copies:6.2f}×")
    return timings["fedloom"].best / two_copies


if __name__ == "__main__":
    main()

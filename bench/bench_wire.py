"""Do 10 MB go through the wire about as fast as memory is copied?

Encoding copies the tensors into one message, decoding copies them out again into memory of their own, so the yardstick
is two copies of the same bytes into new memory. Everything else is per tensor: a line of the header is written, read
and checked. So the same 10 MB are measured in 1, in 50 and in 2,000 tensors; many small ones cost more for anybody.
safetensors and pickle are there for orientation: safetensors checks less of what it reads, pickle runs code.

A server only looks at a reply ("decode to views"): nothing is copied until the mean is taken. Messages of one layout
follow one another here as they do in a run, so a table that was checked before is not checked again.
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
CLOSE = 2.0  # times the copies


def encode(tensors: Tensors) -> bytearray:
    return bytearray().join(state_chunks(State(tensors)))


def ours(tensors: Tensors) -> Tensors:
    return read_state(encode(tensors)).tensors


def copies(flat: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(flat.numpy().data), dtype=torch.float32).clone()


def by_safetensors(tensors: dict[str, torch.Tensor]) -> Tensors:
    return safetensors.torch.load(safetensors.torch.save(tensors))


def by_pickle(tensors: Tensors) -> Tensors:
    found: Tensors = pickle.loads(pickle.dumps(tensors, protocol=5))  # noqa: S301 - our own bytes
    return found


def measure(count: int) -> float:
    """Prints one table; how many times the two copies encode + decode takes."""
    elements = BYTES // 4 // count
    tensors = {f"cells.{i // 250}.ops.{i % 250}.weight": torch.randn(elements) for i in range(count)}
    flat, message = torch.randn(elements * count), encode(tensors)
    reply = bytearray().join(reply_chunks(Reply(0, tensors, 1.0)))
    found = in_turns({
        "two copies": partial(copies, flat),
        "fedloom": partial(ours, tensors),
        "  encode": partial(encode, tensors),
        "  decode": partial(read_state, message),
        "  decode to views": partial(read_reply, reply),
        "safetensors": partial(by_safetensors, tensors),
        "pickle": partial(by_pickle, tensors),
    }, REPEATS)  # fmt: skip
    print(f"{count:,} tensor{'s' * (count > 1)} of {4 * elements / 1000:,.0f} kB:")
    for name, timing in found.items():
        print(f"  {name:18} {timing}  {timing.best / found['two copies'].best:6.2f}×")
    return found["fedloom"].best / found["two copies"].best


def main() -> None:
    heading("Wire: encode + decode of 10 MB")
    torch.set_num_threads(1)
    for count in (1, 50, 2000):
        ratio = measure(count)
        verdict(f"  {count:,}", f"{ratio:.2f}× the time of two copies", f"at most {CLOSE:g}×", ratio <= CLOSE)


if __name__ == "__main__":
    main()

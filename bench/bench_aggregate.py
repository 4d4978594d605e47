"""Is the one aggregation fast, and does its memory stay the same for any number of clients?

The named loop is what most code does: for each key, Σ n·w over the clients in float64, divide, back
to float32. Integers (the counters of batch normalisation) take the maximum. Both must give the same
bits. Two layouts: about 2,000 tensors, as a DARTS supernet has, and 50, as a plain network has.

"From the spool" is what a round does: replies are in files, and the loop must first decode their
tensors. "In memory" both start from decoded replies, the loop from plain dictionaries of tensors.

Memory is the peak of the process's own memory (mapped files belong to the page cache), in a new
process each time.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.federation.server.spool import Place, Spooled
from fedloom.files import map_file, write_whole
from fedloom.types import Reply, Tensors
from measuring import heading, in_new_process, in_turns, memory, verdict

CLIENTS = 8
MANY = 64
REPEATS = 15


def layout(blocks: int, channels: int) -> dict[str, torch.Tensor]:
    """Blocks of a depthwise and a pointwise convolution and a batch normalisation.

    Each block has five tensors.
    """
    tensors: dict[str, torch.Tensor] = {}
    for block in range(blocks):
        name = f"cells.{block // 50}.edges.{block % 50 // 4}.ops.{block % 4}"
        tensors[f"{name}.0.weight"] = torch.randn(channels, 1, 3, 3)
        tensors[f"{name}.1.weight"] = torch.randn(channels, channels, 1, 1)
        tensors[f"{name}.2.running_mean"] = torch.randn(channels)
        tensors[f"{name}.2.running_var"] = torch.rand(channels)
        tensors[f"{name}.2.num_batches_tracked"] = torch.tensor(block)
    return tensors


LAYOUTS = {
    "2,000 tensors": (400, 65),
    "50 tensors": (10, 442),
}  # blocks and channels: 2 M parameters


def per_key_loop(replies: list[Reply]) -> Tensors:
    weights = [reply.weight for reply in replies if isinstance(reply.weight, float)]
    mean = {}
    for key, first in replies[0].tensors.items():
        if not first.is_floating_point():
            mean[key] = torch.stack([reply.tensors[key] for reply in replies]).amax(0)
            continue
        summed = torch.zeros(first.shape, dtype=torch.float64)
        for weight, reply in zip(weights, replies, strict=True):
            summed += weight * reply.tensors[key].double()
        mean[key] = (summed / sum(weights)).float()
    return mean


def write_replies(folder: Path, old: Tensors, clients: int) -> Spooled:
    places = []
    for client in range(clients):
        tensors = {
            key: tensor + client if tensor.is_floating_point() else tensor
            for key, tensor in old.items()
        }
        path = folder / f"{client}.reply"
        write_whole(path, reply_chunks(Reply(client, tensors, 100.0 + client)), durable=False)
        places.append(Place(client, path))
    return Spooled(tuple(places))


def plain(reply: Reply) -> Reply:
    return replace(reply, tensors={key: tensor.clone() for key, tensor in reply.tensors.items()})


def speed(name: str, folder: Path) -> None:
    torch.set_num_threads(1)  # as the server of a run has
    old = layout(*LAYOUTS[name])
    spooled = write_replies(folder, old, CLIENTS)
    packed = list(spooled)
    decoded = [plain(reply) for reply in spooled]
    ours = aggregate(old, packed)
    named = per_key_loop(decoded)
    same = all(torch.equal(ours[key], named[key]) for key in old)
    timings = in_turns(
        {
            "the named loop, from the spool": lambda: per_key_loop(
                [plain(reply) for reply in spooled]
            ),
            "fedloom, from the spool": lambda: aggregate(old, spooled),
            "the named loop, in memory": lambda: per_key_loop(decoded),
            "fedloom, in memory": lambda: aggregate(old, packed),
        },
        REPEATS,
    )
    print(
        f"{CLIENTS} clients × {sum(tensor.numel() for tensor in old.values()) / 1e6:.2f} M "
        f"parameters in {name}:"
    )
    for alternative, timing in timings.items():
        print(f"  {alternative:31} {timing}")
    print(f"  same bits: {'yes' if same else 'NO'}")
    times = [timing.best for timing in timings.values()]
    for where, ratio in ("from the spool", times[0] / times[1]), ("in memory", times[2] / times[3]):
        verdict(
            f"  {name} {where}", f"{ratio:.1f}× the named loop", "at least 4×", same and ratio >= 4
        )


def peak(name: str, folder: str, clients: int) -> None:
    """Print the peak memory beyond what this process had before; it runs in its own process."""
    old = layout(*LAYOUTS[name])
    paths = [Path(folder) / f"{client}.reply" for client in range(clients)]
    places = [Place(client, path) for client, path in enumerate(paths)]
    aggregate(old, [read_reply(map_file(paths[0]))])  # libraries warm up
    before = memory()["anon"]
    most = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], memory()["anon"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = aggregate(old, Spooled(tuple(places)))
    done.set()
    watcher.join()
    print(json.dumps(max(most[0], memory()["anon"]) - before), flush=True)
    del result


def main() -> None:
    heading("Aggregation: the weighted mean of 8 clients")
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        for name in LAYOUTS:
            speed(name, Path(folder))
            print()
        write_replies(Path(folder), layout(*LAYOUTS[name]), MANY)
        few, many = (
            in_new_process(__file__, name, folder, clients) / 2**20 for clients in (CLIENTS, MANY)
        )
    print(f"peak memory: {CLIENTS} clients {few:.1f} MiB, {MANY} clients {many:.1f} MiB")
    verdict(
        "memory",
        f"{many / few:.2f}× for {MANY // CLIENTS}× the clients",
        "constant",
        many < 1.1 * few,
    )


if __name__ == "__main__":
    peak(sys.argv[1], sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 1 else main()

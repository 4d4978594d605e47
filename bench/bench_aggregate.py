"""Is the one aggregation fast, and does its memory stay the same for any number of clients?

    python bench/bench_aggregate.py

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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.federation.server.spool import Place, Spooled
from fedloom.files import map_file, write_whole
from fedloom.types import Reply, Tensors
from measuring import heading, in_new_process, in_turns, own_memory, verdict

CLIENTS = 8
MANY = 64
REPEATS = 15


@dataclass(frozen=True)
class Layout:
    """About two million parameters in so many blocks of so many channels."""

    blocks: int
    channels: int


LAYOUTS = {"2,000 tensors": Layout(400, 65), "50 tensors": Layout(10, 442)}
LAYOUT_OF_MEMORY = "50 tensors"


def main() -> None:
    heading("Aggregation: the weighted mean of 8 clients")
    with TemporaryDirectory(prefix="fedloom-bench-") as folder:
        for name in LAYOUTS:
            speed(name, Path(folder))
            print()
        write_replies(Path(folder), tensors_of(LAYOUTS[LAYOUT_OF_MEMORY]), MANY)
        few = in_new_process(__file__, LAYOUT_OF_MEMORY, folder, CLIENTS) / 2**20
        many = in_new_process(__file__, LAYOUT_OF_MEMORY, folder, MANY) / 2**20
    print(f"peak memory: {CLIENTS} clients {few:.1f} MiB, {MANY} clients {many:.1f} MiB")
    verdict(
        "memory",
        f"{many / few:.2f}× for {MANY // CLIENTS}× the clients",
        "constant",
        many < 1.1 * few,
    )


def speed(name: str, folder: Path) -> None:
    torch.set_num_threads(1)  # as the server of a run has
    old = tensors_of(LAYOUTS[name])
    spooled = write_replies(folder, old, CLIENTS)
    packed = list(spooled)
    decoded = all_plain(spooled)
    same = equal(aggregate(old, packed), per_key_loop(decoded))
    timings = in_turns(
        {
            "the named loop, from the spool": lambda: per_key_loop(all_plain(spooled)),
            "fedloom, from the spool": lambda: aggregate(old, spooled),
            "the named loop, in memory": lambda: per_key_loop(decoded),
            "fedloom, in memory": lambda: aggregate(old, packed),
        },
        REPEATS,
    )
    parameters = sum(tensor.numel() for tensor in old.values())
    print(f"{CLIENTS} clients × {parameters / 1e6:.2f} M parameters in {name}:")
    for alternative, timing in timings.items():
        print(f"  {alternative:31} {timing}")
    if same:
        print("  same bits: yes")
    else:
        print("  same bits: NO")
    for where in ("from the spool", "in memory"):
        ratio = timings[f"the named loop, {where}"].best / timings[f"fedloom, {where}"].best
        result = f"{ratio:.1f}× the named loop"
        verdict(f"  {name} {where}", result, "at least 4×", same and ratio >= 4)


def tensors_of(layout: Layout) -> dict[str, torch.Tensor]:
    """Blocks of a depthwise and a pointwise convolution and a batch normalisation.

    Each block has five tensors.
    """
    channels = layout.channels
    tensors: dict[str, torch.Tensor] = {}
    for block in range(layout.blocks):
        name = f"cells.{block // 50}.edges.{block % 50 // 4}.ops.{block % 4}"
        tensors[f"{name}.0.weight"] = torch.randn(channels, 1, 3, 3)
        tensors[f"{name}.1.weight"] = torch.randn(channels, channels, 1, 1)
        tensors[f"{name}.2.running_mean"] = torch.randn(channels)
        tensors[f"{name}.2.running_var"] = torch.rand(channels)
        tensors[f"{name}.2.num_batches_tracked"] = torch.tensor(block)
    return tensors


def write_replies(folder: Path, old: Tensors, clients: int) -> Spooled:
    places = []
    for client in range(clients):
        path = folder / f"{client}.reply"
        reply = Reply(client, tensors_of_client(old, client), 100.0 + client)
        write_whole(path, reply_chunks(reply), durable=False)
        places.append(Place(client, path))
    return Spooled(tuple(places))


def tensors_of_client(old: Tensors, client: int) -> Tensors:
    """Different floating-point numbers at every client, and the same integers."""
    tensors = {}
    for key, tensor in old.items():
        if tensor.is_floating_point():
            tensors[key] = tensor + client
        else:
            tensors[key] = tensor
    return tensors


def per_key_loop(replies: list[Reply]) -> Tensors:
    weights = [reply.weight for reply in replies if isinstance(reply.weight, float)]
    mean = {}
    for key, first in replies[0].tensors.items():
        if not first.is_floating_point():
            counters = [reply.tensors[key] for reply in replies]
            mean[key] = torch.stack(counters).amax(0)
            continue
        summed = torch.zeros(first.shape, dtype=torch.float64)
        for weight, reply in zip(weights, replies, strict=True):
            summed += weight * reply.tensors[key].double()
        mean[key] = (summed / sum(weights)).float()
    return mean


def all_plain(replies: Iterable[Reply]) -> list[Reply]:
    """The replies with decoded tensors, in plain dictionaries."""
    decoded = []
    for reply in replies:
        tensors = {key: tensor.clone() for key, tensor in reply.tensors.items()}
        decoded.append(replace(reply, tensors=tensors))
    return decoded


def equal(ours: Tensors, named: Tensors) -> bool:
    return all(torch.equal(tensor, named[key]) for key, tensor in ours.items())


def peak(name: str, folder: str, clients: int) -> None:
    """Print the peak memory beyond what this process had before; it runs in its own process."""
    old = tensors_of(LAYOUTS[name])
    paths = [Path(folder) / f"{client}.reply" for client in range(clients)]
    places = [Place(client, path) for client, path in enumerate(paths)]
    aggregate(old, [read_reply(map_file(paths[0]))])  # libraries warm up
    before = own_memory()
    watcher = Watcher()
    watcher.start()
    result = aggregate(old, Spooled(tuple(places)))
    most = max(watcher.stop(), own_memory())
    print(json.dumps(most - before), flush=True)
    del result


class Watcher(threading.Thread):
    """Looks at this process's memory every millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.001):
            self.most = max(self.most, own_memory())

    def stop(self) -> int:
        self.done.set()
        self.join()
        return self.most


if __name__ == "__main__":
    if len(sys.argv) > 1:
        peak(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()

"""Forward and backward passes of every network and space, under an allocator that checks memory.

`exercise.py LAYOUT` prints the number of passes. Damage ends the process with a signal.
"""

import sys
from pathlib import Path

import torch

from every_network import CHANNELS, every_network
from fedloom.commands.probing import CHECKING
from fedloom.spaces.mixed import Mixed

PASSES = 3  # of each network: damage is seen when the memory beside it is used again


def main(layout: str) -> None:
    if CHECKING.partition(".")[0] not in Path("/proc/self/maps").read_text():
        sys.exit(f"{CHECKING} is not loaded: nothing would be seen")
    torch.set_num_threads(1)
    passes = 0
    for channels in CHANNELS:
        for built in every_network(channels, layout):
            for _ in range(PASSES):
                built.net.zero_grad(set_to_none=True)
                built.net(built.samples).square().sum().backward()
                if isinstance(built.net, Mixed):
                    pass_both_batches(built.net, built.samples)
                passes += 1
    print(passes)


def pass_both_batches(mixed: Mixed, samples: torch.Tensor) -> None:
    """A search step's pass, where the network takes both batches at once."""
    scores = mixed.mix_both_to_train(samples, samples, list(mixed.alpha.values()))
    if scores is not None:
        (scores.train.square().sum() + scores.validation.square().sum()).backward()


if __name__ == "__main__":
    main(sys.argv[1])

"""The simple job as a bare torch loop: all that its result needs, and nothing else.

job_bare.py IMAGES LAYOUT CLIENTS    LAYOUT: default or channels_last; CLIENTS: how many a round
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path

import torch

import job


def main(images: job.Images, layout: str, clients: int) -> None:
    torch.set_num_threads(1)
    net = job.network()
    if layout == "channels_last":
        job.channels_last(net)
    weights = copied(net)
    conductor = job.Conductor()
    conductor.before_first_round()
    while True:
        weights = trained(net, weights, images, clients)
        conductor.after_round()


def trained(
    net: torch.nn.Module, weights: dict[str, torch.Tensor], images: job.Images, clients: int
) -> dict[str, torch.Tensor]:
    """One round: the mean of the clients' weights and BN statistics, weighted by samples."""
    totals = {}
    for name, tensor in weights.items():
        totals[name] = torch.zeros_like(tensor, dtype=torch.float)
    samples = 0
    for client in random.sample(range(job.CLIENTS), clients):
        x, y = images.of_client(client)
        job.train_client(net, weights, x, y)
        for name, tensor in net.state_dict().items():
            totals[name] += tensor * len(y)
        samples += len(y)
    means = {}
    for name, total in totals.items():
        means[name] = (total / samples).to(weights[name].dtype)
    return means


def copied(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


if __name__ == "__main__":
    with suppress(job.Finished):
        main(job.Images(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))

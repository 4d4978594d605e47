"""`fedloom gain`."""

from __future__ import annotations

import argparse
from typing import Any

from fedloom.commands.finishing import finish
from fedloom.commands.parsing import (
    Commands,
    add_command,
    number,
    optional_number,
    output_flags,
)
from fedloom.loading import load_torch


def add(commands: Commands) -> None:
    summary = "measure what each client gains by its own architecture: SPIDER's matrix p_ij"
    gain = add_command(commands, "gain", gain_command, summary)
    gain.add_argument("path", metavar="RUN")
    help_epochs = "epochs of fine-tuning for each cell of the matrix (default 30)"
    gain.add_argument("--epochs", default="30", metavar="N", help=help_epochs)
    help_clients = "only these clients (default: all that have an architecture)"
    gain.add_argument("--clients", metavar="A,B,…", help=help_clients)
    inherit = "start from the other client's weights (inherit, default)"
    fresh = "from new weights, to compare architectures alone (fresh)"
    gain.add_argument(
        "--start",
        choices=["inherit", "fresh"],
        default="inherit",
        help=f"{inherit}, or {fresh}",
    )
    help_lr = "initial learning rate of a cosine schedule (default: the run's)"
    gain.add_argument("--lr", metavar="RATE", help=help_lr)
    gain.add_argument("--workers", metavar="N", help="worker processes (default: as the run)")
    output_flags(gain)


def gain_command(options: argparse.Namespace) -> int:
    def measure() -> Any:
        load_torch()
        from fedloom.report.progress import open_screen
        from fedloom.runs.gains import find_gain

        clients = None
        if options.clients is not None:
            clients = [number("clients", text, int, 0) for text in options.clients.split(",")]
        workers = optional_number("workers", options.workers, int, 0)
        rate = optional_number("lr", options.lr, float, 0)
        epochs = number("epochs", options.epochs, int, 1)
        with open_screen(quiet=options.quiet or options.json) as screen:
            return find_gain(
                options.path,
                epochs=epochs,
                clients=clients,
                start=options.start,
                lr=rate,
                workers=workers,
                tell=screen.working,
            )

    return finish(options, measure)

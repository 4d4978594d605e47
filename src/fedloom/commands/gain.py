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
    about = "what each client's own architecture is worth to it: SPIDER's matrix p_ij"
    gain = add_command(commands, "gain", gain_command, about)
    gain.add_argument("path", metavar="RUN")
    help_epochs = "of fine-tuning, a cell (default 30)"
    gain.add_argument("--epochs", default="30", metavar="N", help=help_epochs)
    help_clients = "these alone (default: all with an architecture)"
    gain.add_argument("--clients", metavar="A,B,…", help=help_clients)
    inherit = "from the other client's weights (inherit, default)"
    fresh = "from fresh ones: architectures alone"
    gain.add_argument(
        "--start",
        choices=["inherit", "fresh"],
        default="inherit",
        help=f"{inherit}, or {fresh}",
    )
    help_lr = "first learning rate, falling as a cosine (default: the run's)"
    gain.add_argument("--lr", metavar="RATE", help=help_lr)
    gain.add_argument("--workers", metavar="N", help="worker processes (default: as the run)")
    output_flags(gain)


def gain_command(options: argparse.Namespace) -> int:
    def measure() -> Any:
        load_torch()
        from fedloom.report.progress import screen
        from fedloom.runs.gains import find_gain

        clients = None
        if options.clients is not None:
            clients = [number("clients", word, int, 0) for word in options.clients.split(",")]
        workers = optional_number("workers", options.workers, int, 0)
        rate = optional_number("lr", options.lr, float, 0)
        epochs = number("epochs", options.epochs, int, 1)
        with screen(quiet=options.quiet or options.json) as shown:
            return find_gain(
                options.path,
                epochs=epochs,
                clients=clients,
                start=options.start,
                lr=rate,
                workers=workers,
                tell=shown.working,
            )

    return finish(options, measure)

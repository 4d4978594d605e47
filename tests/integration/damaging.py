"""A run whose process ends in the middle of a round, damage to its files, and its resumption."""

from contextlib import suppress

import tiny

from fedloom.federation.server.events import Notice, Replied
from fedloom.records.folder import RunFolder
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.preparing import reopen
from fedloom.runs.running import carry_out

FIGURES = ("client", "result accuracy", "result clients", "result rounds")


def stopped_in_round(number, replies, out, method, configuration):
    """A run whose process ended when so many replies of round `number` had been noted."""
    seen = []

    def listen(event):
        if isinstance(event, Replied) and event.round == number:
            seen.append(event)
            if len(seen) == replies:
                raise tiny.Enough

    folder, prepared = create(configure(method, configuration), out)
    with suppress(tiny.Enough):
        carry_out(folder, prepared, listen)
        raise AssertionError("the run must stop")


def resumed(out):
    """To the end, and what the listener was told on the way."""
    notices = []
    folder = RunFolder.open(out)

    def listen(event):
        if isinstance(event, Notice):
            notices.append(event.text)

    carry_out(folder, reopen(folder), listen)
    return notices


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def figures_of(out):
    """Without the ledger: orders name fewer versions to keep where a checkpoint is gone."""
    return {
        name: value for name, value in tiny.left_behind(out).items() if name.startswith(FIGURES)
    }

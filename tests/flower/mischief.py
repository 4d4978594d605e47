"""A method whose client 1 misbehaves, as if installed at every site, and one that sends twice."""

from pathlib import Path

METHOD = '''
"""FedAvg whose client 1 misbehaves: `mischief` names what it does in round 1, 2, …

Both clients count their rounds.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import Fields, State


class Options(FedAvgOptions):
    mischief: str = ""
    seconds: float = 60.0
    marker: str = ""


@dataclass(frozen=True)
class Mischief(FedAvg):
    fields = {"train": Fields(tensors=("*",), meta=("loss", "worked"))}

    def client(self, order, data, own, run):
        worked = 1 + (0 if own is None else own.meta["worked"])
        reply, _ = super().client(order, data, own, run)
        reply = replace(reply, meta={**reply.meta, "worked": worked})
        todo = self.options.mischief.split(",")
        if order.client == 1 and order.stamp.round <= len(todo):
            reply = self.spoil(reply, todo[order.stamp.round - 1], order)
        return reply, State(meta={"worked": worked})

    def spoil(self, reply, what, order):
        name, tensor = next(iter(reply.tensors.items()))
        rest = {key: value for key, value in reply.tensors.items() if key != name}
        if what == "nan":
            return replace(reply, tensors={**rest, name: torch.full_like(tensor, float("nan"))})
        if what == "keys":
            return replace(reply, tensors={**rest, "another": tensor})
        if what == "count":
            return replace(reply, weight=1e9)
        if what == "size":
            whole = sum(value.nbytes for value in reply.tensors.values())
            large = torch.zeros(10 * whole + (2 << 20), dtype=torch.uint8)
            return replace(reply, tensors={**reply.tensors, "large": large})
        if what == "raise":
            raise ValueError("not today")
        if what == "other":
            return replace(reply, client=0)
        if what == "late":
            time.sleep(self.options.seconds)
        if what == "hang" and not Path(self.options.marker).exists():
            Path(self.options.marker).touch()
            time.sleep(1000)
        return reply


def stages(task):
    return (Stage("train", Mischief(Options(**task.options))),)


mischief = Recipe("Misbehaves", Options, stages)
'''

TWICE = """
import os

if os.environ.get("SENDS_TWICE"):
    from flwr.supernode.fleet_http_client import FleetHttpClient

    push, pull, sent = FleetHttpClient.PushMessages, FleetHttpClient.PullMessages, []

    def push_and_keep(self, request):
        sent.append(request)
        return push(self, request)

    def once_more(self, request):
        while sent:
            try:
                push(self, sent.pop())
                said = "taken"
            except Exception as error:
                said = f"refused: {error}"
            with open(os.environ["SENDS_TWICE"], "a") as file:
                file.write(said + "\\n")
        return pull(self, request)

    FleetHttpClient.PushMessages, FleetHttpClient.PullMessages = push_and_keep, once_more
"""


def install(folder: Path) -> Path:
    """A folder for PYTHONPATH in which `mischief` is an installed method."""
    (folder / "mischief-1.dist-info").mkdir(parents=True)
    (folder / "installed_mischief.py").write_text(METHOD)
    (folder / "sitecustomize.py").write_text(TWICE)
    (folder / "mischief-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: mischief\nVersion: 1\n"
    )
    points = "[fedloom.methods]\nmischief = installed_mischief:mischief\n"
    (folder / "mischief-1.dist-info" / "entry_points.txt").write_text(points)
    return folder

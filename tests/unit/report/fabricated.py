"""Run folders made by hand, without training: of any size, complete or damaged."""

import json

import numpy as np

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.records.folder import RunFolder
from result_files import client, result

__all__ = ["client", "counted", "make_run", "result", "row", "searched", "split_of", "totals"]

SPACE = "darts:s2:2"
USUAL = [
    [0],
    [1],
    [0],
    [1],
    [],
    [1],
    [1],
    [0],
    [0],
    [],
]  # choices of one architecture in that space
OTHER = [[0], [1], [0], [0], [], [1], [0], [0], [0], []]  # differs in slots 3 and 6


def split_of(clients, per_client=10):
    sizes = np.full(clients, per_client)
    return Split(
        data="made",
        digest="0" * 64,
        samples=int(sizes.sum()),
        partition="iid",
        seed=0,
        test_share=0.2,
        indices=np.arange(sizes.sum()),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        tests=np.full(clients, 2),
        server=np.zeros(0, np.int64),
    )


def totals(number):
    names = (
        "rounds",
        "down",
        "up",
        "lan_down",
        "lan_up",
        "macs",
        "seconds",
        "measured_clock",
        "evaluate_down",
        "evaluate_up",
    )
    sent = {"rounds": number, "down": 1000 * number, "up": 900 * number, "macs": 5000 * number}
    return {
        **dict.fromkeys(names, 0),
        **sent,
        "measured_clock": 0.5 * number,
        "wall": 1.5 * number,
        "evaluate_macs": 0,
    }


def row(number, accuracy=0.5, shared=None, **more):
    evaluation = {
        "part": "test",
        "clients": 3,
        "metric": "accuracy",
        "accuracy": accuracy,
        "shared": shared,
    }
    return {
        "stage": "train",
        "round": number,
        "progress": 0.0,
        "meta": {"loss": 1 / number},
        "replies": 3,
        "refused": [],
        "ledger": [[0, 0, 1000, 900, 5000, 0.5]],
        "evaluation": evaluation,
        "totals": totals(number),
        **more,
    }


def searched(choice):
    return {"space": SPACE, "choice": choice}


def make_run(path, rows=(), clients=None, config=None, split=None, classes=None, **more):
    """A run's folder; without `clients` it has no result yet."""
    folder = RunFolder.create("run", "x", path)
    experiment = Experiment(**{"data": {"name": "gone.npz"}, **(config or {})})
    folder.write_text("config.toml", experiment.to_toml())
    (split or split_of(len(clients or [1, 2, 3]))).save(path / "split.json")
    if classes is not None:
        folder.write_json("classes.json", classes)
    folder.write_text("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in rows))
    if clients is not None:
        folder.write_json("result.json", result(clients, **more))
    return folder


def counted(clients, labels=("cat", "dog")):
    counts = [[client % 3] * len(labels) for client in range(clients)]
    return {"labels": list(labels), "counts": counts, "names": [], "usual": 0.25}

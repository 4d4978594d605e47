"""Run folders made by hand, without training: what a report reads, in any size and any state of disrepair."""

import json

import numpy as np

from fedloom.config.models import Experiment
from fedloom.data.split import Split
from fedloom.records.folder import RunFolder

SPACE = "darts:s2:2"
USUAL = [[0], [1], [0], [1], [], [1], [1], [0], [0], []]  # choices of one architecture in that space
OTHER = [[0], [1], [0], [0], [], [1], [0], [0], [0], []]  # differs in slots 3 and 6


def split_of(clients, each=10):
    sizes = np.full(clients, each)
    return Split(
        data="made", digest="0" * 64, samples=int(sizes.sum()), partition="iid", seed=0, test_share=0.2,
        indices=np.arange(sizes.sum()), offsets=np.concatenate([[0], np.cumsum(sizes)]), tests=np.full(clients, 2),
        server=np.zeros(0, np.int64),
    )  # fmt: skip


def totals(number):
    names = ("rounds", "down", "up", "lan_down", "lan_up", "macs", "seconds", "clock", "evaluate_down", "evaluate_up")
    sent = {"rounds": number, "down": 1000 * number, "up": 900 * number, "macs": 5000 * number}
    return {**dict.fromkeys(names, 0), **sent, "clock": 0.5 * number, "wall": 1.5 * number, "evaluate_macs": 0}


def row(number, accuracy=0.5, shared=None, **more):
    told = {"part": "test", "clients": 3, "metric": "accuracy", "accuracy": accuracy, "shared": shared}
    return {
        "stage": "train", "round": number, "progress": 0.0, "meta": {"loss": 1 / number}, "replies": 3, "refused": [],
        "ledger": [[0, 0, 1000, 900, 5000, 0.5]], "evaluation": told, "totals": totals(number), **more,
    }  # fmt: skip


def client(number, accuracy=0.5, architecture="cnn:1", **more):
    interval = None if accuracy is None else [max(0.0, accuracy - 0.1), min(1.0, accuracy + 0.1)]
    return {
        "client": number, "samples": 10, "test_samples": 2, "accuracy": accuracy, "interval": interval, "f1": accuracy,
        "balanced_accuracy": accuracy, "auc": None, "shared_accuracy": None, "params": 7000, "macs": 90_000,
        "architecture": architecture, **more,
    }  # fmt: skip


def searched(choice):
    return {"space": SPACE, "choice": choice}


def result(clients, **more):
    known = [row["accuracy"] for row in clients if row["accuracy"] is not None]
    mean = sum(known) / len(known) if known else None
    figures = {"mean": mean, "std": 0.1 if known else None, "worst": min(known, default=None), "worst10": None,
               "pooled": mean}  # fmt: skip
    fields = {"tensors": ["*"], "extra": [], "values": ["loss", "weight"]}
    return {
        "method": "fedavg", "options": {"lr": 0.1}, "seed": 0, "metric": "accuracy", "lower_is_better": False,
        "accuracy": figures, "global": 0.4, "shared": None, "clients": clients, "confusion": None,
        "registered": len(clients), "rounds": 3, "selected": 3, "validation": None, "macs": 15_000, "seconds": 4.5,
        "clock": 1.5, "bytes": {"down": 3000, "up": 2700, "lan_down": 0, "lan_up": 0, "evaluate_down": 10,
                                "evaluate_up": 20},
        "data": {"name": "made", "partition": "iid", "split": "5" * 64},
        "versions": {"fedloom": "0", "torch": "2", "python": "3"},
        "privacy": {"left_the_clients": [{"stage": "train", "order": "train", "fields": fields, "seen_by": "server"}],
                    "observer": "of an embedded run only: sizes"}, **more,
    }  # fmt: skip


def make_run(path, rows=(), clients=None, config=None, split=None, classes=None, **more):
    """A run's folder; without `clients` it has no result yet."""
    folder = RunFolder.create("run", "x", path)
    experiment = Experiment(**{"data": {"name": "gone.npz"}, **(config or {})})
    folder.write_text("config.toml", experiment.to_toml())
    (split or split_of(len(clients or [1, 2, 3]))).save(path / "split.json")
    if classes is not None:
        folder.write_json("classes.json", classes)
    folder.write_text("metrics.jsonl", "".join(json.dumps(each) + "\n" for each in rows))
    if clients is not None:
        folder.write_json("result.json", result(clients, **more))
    return folder


def counted(clients, labels=("cat", "dog")):
    counts = [[k % 3 for _ in labels] for k in range(clients)]
    return {"labels": list(labels), "counts": counts, "names": [], "usual": 0.25}

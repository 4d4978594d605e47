"""Flower's Ray simulation gives the same bits as our own engine."""

from pathlib import Path

import pytest
import tiny

from fedloom.errors import RunStopped
from fedloom.runs.results import Run

pytestmark = pytest.mark.flower

SEARCH = {"cells": "3", "channels": "2", "nodes": "1", "ops": "s2", "batch": "8", "epochs": "1"}
GROUP = {
    "ops": "s3",
    "nodes": "1",
    "group": "2",
    "stack": "1",
    "lambda1": "1",
    "channels": "2",
    "batch": "8",
}
CHAIN = str(Path(__file__).parents[1] / "contract" / "short_chain.toml")
OPTIONS = {
    "auto": {"sizes": ".5,1", "width": "0.25", "batch": "8", "trial_epochs": "1"},
    "auto-tiers": {"widths": ".5,1", "width": "0.25", "batch": "8"},
    "fednas": {**SEARCH, "personal": "true"},
    "spider": {**SEARCH, "t_s": "1", "tau": "1"},
    "hfl": {"width": "0.25", "batch": "8", "cluster_size": "2"},
    "finch": {**GROUP, "cluster_size": "2"},
    "ca-fedpnas": {
        "base_cells": "1",
        "nodes": "1",
        "channels": "2",
        "batch": "8",
        "tune_share": "0.5",
    },
    "fedoras": {
        "space": CHAIN,
        "batch": "8",
        "epochs": "1",
        "models": "4",
        "pool": "2",
        "sample": "2",
    },
}
CASES = {
    "fedavg": ("fedavg", {"clients": 4, "rounds": 3, "budget": {"participation": 0.5}}),
    "fednas-personal": ("fednas", {"clients": 3, "rounds": 4}),
    "spider": ("spider", {"clients": 3, "rounds": 4}),
    "hfl": ("hfl", {"clients": 4, "rounds": 3}),  # in its clusters
    "hfl-clock": (  # clients leave and come too late, and aggregators are replaced
        "hfl",
        {
            "clients": 6,
            "rounds": 6,
            "devices": {"table": "phones"},
            "clock": {"availability": "duty:40,20", "dropout": 0.3, "round_deadline": 50.0},
            "budget": {"limits": "seconds=300,wan=10M"},
        },
    ),
    "updates-clock": (
        "fedavg",
        {
            "clients": 5,
            "rounds": 4,
            "engine": {"topology": "clustered:2x2"},
            "topology": {"clusters": "updates", "aggregator": "random", "recluster": 3},
            "devices": {"table": "phones"},
            "clock": {"dropout": 0.2},
        },
    ),
    "flat-clock": (
        "fedavg",
        {
            "clients": 4,
            "rounds": 6,
            "devices": {"table": "phones"},
            "clock": {"availability": "duty:0.6,0.3", "dropout": 0.2, "overselect": 1.3},
            "budget": {"participation": 0.75, "limits": "macs=1G"},
        },
    ),
    "auto": (
        "auto",
        {"clients": 3, "rounds": 10},
    ),  # a race, what it decides on sums, and fine-tuning
    "auto-tiers": ("auto-tiers", {"clients": 3, "rounds": 8}),
    "finch": (
        "finch",
        {"clients": 4, "rounds": 4},
    ),  # sub-spaces, scored by clients, with memories between hops
    "ca-fedpnas": (
        "ca-fedpnas",
        {"clients": 3, "rounds": 4},
    ),  # samples on their own paths, then tuning at home
    "fedoras": ("fedoras", {"clients": 4, "rounds": 4}),  # scored by clients: rounds of every stage
}


def settings(images, case, **engine):
    method, sections = CASES[case]
    tree = tiny.tree(images, **sections)
    tree["options"] = OPTIONS.get(method, tree.get("options", {}))
    tree["engine"] = {**tree["engine"], **engine}
    return method, tree


def unlike_local(images, tmp_path, case):
    method, tree = settings(images, case)
    tiny.start(tmp_path / "local", method, tree)
    return tiny.unlike(tiny.left_behind(tmp_path / "local"), tiny.left_behind(tmp_path / "run"))


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_the_local_engine(case, tmp_path):
    images = tiny.write_images(tmp_path / "images.npz", samples=90, side=8)
    method, tree = settings(images, case, kind="flower-sim", workers=2)
    tiny.start(tmp_path / "run", method, tree)
    assert unlike_local(images, tmp_path, case) == []


def test_another_private_model_leaves_everything_that_is_sent_as_it_is(tmp_path, monkeypatch):
    """SPIDER's promise, over a whole run: no message shows that the control decides by chance."""
    images = tiny.write_images(tmp_path / "images.npz", samples=90, side=8)
    messages = {}
    architectures = {}
    for search in ("own", "random"):
        method, tree = settings(images, "spider", kind="flower-sim", workers=2)
        tree["options"] = {**tree["options"], "search": search}
        with monkeypatch.context() as patched:
            messages[search] = tiny.overheard(patched)
            tiny.start(tmp_path / search, method, tree)
        clients = Run.open(tmp_path / search).result["clients"]
        architectures[search] = [client["architecture"] for client in clients]
    assert len(messages["own"]) == 12
    assert sorted(messages["own"]) == sorted(messages["random"])
    assert architectures["own"] != architectures["random"]


FAULTY = """
from dataclasses import dataclass
from pathlib import Path

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions


@dataclass(frozen=True)
class Faulty(FedAvg):
    def client(self, order, data, own, run):
        is_fixed = Path(__file__).with_name("fixed").exists()
        if order.client == 1 and order.stamp.round == 2 and not is_fixed:
            raise ValueError("not today")
        return super().client(order, data, own, run)


def stages(task):
    return (Stage("train", Faulty(FedAvgOptions(**task.options))),)


faulty = Recipe("faulty", FedAvgOptions, stages)
"""


def test_a_client_that_raises_is_refused_and_too_few_replies_can_be_resumed(images, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    method = f"{tmp_path}/faulty.py:faulty"
    tree = tiny.tree(images, engine={"kind": "flower-sim", "workers": 2, "min_replies": 3})
    with pytest.raises(RunStopped, match="client 1: raised: ValueError: not today"):
        tiny.start(tmp_path / "run", method, tree)
    (tmp_path / "fixed").touch()
    tiny.go_on(tmp_path / "run")
    tiny.start(tmp_path / "local", method, tiny.tree(images, engine={"min_replies": 3}))
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "local"), tiny.left_behind(tmp_path / "run")) == []
    )

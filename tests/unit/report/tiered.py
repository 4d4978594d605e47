"""Folders of runs with tiers of devices, made by hand."""

import json

from fabricated import client, make_run, row

SPACE = "cnn-tiny"
LIGHT = [
    "conv1",
    "identity",
    "identity",
    "ds3e0.5",
    "identity",
    "identity",
]  # of that space, by layer
HEAVY = ["mb3e2", "mb3e2", "mb3e1", "ds3e1", "identity", "conv1"]
LIGHT_CHOICE = [[0], [8], [8], [1], [8], [8]]
HEAVY_CHOICE = [[7], [7], [6], [2], [8], [0]]
OPS = [{"conv1": 10, "ds3e0.5": 30, "identity": 60}, {"conv1": 20, "identity": 20}]


def tier(number, path=LIGHT, choice=LIGHT_CHOICE, macs=100_000, figure=0.8, **more):
    return {
        "tier": number,
        "limit": {"macs": 200_000.0 * number},
        "clients": 2,
        "eligible": 4,
        "path": path,
        "architecture": {"space": SPACE, "choice": choice},
        "params": 5000 * number,
        "macs": macs,
        "macs_paper": macs,
        "validation": {"loss": 0.4, "accuracy": 0.875},
        "supernet": figure - 0.1,
        "global": figure,
        "own": {"mean": figure + 0.01, "std": 0.02, "worst": figure - 0.2, "pooled": figure},
        "tuned_rounds": 3,
        "control": {"path": HEAVY, "macs": macs, "validation": {"loss": 0.9, "accuracy": 0.625}},
        "front": [
            {"path": LIGHT, "loss": 2.0, "macs": macs // 2},
            {"path": path, "loss": 0.4, "macs": macs},
        ],
        **more,
    }


def two_tiers():
    return [tier(1), tier(2, HEAVY, HEAVY_CHOICE, 300_000, 0.9)]


def clients(figures=(0.9, 0.5, 0.7, 0.6)):
    """The first two of tier 1, the others of tier 2."""
    rows = []
    for number, figure in enumerate(figures):
        choice = LIGHT_CHOICE if number < 2 else HEAVY_CHOICE
        architecture = {"space": SPACE, "choice": choice}
        rows.append(client(number, figure, architecture, tier=1 + number // 2))
    return rows


def score(number, loss, macs, accuracy=0.5, params=1000):
    return {
        "tier": number,
        "path": LIGHT,
        "loss": loss,
        "accuracy": accuracy,
        "samples": 50,
        "params": params,
        "macs": macs,
    }


SCORES = [
    score(1, 2.0, 50_000, 0.25),
    score(1, 0.4, 100_000, 0.875),
    score(2, 0.5, 300_000, 0.75),
    score(2, 0.6, 150_000, 0.8),
    score(0, 0.7, 390_000, 0.5),
]


def rows():
    """A round of the supernet, one that scored, two that tuned."""
    scored = {**row(2, None, stage="search", generation=1, scored=4), "meta": {"samples": 17.5}}
    return [
        {
            **row(1, 0.3, stage="supernet", ops={"touched": 4, "merged": 3, "kept": 1}),
            "meta": {"loss": 1.5, "samples": 800.0},
        },
        scored,
        row(3, 0.5, stage="tune", tier=1),
        row(4, 0.6, stage="tune", tier=2),
    ]


def stages():
    return [
        {
            "stage": "supernet",
            "rounds": 1,
            "part": "test",
            "figure": 0.3,
            "shared": 0.3,
            "down": 1_000_000,
            "up": 900_000,
            "full_down": 4_000_000,
            "macs": 5_000_000,
            "server_macs": 0,
            "share": 0.5,
        },
        {
            "stage": "search",
            "rounds": 0,
            "down": 0,
            "up": 0,
            "full_down": 0,
            "macs": 0,
            "server_macs": 7000,
            "share": 0.0,
        },
        {
            "stage": "tune",
            "rounds": 2,
            "down": 30_000,
            "up": 30_000,
            "full_down": 60_000,
            "macs": 70_000,
            "server_macs": 0,
            "share": 0.5,
        },
    ]


def make_tiered(path, scores=SCORES, figures=(0.9, 0.5, 0.7, 0.6), **more):
    """Of a finished run."""
    defaults = {
        "method": "fedoras",
        "tiers": two_tiers(),
        "ops": OPS,
        "stages": stages(),
        "fairness": {"mean": 0.86, "std": 0.05, "worst": 0.81},
        "search": {
            "score": "central",
            "models": 4,
            "generations": 1,
            "tau": 0.5,
            "tau_clients": 3,
            "supernet_bytes": [2000, 3000],
        },
    }
    folder = make_run(path, rows(), clients(figures), **{**defaults, **more})
    write_scores(folder, scores)
    return folder


def write_scores(folder, scores):
    lines = [json.dumps(score) + "\n" for score in scores]
    folder.write_text("scores.jsonl", "".join(lines))


__all__ = ["make_tiered", "rows", "score", "tier", "two_tiers", "write_scores"]

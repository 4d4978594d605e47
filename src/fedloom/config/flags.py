"""The flags that all runs share, and the configuration option that each one sets.

This module imports nothing heavy, because `--help` needs nothing else.
"""

from typing import NamedTuple

NORM_BOUND = 100.0  # no honest client of any documented run came near: docs/reliability.md


class Flag(NamedTuple):
    name: str  # as typed after --; in the Python API with _ instead of -
    path: str  # of the option in the configuration
    metavar: str
    help: str
    several: bool = False  # may be given more than once
    switch: bool = False  # stands alone, without a value


FLAGS = (
    Flag(
        "data",
        "data.name",
        "NAME|PATH",
        "data set: a name (`fedloom list data`), a file or folder of your own, or file.py:Name",
    ),
    Flag("data-dir", "data.dir", "DIR", "folder in which relative data paths are looked for"),
    Flag(
        "resize",
        "data.resize",
        "N",
        "resize images to N×N: averaged by area, or bilinear if they grow",
    ),
    Flag(
        "fit",
        "data.fit",
        "HOW",
        "how --resize treats images that are not square: stretch, crop or pad (default stretch)",
    ),
    Flag(
        "skip-bad",
        "data.skip_bad",
        "",
        "leave out image and .wav files that cannot be read, and record which",
        switch=True,
    ),
    Flag(
        "label", "data.label", "COLUMN", "tables: the column that holds the labels (default label)"
    ),
    Flag(
        "task",
        "data.task",
        "WHAT",
        "tables: classification, regression, or auto, by the label column (default auto)",
    ),
    Flag(
        "ignore",
        "data.ignore",
        "A,B,…",
        "tables: columns to leave out; repeatable",
        several=True,
    ),
    Flag(
        "categorical",
        "data.categorical",
        "A,B,…",
        "tables: numeric columns that hold categories; repeatable",
        several=True,
    ),
    Flag("clients", "data.clients", "N", "number of clients (default 8, or one per site or group)"),
    Flag(
        "partition",
        "data.partition",
        "RULE",
        "see `fedloom list partitions` (default sites or natural if the data has them, else "
        "dirichlet:0.2)",
    ),
    Flag(
        "min-samples",
        "data.min_samples",
        "N",
        "samples that every client must have (default 10)",
    ),
    Flag(
        "parts",
        "data.parts",
        "WHAT",
        "test parts: own (a share of each client) or official (default own)",
    ),
    Flag("split", "data.split", "FILE", "use this split file instead of making one"),
    Flag("rounds", "budget.rounds", "N", "rounds of the whole run (default 20)"),
    Flag(
        "participation",
        "budget.participation",
        "SHARE",
        "share of the clients that take part in a round (default 1)",
    ),
    Flag(
        "equal",
        "budget.equal",
        "UNIT",
        "the budget's unit: rounds (default), macs, bytes, wan or seconds (at most 4 × --rounds)",
    ),
    Flag(
        "budget",
        "budget.limits",
        "LIMIT=N,…",
        "the most that may be spent: seconds=3600 (simulated), wan=50M or bytes=1G, macs=1T",
        several=True,
    ),
    Flag(
        "tiers",
        "tiers.limits",
        "A,B,…|N|FILE",
        "limits of the device tiers (121M,222M,max), the number of tiers, or a TOML file of them",
    ),
    Flag(
        "cost",
        "tiers.cost",
        "UNIT",
        "what tiers limit: macs, macs_paper, params or latency_ms (default: the space's own)",
    ),
    Flag("shares", "tiers.shares", "A,B,…", "share of the clients in each tier (default equal)"),
    Flag("tier-file", "tiers.file", "FILE", "JSON list with the tier of every client, from 1"),
    Flag(
        "devices",
        "devices.table",
        "NAME|FILE",
        "the clients' devices, for the simulated clock and tiers: equal, phones or a CSV file",
    ),
    Flag(
        "availability",
        "clock.availability",
        "WHEN",
        "when clients are available: always, duty:ON,OFF (simulated seconds) or a CSV file",
    ),
    Flag("dropout", "clock.dropout", "P", "probability that a client leaves during a round"),
    Flag("faults", "clock.faults", "FILE", "CSV file of clients that drop out: round,hop,client"),
    Flag(
        "overselect",
        "clock.overselect",
        "FACTOR",
        "ask this many times as many clients, and wait for the first replies (default 1)",
    ),
    Flag(
        "round-deadline",
        "clock.round_deadline",
        "SECONDS",
        "simulated seconds of a round after which a client is late (default never)",
    ),
    Flag("unsupported", "tiers.unsupported", "A,B,…", "operations that no device supports"),
    Flag("init", "init.run", "RUN", "begin with the shared weights of this finished run"),
    Flag("seed", "seed", "N", "root of every random draw (default 0)"),
    Flag("engine", "engine.kind", "NAME", "where clients run: local or flower-sim (default local)"),
    Flag(
        "federation",
        "engine.federation",
        "DIR",
        "run at the sites of this federation (`fedloom federation`)",
    ),
    Flag("workers", "engine.workers", "N", "worker processes (default one per core; 0: none)"),
    Flag("device", "engine.device", "DEVICE", "torch device of the clients (default cpu)"),
    Flag(
        "topology",
        "engine.topology",
        "SHAPE",
        "flat, clustered, or clustered:GROUPSxHOPS (default: the method's own, or flat)",
    ),
    Flag(
        "clusters",
        "topology.clusters",
        "RULE|FILE",
        "how clusters are formed: labels, updates, speed, random, alike, round, or a JSON file",
    ),
    Flag(
        "relay",
        "topology.relay",
        "server",
        "clusters in a federation: its server does the aggregators' work",
    ),
    Flag(
        "deadline",
        "engine.deadline",
        "SECONDS",
        "refuse a client that takes longer (default never; in a federation 600)",
    ),
    Flag(
        "min-replies",
        "engine.min_replies",
        "N",
        "replies that a round needs (default 1; in a federation all but one)",
    ),
    Flag(
        "lost-state",
        "engine.lost_state",
        "WHAT",
        "what to do if a client lost its state: refuse or fresh (default refuse)",
    ),
    Flag(
        "norm-bound",
        "engine.norm_bound",
        "B|off",
        f"refuse a client whose update is B times larger than usual (default {NORM_BOUND:g})",
    ),
    Flag(
        "max-weight-share",
        "engine.max_weight_share",
        "SHARE",
        "cap on a client's share of a round's weight, never below an equal share (default none)",
    ),
    Flag(
        "select",
        "evaluate.select",
        "WHAT",
        "report the last round, or the best on validation (default last)",
    ),
    Flag(
        "evaluate-every",
        "evaluate.every",
        "N",
        "rounds between evaluations (default a twentieth of all rounds)",
    ),
    Flag(
        "evaluate-clients",
        "evaluate.clients",
        "N",
        "clients evaluated during the run (default 100)",
    ),
    Flag(
        "profile",
        "evaluate.profile",
        "NAME|FILE",
        "a device profile (`fedloom profile`), for latencies and for tier limits in milliseconds",
    ),
    Flag(
        "sink",
        "evaluate.sinks",
        "NAME",
        "mirror the rounds to tensorboard, mlflow or wandb; repeatable",
        several=True,
    ),
    Flag(
        "sink-paths",
        "evaluate.sink_paths",
        "",
        "also send sinks the paths in the run's options, which may name people or machines",
        switch=True,
    ),
)

PATHS = {flag.name.replace("-", "_"): flag.path for flag in FLAGS}
NAMES = {flag.path: f"--{flag.name}" for flag in FLAGS}

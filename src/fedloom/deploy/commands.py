"""What `fedloom federation ACTION` does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedloom.deploy import processes
from fedloom.deploy.kits import Federation, Kit
from fedloom.deploy.submission import current
from fedloom.errors import FedloomError


def init(options: argparse.Namespace) -> int:
    made = Federation.create(Path(options.path), options.site, options.host, port_of(options.port))
    print(f"{made.path}: a federation of {len(made.sites)} sites at {made.host}:{made.port}")
    for site in made.sites:
        print(f"  hand {made.path}/kits/{site} to {site}, by a way that nobody else can read")
    print(f"next, here:  fedloom federation server {made.path}")
    print("at a site:   fedloom federation site KIT --data …")
    return 0


def server(options: argparse.Namespace) -> int:
    return processes.serve(Federation.open(Path(options.path)), insecure=options.insecure)


def site(options: argparse.Namespace) -> int:
    kit, port = Kit.open(Path(options.path)), port_of(options.port)
    return processes.attend(
        kit, options.data, options.data_dir, device=options.device, port=port, insecure=options.insecure
    )


def status(options: argparse.Namespace) -> int:
    federation = Federation.open(Path(options.path))
    rows, run = processes.status(federation), current(federation)
    if options.json:
        print(json.dumps({"sites": rows, "run": run}), file=options.stream)
        return 0
    print(f"{'site':20} {'status':14} last seen")
    for row in rows:
        seen = f"now (since {row['seen']})" if row["status"] == "online" else row["seen"] or "never"
        print(f"{row['site']:20} {row['status']:14} {seen}")
    if run is not None:
        print(f"{run['method']}: round {run['round']} of {run['rounds']}, {run['state']} ({run['run']})")
        for claim in run["claims"]:
            print(f"  {claim}")
    return 0


def port_of(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise FedloomError("--port must be a number from 1 to 65535", f"got {text}", "try 9092")
    return int(text)

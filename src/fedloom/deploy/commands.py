"""The actions of `fedloom federation`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fedloom.deploy import at_the_site, processes
from fedloom.deploy.kits import Federation, Kit
from fedloom.deploy.policy import notices_of_policy
from fedloom.deploy.site_data import OPTIONS, site_data
from fedloom.deploy.submission import current
from fedloom.errors import FedloomError
from fedloom.types import Json


def init(options: argparse.Namespace) -> int:
    port = port_of(options.port)
    federation = Federation.create(Path(options.path), options.site, options.host, port)
    path = federation.path
    address = f"{federation.host}:{federation.port}"
    print(f"{path}: a federation of {len(federation.sites)} sites at {address}")
    for site in federation.sites:
        print(f"  give {path}/kits/{site} to {site}, by a channel that nobody else can read")
    print(f"next, here:  fedloom federation server {path}")
    print("at a site:   fedloom federation site KIT --data …")
    return 0


def server(options: argparse.Namespace) -> int:
    return processes.serve(Federation.open(Path(options.path)), insecure=options.insecure)


def site(options: argparse.Namespace) -> int:
    kit = Kit.open(Path(options.path))
    flags = {flag: getattr(options, flag.replace("-", "_")) for flag in OPTIONS}
    for notice in notices_of_policy(kit.policy):
        print(f"fedloom: {notice}", file=sys.stderr, flush=True)
    return processes.attend(
        kit,
        site_data(flags),
        device=options.device,
        port=port_of(options.port),
        insecure=options.insecure,
    )


def status(options: argparse.Namespace) -> int:
    federation = Federation.open(Path(options.path))
    sites = processes.status(federation)
    run = current(federation)
    if options.json:
        rows = [site.to_json() for site in sites]
        answer: dict[str, Json] = {"sites": rows, "run": None}
        if run is not None:
            answer["run"] = run.to_json()
        print(json.dumps(answer), file=options.stream)
        return 0
    print(f"{'site':20} {'status':14} last seen")
    for site in sites:
        seen = site.seen or "never"
        if site.status == "online":
            seen = f"now (since {site.seen})"
        print(f"{site.site:20} {site.status:14} {seen}")
    if run is not None:
        progress = f"round {run.round} of {run.rounds}, {run.state}"
        print(f"{run.method}: {progress} ({run.run})")
        for claim in run.claims:
            print(f"  {claim}")
    return 0


def audit(options: argparse.Namespace) -> int:
    kit = Path(options.path)
    return at_the_site.audit(kit, options.head, as_json=options.json, stream=options.stream)


def approve(options: argparse.Namespace) -> int:
    kit = Path(options.path)
    return at_the_site.approve(kit, options.id, as_json=options.json, stream=options.stream)


def port_of(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise FedloomError("--port must be a number from 1 to 65535", f"got {text}", "try 9092")
    return int(text)

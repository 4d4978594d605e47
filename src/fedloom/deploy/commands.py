"""The actions of `fedloom federation`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedloom.deploy import health, processes, tokens
from fedloom.deploy.control import Access
from fedloom.deploy.kits import Federation, Kit
from fedloom.deploy.site_data import OPTIONS, site_data
from fedloom.errors import FedloomError


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
    return processes.attend(
        kit,
        site_data(flags),
        device=options.device,
        port=port_of(options.port),
        insecure=options.insecure,
    )


def token(options: argparse.Namespace) -> int:
    federation = Federation.open(Path(options.path))
    if options.withdraw is not None:
        tokens.withdraw(federation.path, options.withdraw)
        print(f"the token {options.withdraw} opens nothing any more")
        return 0
    name = options.name or options.role
    days = days_of(options.days)
    server = f"127.0.0.1:{federation.local_port}"
    authority = federation.authority_file.read_text()
    issued = tokens.issue(federation.path, name, options.role, days, server, authority)
    path = Path(options.out or f"{name}.token")
    issued.write(path)
    print(f"{path}: a {issued.role}'s token, valid until {issued.expires:%Y-%m-%d %H:%M} UTC")
    print("whoever has the file can use it; give it only to its user, with mode 600")
    return 0


def status(options: argparse.Namespace) -> int:
    path = Path(options.path)
    if (path / "kit.json").exists():
        return show_site(options, health.site_health(Kit.open(path)))
    if path.is_file():
        return show_sites(options, health.guest_statuses(Access.by_token(path)))
    return show_server(options, health.server_health(Federation.open(path)))


def show_site(options: argparse.Namespace, site: health.SiteHealth) -> int:
    if options.json:
        print(json.dumps(site.to_json()), file=options.stream)
        return 0
    print(f"{site.site}, of the server {site.server}; its key expires at {site.key_expires}")
    if site.audit_head is not None:
        head = site.audit_head
        print(f"audit log: {head.entries} entries, the last one {head.digest}")
    print_disk(site.disk)
    return 0


def show_sites(options: argparse.Namespace, sites: list[health.SiteStatus]) -> int:
    """What somebody sees who has only a token."""
    if options.json:
        print(json.dumps({"sites": [site.to_json() for site in sites]}), file=options.stream)
    else:
        print_sites(sites)
    return 0


def show_server(options: argparse.Namespace, found: health.ServerHealth) -> int:
    code = 0
    if found.server == "down":
        code = 3
    if options.json:
        print(json.dumps(found.to_json()), file=options.stream)
        return code
    print(f"health: {found.health}, the server is {found.server}")
    print_sites(found.sites)
    run = found.run
    if run is not None:
        progress = f"round {run.round} of {run.rounds}, {run.state}"
        print(f"{run.method}: {progress} ({run.run})")
        for claim in run.claims:
            print(f"  {claim}")
    if found.last_error is not None:
        print(f"last error ({found.last_error.code}): {found.last_error.text}")
    print_disk(found.disk)
    for warning in found.warnings:
        print(f"warning: {warning}")
    return code


def print_sites(sites: list[health.SiteStatus]) -> None:
    print(f"{'site':20} {'status':14} last seen")
    for site in sites:
        seen = site.seen or "never"
        if site.status == "online":
            seen = f"now (since {site.seen})"
        print(f"{site.site:20} {site.status:14} {seen}")


def print_disk(disk: health.Disk) -> None:
    free, total, used = disk.free_bytes / 1e9, disk.total_bytes / 1e9, disk.folder_bytes / 1e6
    print(f"disk: {free:.1f} of {total:.1f} GB free; this folder has {used:.1f} MB")


def days_of(text: str) -> int:
    """A number of days; the one who uses it knows how many are too many."""
    if not text.isdecimal() or len(text) > 9:
        raise FedloomError("--days must be a whole number", f"got {text}", "try 30")
    return int(text)


def port_of(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise FedloomError("--port must be a number from 1 to 65535", f"got {text}", "try 9092")
    return int(text)

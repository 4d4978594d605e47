"""The actions of `fedloom federation`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fedloom.deploy import at_the_site, health, joining, metrics, processes, tokens
from fedloom.deploy import backup as backups
from fedloom.deploy.control import Access
from fedloom.deploy.counters import sentences_of
from fedloom.deploy.given_certificates import GivenCertificates
from fedloom.deploy.hello import printable
from fedloom.deploy.kit_file import check_owner, is_port
from fedloom.deploy.kits import Federation, Kit, changing
from fedloom.deploy.policy import notices_of_policy
from fedloom.deploy.site_data import OPTIONS, site_data
from fedloom.deploy.units import write_units
from fedloom.errors import FedloomError
from fedloom.files import write_whole


def init(options: argparse.Namespace) -> int:
    port = port_of(options.port)
    federation = Federation.create(
        Path(options.path),
        options.site,
        options.host,
        port,
        offline_ca=optional_path(options.offline_ca),
        given=given_certificates(options),
        listen=options.listen,
        sites_join=options.sites_join,
    )
    path = federation.path
    address = f"{federation.host}:{federation.port}"
    print(f"{path}: a federation of {len(federation.sites)} sites at {address}")
    for site in federation.sites:
        print(f"  give {path}/kits/{site} to {site}, by a channel that nobody else can read")
    if options.systemd:
        for unit in write_units(path.resolve(), federation.sites):
            print(f"  {unit}")
    if options.offline_ca is not None:
        print(f"the authority's key is in {options.offline_ca}; take it off this machine")
    print(f"next, here:  fedloom federation server {path}")
    print("at a site:   fedloom federation site KIT --data …")
    return 0


def given_certificates(options: argparse.Namespace) -> GivenCertificates | None:
    """The files of an existing PKI, if there are any."""
    certificate, key = optional_path(options.certificate), optional_path(options.key)
    if options.ca is None:
        if certificate is not None or key is not None:
            rule = "--certificate and --key must be given with --ca"
            raise FedloomError(rule, "--ca is missing", "add the PKI's certificate")
        return None
    if certificate is None and options.listen is None:
        rule = "--ca must be given with --certificate and --key, or with --listen"
        raise FedloomError(rule, "got neither", "add those of the server, or of its proxy")
    return GivenCertificates(Path(options.ca), certificate, key)


def join(options: argparse.Namespace) -> int:
    kit = Path(options.path)
    if (options.site is None) == (options.admission is None):
        rule = "join must get either --site or --admission"
        advice = "first --site NAME, then --admission FILE"
        raise FedloomError(rule, "got both or neither", advice)
    if options.admission is not None:
        file = Path(options.admission)
        completed, admission = joining.accept(kit, file, options.fingerprint)
        print(f"{kit}: the kit of {completed.site}, for the server {completed.server}")
        print(f"the admission's fingerprint: {admission.fingerprint}")
        if options.fingerprint is None:
            print("compare it by telephone with the one at the server before you start the site")
        print(f"next:  fedloom federation site {kit} --data …")
        return 0
    if options.fingerprint is not None:
        rule = "--fingerprint must be given with --admission"
        raise FedloomError(rule, "there is none yet", "leave it out")
    path, fingerprint = joining.request(kit, options.site)
    print(f"{path}: send this to whoever runs the federation; the key stays in {kit}")
    print(f"the key's fingerprint: {fingerprint}")
    return 0


def admit(options: argparse.Namespace) -> int:
    days = days_of(options.days)
    ca_key = optional_path(options.ca_key)
    with changing(Path(options.path)) as before:
        federation, admission, fingerprint = joining.admit(
            before, Path(options.request), days, ca_key, replace=options.replace
        )
    path = Path(options.out or f"{admission.site}.admission")
    write_whole(path, [admission.model_dump_json(indent=1).encode()], durable=True)
    print(f"{path}: send this to {admission.site}; nothing in it is secret")
    print(f"the key's fingerprint: {fingerprint} (the site's request must have the same)")
    print(f"the admission's fingerprint: {admission.fingerprint}")
    print("read it out to the site by telephone, for `join --fingerprint`")
    print(f"key expires: {health.expiry_of(federation, admission.site)}")
    return 0


def add(options: argparse.Namespace) -> int:
    ca_key = optional_path(options.ca_key)
    with changing(Path(options.path)) as federation:
        joining.add(federation, options.site, days_of(options.days), ca_key)
    kit = federation.path / "kits" / options.site
    print(f"give {kit} to {options.site}, by a channel that nobody else can read")
    return 0


def rotate(options: argparse.Namespace) -> int:
    ca_key = optional_path(options.ca_key)
    with changing(Path(options.path)) as federation:
        joining.rotate(federation, options.site, days_of(options.days), ca_key)
    kit = federation.path / "kits" / options.site
    print(f"give node.key, site.key and site.crt of {kit} to {options.site}, for its kit")
    print("its old key is no longer accepted")
    return 0


def revoke(options: argparse.Namespace) -> int:
    with changing(Path(options.path)) as federation:
        joining.revoke(federation, options.site)
    print(f"{options.site} is out, and its key may never come back")
    return 0


def server(options: argparse.Namespace) -> int:
    federation = Federation.open(Path(options.path))
    port = None
    if options.metrics is not None:
        port = port_of(options.metrics, "metrics")
    with metrics.served(federation, port):
        return processes.serve(federation, insecure=options.insecure)


def backup(options: argparse.Namespace) -> int:
    out = Path(options.out)
    count = backups.backup(Path(options.path), out)
    print(f"{out}: {count} files, with private keys; keep it where only its owner can read it")
    return 0


def restore(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    restored = backups.restore(Path(options.path), folder, optional_path(options.counters))
    what = f"the {restored.kind} as it was at {restored.made}"
    print(f"{folder}: {what}; stop the old one before this is started")
    for sentence in sentences_of(restored):
        print(sentence)
    return 0


def site(options: argparse.Namespace) -> int:
    kit = Kit.open(Path(options.path))
    flags = {flag: getattr(options, flag.replace("-", "_")) for flag in OPTIONS}
    for notice in notices_of_policy(kit.policy):
        print(f"fedloom: {notice}", file=sys.stderr, flush=True)
    port = None
    if options.port is not None:
        port = port_of(options.port)
    return processes.attend(
        kit,
        site_data(flags),
        device=options.device,
        port=port,
        insecure=options.insecure,
    )


def token(options: argparse.Namespace) -> int:
    federation = Federation.open(Path(options.path))
    if options.withdraw is not None:
        tokens.withdraw(federation.path, options.withdraw)
        print(f"the token {options.withdraw} opens nothing any more")
        return 0
    name = options.name or options.role
    if name == tokens.OWNER_NAME:
        rule = f"--name must not be {name}"
        raise FedloomError(rule, "it is that of the folder's own token", "name who will use it")
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
    if is_kit(path):
        return show_site(options, health.site_health(Kit.open(path)))
    if path.is_file():
        return show_sites(options, health.guest_statuses(Access.by_token(path)))
    return show_server(options, health.server_health(Federation.open(path)))


def is_kit(path: Path) -> bool:
    """Whether this is a site's kit, also if it is one that we may not read."""
    try:
        return (path / "kit.json").exists()
    except PermissionError:
        check_owner(path)
        raise


def show_site(options: argparse.Namespace, site: health.SiteHealth) -> int:
    code = 0
    if site.health == "down":
        code = 3
    if options.json:
        print(json.dumps(site.to_json()), file=options.stream)
        return code
    print(f"health: {site.health}")
    print(f"{site.site}, of the server {site.server}; its key expires at {site.key_expires}")
    if site.audit_head is not None:
        head = site.audit_head
        print(f"audit log: {head.number} entries, the last one {head.digest}")
    print_disk(site.disk)
    for warning in site.warnings:
        print(f"warning: {warning}")
    return code


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
        print(printable(f"{run.method}: {progress} ({run.run})"))
        for claim in run.claims:
            print(f"  {printable(claim)}")
    if found.last_error is not None:
        print(f"last error ({found.last_error.code}): {printable(found.last_error.text)}")
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


def audit(options: argparse.Namespace) -> int:
    kit = Path(options.path)
    return at_the_site.audit(kit, options.head, as_json=options.json, stream=options.stream)


def approve(options: argparse.Namespace) -> int:
    kit = Path(options.path)
    if options.id is not None and options.reject is not None:
        rule = "ID and --reject must not be given together"
        raise FedloomError(rule, "got both", "approve and reject one after the other")
    if options.reject is not None:
        return at_the_site.reject(kit, options.reject, as_json=options.json, stream=options.stream)
    if options.id is not None:
        return at_the_site.approve(kit, options.id, as_json=options.json, stream=options.stream)
    return at_the_site.list_waiting(kit, as_json=options.json, stream=options.stream)


def print_disk(disk: health.Disk) -> None:
    free, total, used = disk.free_bytes / 1e9, disk.total_bytes / 1e9, disk.folder_bytes / 1e6
    print(f"disk: {free:.1f} of {total:.1f} GB free; this folder has {used:.1f} MB")


def optional_path(text: str | None) -> Path | None:
    if text is None:
        return None
    return Path(text)


def days_of(text: str) -> int:
    """A number of days; the one who uses it knows how many are too many."""
    if not text.isdecimal() or len(text) > 9:
        raise FedloomError("--days must be a whole number", f"got {text}", "try 30")
    return int(text)


def port_of(text: str, flag: str = "port") -> int:
    if not is_port(text):
        raise FedloomError(f"--{flag} must be a number from 1 to 65535", f"got {text}", "try 9092")
    return int(text)

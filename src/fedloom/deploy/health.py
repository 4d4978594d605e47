"""How a federation or a site is: who is connected, the last error, disk, and the audit log's head.

`fedloom federation status` prints it, and the server's metrics (metrics.py) come from it.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from fedloom.deploy import control
from fedloom.deploy.audit import AuditError, AuditLog, Head
from fedloom.deploy.control import Access, Node
from fedloom.deploy.experiments import Experiments
from fedloom.deploy.kits import Federation, Kit
from fedloom.deploy.members import fingerprint_of
from fedloom.deploy.processes import access_of
from fedloom.deploy.submission import CurrentRun, current, current_folder
from fedloom.deploy.versions import read_versions
from fedloom.errors import RunStopped
from fedloom.types import Json

SOON = datetime.timedelta(days=30)  # before its key expires, a site is warned of
LEAST_FREE = 1 << 30  # bytes; a disk with less is a warning


@dataclass(frozen=True)
class SiteStatus:
    """Whether a site is connected."""

    site: str
    status: str  # as Flower calls it, or "not registered"
    seen: str | None = None  # since when it is online, or when it last was; None: unknown
    key_expires: str | None = None  # None: never
    version: str | None = None  # of its fedloom, since the server runs; None: it did not say

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True)
class Disk:
    free_bytes: int
    total_bytes: int
    folder_bytes: int  # of the federation's or the kit's folder

    @classmethod
    def of(cls, folder: Path) -> Disk:
        usage = shutil.disk_usage(folder)
        size = 0
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    size += os.lstat(os.path.join(parent, name)).st_size
                except OSError:
                    continue  # it was removed meanwhile
        return cls(usage.free, usage.total, size)


@dataclass(frozen=True)
class LastError:
    """Why the last run stopped."""

    code: int  # the exit code of `fedloom run`
    text: str


@dataclass(frozen=True)
class ServerHealth:
    """What `fedloom federation status DIR` shows."""

    server: str  # "up" or "down"
    sites: list[SiteStatus]
    run: CurrentRun | None
    last_error: LastError | None
    disk: Disk
    warnings: list[str]

    def to_json(self) -> dict[str, Json]:
        return {
            "health": self.health,
            "server": self.server,
            "sites": [site.to_json() for site in self.sites],
            "run": None if self.run is None else self.run.to_json(),
            "last_error": None if self.last_error is None else asdict(self.last_error),
            "audit_head": None,  # the audit log is the sites' own
            "disk": asdict(self.disk),
            "warnings": self.warnings,
        }

    @property
    def health(self) -> str:
        if self.server == "down":
            return "down"
        if self.warnings or any(site.status != "online" for site in self.sites):
            return "degraded"
        return "ok"


def server_health(federation: Federation) -> ServerHealth:
    server = "up"
    sites: list[SiteStatus] = []
    try:
        sites = site_statuses(federation)
    except RunStopped:
        server = "down"
        for site in federation.sites:
            sites.append(SiteStatus(site, "unknown", None, expiry_of(federation, site)))
    disk = Disk.of(federation.path)
    return ServerHealth(
        server=server,
        sites=sites,
        run=current(federation),
        last_error=last_error(federation),
        disk=disk,
        warnings=warnings_of(federation, sites, disk),
    )


def site_statuses(federation: Federation) -> list[SiteStatus]:
    """Every site of a federation, whose server must run."""
    found = control.nodes(access_of(federation))
    if federation.insecure:  # it is unknown which site a node is
        return [SiteStatus(node.name, node.status) for node in found if node.is_registered]
    nodes = {fingerprint_of(node.public_key): node for node in found if node.is_registered}
    versions = read_versions(federation.path)
    sites = []
    for site in federation.sites:
        node = nodes.get(federation.fingerprint(site))
        expires = expiry_of(federation, site)
        status = "not registered" if node is None else node.status
        version = versions.get(site)
        sites.append(SiteStatus(site, status, last_seen(node), expires, version))
    return sites


def guest_statuses(access: Access) -> list[SiteStatus]:
    """Every site, for somebody who has only a token."""
    sites = []
    for node in control.nodes(access):
        if node.is_registered:
            sites.append(SiteStatus(node.name, node.status, last_seen(node)))
    return sorted(sites, key=lambda site: site.site)


def last_seen(node: Node | None) -> str | None:
    """Since when a node is connected, or when it last was; None: it never was."""
    if node is None:
        return None
    if node.status == "online":
        return node.online_since
    return node.offline_since


def expiry_of(federation: Federation, site: str) -> str | None:
    record = federation.keys.get(site)
    if record is None or record.expires is None:
        return None
    return f"{record.expires:%Y-%m-%d %H:%M:%S}Z"


def warnings_of(federation: Federation, sites: list[SiteStatus], disk: Disk) -> list[str]:
    """What an operator should look at."""
    from fedloom.version import __version__

    warnings = []
    now = datetime.datetime.now(datetime.UTC)
    for site in federation.sites:
        record = federation.keys.get(site)
        if record is None or record.expires is None:
            warnings.append(f"the key of {site} never expires; rotate it")
        elif record.expires <= now:
            warnings.append(f"the key of {site} expired at {expiry_of(federation, site)}")
        elif record.expires - now < SOON:
            warnings.append(f"the key of {site} expires at {expiry_of(federation, site)}")
    for status in sites:
        if status.version not in (None, __version__):
            warnings.append(f"{status.site} runs fedloom {status.version}, here is {__version__}")
    return warnings + warnings_of_disk(disk)


def warnings_of_disk(disk: Disk) -> list[str]:
    if disk.free_bytes < LEAST_FREE:
        return [f"the disk has only {disk.free_bytes / 1e9:.1f} GB left"]
    return []


def last_error(federation: Federation) -> LastError | None:
    """Why the run that was submitted last stopped; None: it did not."""
    from fedloom.deploy.server import EVENTS

    folder = current_folder(federation)
    if folder is None:
        return None
    stopped = None
    try:
        for line in (folder.path / EVENTS).read_text(errors="replace").splitlines():
            message = json.loads(line)
            if message["event"] == "stopped":
                stopped = LastError(int(message["code"]), str(message["text"]))
            elif message["event"] in ("submitted", "finished"):
                stopped = None
    except (OSError, ValueError, KeyError, TypeError):
        return stopped
    return stopped


# A site


@dataclass(frozen=True)
class SiteHealth:
    """What `fedloom federation status KIT` shows."""

    site: str
    server: str
    key_expires: str
    audit_head: Head | None  # who has noted it down can tell if the log was cut; None: no line yet
    audit_problem: str | None  # why the site answers nothing, because its audit log was changed
    waiting: int  # experiments that wait for the operator's approval
    disk: Disk
    warnings: list[str]

    def to_json(self) -> dict[str, Json]:
        head = None
        if self.audit_head is not None:
            head = self.audit_head.to_json()
        return {
            "health": self.health,
            "site": self.site,
            "server": self.server,
            "key_expires": self.key_expires,
            "audit_head": head,
            "audit_problem": self.audit_problem,
            "waiting": self.waiting,
            "disk": asdict(self.disk),
            "warnings": self.warnings,
        }

    @property
    def health(self) -> str:
        if self.audit_problem is not None:
            return "down"
        if self.warnings:
            return "degraded"
        return "ok"


def site_health(kit: Kit) -> SiteHealth:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((kit.path / "site.crt").read_bytes())
    expires = certificate.not_valid_after_utc
    head, problem = checked_audit_log(kit)
    waiting = len(Experiments(kit.path / "state").approvals().waiting)
    disk = Disk.of(kit.path)
    warnings = warnings_of_disk(disk)
    if problem is not None:
        warnings.append(f"the site answers nothing: {problem}")
    if expires - datetime.datetime.now(datetime.UTC) < SOON:
        warnings.append(f"its key expires at {expires:%Y-%m-%d %H:%M:%S}Z")
    if waiting:
        command = f"fedloom federation approve {kit.path}"
        warnings.append(f"experiments that wait for approval: {waiting} ({command})")
    return SiteHealth(
        site=kit.site,
        server=kit.server,
        key_expires=f"{expires:%Y-%m-%d %H:%M:%S}Z",
        audit_head=head,
        audit_problem=problem,
        waiting=waiting,
        disk=disk,
        warnings=warnings,
    )


def checked_audit_log(kit: Kit) -> tuple[Head | None, str | None]:
    """The head of the audit log after every line was checked, and what is wrong with the log."""
    log = AuditLog(kit.path)
    head = None
    try:
        for line, digest in log.verified():
            head = Head(line.number, digest)
    except AuditError as error:
        return head, str(error)
    return head, None

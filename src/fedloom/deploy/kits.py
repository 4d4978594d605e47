"""A federation's folder and the start kits of its sites: certificates, keys, addresses, and each site's policy.

DIR/federation.json   name of the server, port, sites in client order, the node id each site's key was given
DIR/ca.crt, ca.key    the federation's own authority; DIR/server.crt, server.key   the server's, signed by it
DIR/keys/SITE.pub     what the server knows of a site
DIR/samples.json      how many samples each site told of in its last experiment
DIR/INSECURE          there if the server was last started with --insecure
DIR/kits/SITE/        to be handed to the site: kit.json, ca.crt, site.key and its certificate, policy.toml

Whoever holds a site's key is that site. A kit holds no private key but its own, and only its owner can read it.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedloom import reading
from fedloom.config.models import validated
from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.options import Options
from fedloom.types import Json

INSECURE = "INSECURE"  # a file that marks the folder of a server started with --insecure
YEARS = 2
SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")  # a certificate's name has at most 64 characters
SERVER = re.compile(rf"{HOST.pattern}:[0-9]{{1,5}}")

POLICY = """# What this site agrees to. Orders beyond it are refused, and the refusal says why.

methods = ["*"]          # names of methods that may run here, e.g. ["fedavg", "fednas"]
fields = ["*"]           # plain values of a reply that may leave, e.g. ["loss", …]: see docs/deploy.md
tensors = ["*"]          # tensors of a reply that may leave, by name, e.g. ["net.*"]
rounds = 1000            # of one run, at most
megabytes = 1024         # of one message, in either direction
"""


class Policy(Options):
    """A site's policy.toml."""

    methods: list[str]
    fields: list[str]
    tensors: list[str] = ["*"]
    rounds: int
    megabytes: float


@dataclass(frozen=True)
class Federation:
    """The server's side."""

    path: Path
    host: str
    port: int
    sites: tuple[str, ...]  # sorted: a site's place is its client number
    nodes: dict[str, int]  # the node id that a site's key was given

    @classmethod
    def create(cls, path: Path, sites: Sequence[str], host: str, port: int) -> Federation:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FedloomError("a federation must get a new folder", f"{path} has content", "name another one")
        for name in sites:
            if not SITE_NAME.fullmatch(name):
                must = "a site's name must be of lower-case letters, digits and hyphens"
                raise FedloomError(must, f"got {name!r}", "try --site hospital-a")
        if len(set(sites)) != len(sites) or not sites:
            raise FedloomError("every site must be named once", f"got {', '.join(sites) or 'none'}", "add --site NAME")
        if not HOST.fullmatch(host):
            must = "--host must be a name or an IPv4 address that sites can reach, of at most 64 characters"
            raise FedloomError(must, f"got {host!r}", "try fed.example.org")
        made = cls(path, host, port, tuple(sorted(sites)), {})
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        authority = Authority.create("fedloom federation")
        authority.save(path / "ca")
        authority.issue(host, [host, "localhost", "127.0.0.1"]).save(path / "server")
        for site in made.sites:
            made._make_kit(site, authority)
        made.save()
        return made

    def _make_kit(self, site: str, authority: Authority) -> None:
        kit = self.path / "kits" / site
        kit.mkdir(parents=True)
        kit.chmod(0o700)
        own = authority.issue(site, [site, "localhost", "127.0.0.1"])
        own.save(kit / "site")
        write_private(kit / "node.key", own.ssh_private())
        write_whole(kit / "ca.crt", [(self.path / "ca.crt").read_bytes()], durable=True)
        write_whole(kit / "policy.toml", [POLICY.encode()], durable=True)
        facts = {"format": 1, "site": site, "server": f"{self.host}:{self.port}"}
        write_whole(kit / "kit.json", [json.dumps(facts, indent=1).encode()], durable=True)
        (self.path / "keys").mkdir(exist_ok=True)
        write_whole(self.path / "keys" / f"{site}.pub", [own.ssh_public()], durable=True)

    @classmethod
    def open(cls, path: Path) -> Federation:
        raw = read_json(path / "federation.json", "the folder of a federation", "`fedloom federation init`")
        try:
            nodes = {str(site): int(node) for site, node in raw["nodes"].items()}
            found = cls(path.resolve(), str(raw["host"]), int(raw["port"]), tuple(map(str, raw["sites"])), nodes)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise damaged(path / "federation.json") from None
        check_private(path / "server.key")
        if (path / "ca.key").exists():  # its owner may keep it in a safer place
            check_private(path / "ca.key")
        for name in ("server.crt", "ca.crt"):
            check_certificate(path / name)
        return found

    @property
    def insecure(self) -> bool:
        """Whether its server was last started so: nobody is authenticated, a site is whoever it says it is."""
        return (self.path / INSECURE).exists()

    def save(self) -> None:
        facts = {"format": 1, "host": self.host, "port": self.port, "sites": list(self.sites), "nodes": self.nodes}
        write_whole(self.path / "federation.json", [json.dumps(facts, indent=1).encode()], durable=True)


@dataclass(frozen=True)
class Kit:
    """A site's side."""

    path: Path
    site: str
    server: str
    policy: Policy

    @classmethod
    def open(cls, path: Path) -> Kit:
        raw = read_json(path / "kit.json", "a site's start kit", "ask whoever runs the federation for yours")
        try:
            site, server = str(raw["site"]), str(raw["server"])
        except (KeyError, TypeError):
            raise damaged(path / "kit.json") from None
        if not SITE_NAME.fullmatch(site) or not SERVER.fullmatch(server):
            raise damaged(path / "kit.json")
        for name in ("node.key", "site.key"):
            check_private(path / name)
        for name in ("site.crt", "ca.crt"):
            check_certificate(path / name)
        return cls(path.resolve(), site, server, read_policy(path / "policy.toml"))


def read_policy(path: Path) -> Policy:
    try:
        raw = reading.read_toml(path)
    except reading.Unreadable as error:
        raise FedloomError(f"{path} must be a site's policy in TOML", f"{error}", "mend or restore it") from None
    policy: Policy = validated(Policy, raw)
    return policy


def read_json(path: Path, what: str, todo: str) -> Json:
    try:
        return reading.read_json(path)
    except reading.Unreadable as error:
        raise FedloomError(f"{path} must be that of {what}", f"{error}", todo) from None


def damaged(path: Path) -> FedloomError:
    return FedloomError(f"{path} must be as fedloom wrote it", "it is damaged", "restore it, or make a new federation")


def check_private(path: Path) -> None:
    """A key that others can read is not a secret."""
    try:
        mode = path.stat().st_mode
        path.read_bytes()
    except OSError as error:
        raise FedloomError(f"{path} must be readable by you", error.strerror or "?", "restore it") from None
    if mode & 0o077:
        raise FedloomError(f"{path} must be readable by its owner alone", f"its mode is {mode & 0o777:o}", "chmod 600")


def check_certificate(path: Path) -> None:
    """One that others would turn away is better named here."""
    must, todo = f"{path} must be a certificate that is valid now", "restore it, or make a new federation"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise FedloomError(must, f"it cannot be read ({error.strerror})", todo) from None
    except ValueError:
        raise FedloomError(must, "it is none", todo) from None
    now, start, end = (
        datetime.datetime.now(datetime.UTC),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    if not start <= now <= end:
        raise FedloomError(must, f"it is valid from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC", todo)


def write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


# Certificates


@dataclass(frozen=True)
class Identity:
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def save(self, stem: Path) -> None:
        """STEM.key, for its owner alone, and STEM.crt."""
        write_private(stem.with_suffix(".key"), self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ))  # fmt: skip
        pem = self.certificate.public_bytes(serialization.Encoding.PEM)
        write_whole(stem.with_suffix(".crt"), [pem], durable=True)

    def ssh_private(self) -> bytes:
        """As Flower wants a node's key."""
        none, openssh = serialization.NoEncryption(), serialization.PrivateFormat.OpenSSH
        return bytes(self.key.private_bytes(serialization.Encoding.PEM, openssh, none))

    def ssh_public(self) -> bytes:
        encoding, openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return bytes(self.key.public_key().public_bytes(encoding, openssh))


class Authority(Identity):
    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP384R1())
        made = builder(name, name, key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, made.sign(key, hashes.SHA384()))

    def issue(self, name: str, alternatives: Sequence[str], days: int = 365 * YEARS) -> Identity:
        key = ec.generate_private_key(ec.SECP384R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        made = builder(name, str(issuer), key, days)
        names = [address(text) for text in dict.fromkeys(alternatives)]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        return Identity(key, made.sign(self.key, hashes.SHA384()))


def builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: int = 365 * YEARS) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    start = min(now, now + datetime.timedelta(days=days)) - datetime.timedelta(minutes=5)  # clocks differ
    named = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer)}
    made = x509.CertificateBuilder().subject_name(named[subject]).issuer_name(named[issuer])
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return made.not_valid_before(start).not_valid_after(now + datetime.timedelta(days=days))


def address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)

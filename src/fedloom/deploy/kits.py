"""A federation's folder and the start kits of its sites: certificates, keys, addresses, policies.

DIR/federation.json   name of the server, port, sites in client order, and each site's node id
DIR/ca.crt, ca.key    the federation's own certificate authority
DIR/server.crt, .key  the server's certificate, signed by that authority, and its key
DIR/keys/SITE.pub     the public key by which the server recognises a site
DIR/samples.json      how many samples each site reported in its last experiment
DIR/INSECURE          exists if the server was last started with --insecure
DIR/kits/SITE/        the kit to give to the site: kit.json, ca.crt, site.key and its certificate,
                      policy.toml

Whoever has a site's key can act as that site. A kit contains no private keys of others, and only
its owner can read it.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedloom import reading
from fedloom.deploy.kit_file import HOST, SITE_NAME, KitFile, check_owner
from fedloom.deploy.policy import POLICY, Policy, read_policy
from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.types import Json

INSECURE = "INSECURE"  # a file that marks the folder of a server started with --insecure
YEARS = 2


@dataclass(frozen=True)
class Federation:
    """A federation, as its server knows it."""

    path: Path
    host: str
    port: int
    sites: tuple[str, ...]  # sorted; a site's position is its client number
    nodes: dict[str, int]  # the node id that Flower gave to each site's key

    @classmethod
    def create(cls, path: Path, sites: Sequence[str], host: str, port: int) -> Federation:
        check_new(path, sites, host)
        federation = cls(path, host, port, tuple(sorted(sites)), {})
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        authority = Authority.create("fedloom federation")
        authority.save(path / "ca")
        authority.issue(host, [host, "localhost", "127.0.0.1"]).save(path / "server")
        for site in federation.sites:
            federation._make_kit(site, authority)
        federation.save()
        return federation

    def _make_kit(self, site: str, authority: Authority) -> None:
        kit = self.path / "kits" / site
        kit.mkdir(parents=True)
        kit.chmod(0o700)
        identity = authority.issue(site, [site, "localhost", "127.0.0.1"])
        identity.save(kit / "site")
        write_private(kit / "node.key", identity.ssh_private())
        write_whole(kit / "ca.crt", [(self.path / "ca.crt").read_bytes()], durable=True)
        write_whole(kit / "policy.toml", [POLICY.encode()], durable=True)
        KitFile(site=site, server=f"{self.host}:{self.port}").write(kit)
        (self.path / "keys").mkdir(exist_ok=True)
        write_whole(self.path / "keys" / f"{site}.pub", [identity.ssh_public()], durable=True)

    @classmethod
    def open(cls, path: Path) -> Federation:
        file = path / "federation.json"
        raw = read_json(file, "a federation's folder", "`fedloom federation init`")
        try:
            federation = cls(
                path=path.resolve(),
                host=str(raw["host"]),
                port=int(raw["port"]),
                sites=tuple(map(str, raw["sites"])),
                nodes={str(site): int(node) for site, node in raw["nodes"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise damaged(file) from None
        check_private(path / "server.key")
        if (path / "ca.key").exists():  # its owner may have moved it to a safer place
            check_private(path / "ca.key")
        for name in ("server.crt", "ca.crt"):
            check_certificate(path / name)
        return federation

    @property
    def insecure(self) -> bool:
        """Whether its server was last started with --insecure.

        Then nobody is authenticated, and sites can claim any name.
        """
        return (self.path / INSECURE).exists()

    def save(self) -> None:
        facts = {
            "format": 1,
            "host": self.host,
            "port": self.port,
            "sites": list(self.sites),
            "nodes": self.nodes,
        }
        content = json.dumps(facts, indent=1).encode()
        write_whole(self.path / "federation.json", [content], durable=True)


def check_new(path: Path, sites: Sequence[str], host: str) -> None:
    """Raise an error if a federation cannot be created with these arguments."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        rule = "a federation must get a new folder"
        raise FedloomError(rule, f"{path} is not empty", "name another one")
    for name in sites:
        if not SITE_NAME.fullmatch(name):
            raise FedloomError(
                "a site's name must consist of lower-case letters, digits and hyphens",
                f"got {name!r}",
                "try --site hospital-a",
            )
    if len(set(sites)) != len(sites) or not sites:
        names = ", ".join(sites) or "none"
        raise FedloomError("every site must be named once", f"got {names}", "add --site NAME")
    if not HOST.fullmatch(host):
        reachable = "a name or an IPv4 address that sites can reach"
        rule = f"--host must be {reachable}, of at most 64 characters"
        raise FedloomError(rule, f"got {host!r}", "try fed.example.org")


@dataclass(frozen=True)
class Kit:
    """A site's start kit, as the site uses it."""

    path: Path
    site: str
    server: str
    policy: Policy

    @classmethod
    def open(cls, path: Path) -> Kit:
        check_owner(path)
        file = KitFile.read(path)
        for name in ("node.key", "site.key"):
            check_private(path / name)
        for name in ("site.crt", "ca.crt"):
            check_certificate(path / name)
        return cls(path.resolve(), file.site, file.server, read_policy(path / "policy.toml"))


def read_json(path: Path, owner: str, advice: str) -> Json:
    """Read a file of `owner`, which names a folder or kit in the error."""
    try:
        return reading.read_json(path)
    except reading.Unreadable as error:
        raise FedloomError(f"{path} must be the file of {owner}", f"{error}", advice) from None


def damaged(path: Path) -> FedloomError:
    rule = f"{path} must be as fedloom wrote it"
    return FedloomError(rule, "it is damaged", "restore it, or make a new federation")


def check_private(path: Path) -> None:
    """Raise an error unless the owner of a key, and nobody else, can read it."""
    try:
        mode = path.stat().st_mode
        path.read_bytes()
    except OSError as error:
        rule = f"{path} must be readable by you"
        raise FedloomError(rule, error.strerror or "?", "restore it") from None
    if mode & 0o077:
        rule = f"{path} must be readable by its owner alone"
        raise FedloomError(rule, f"its mode is {mode & 0o777:o}", "chmod 600")


def check_certificate(path: Path) -> None:
    """Raise an error for a certificate that the other side would reject."""
    rule = f"{path} must be a certificate that is valid now"
    advice = "restore it, or make a new federation"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise FedloomError(rule, f"it cannot be read ({error.strerror})", advice) from None
    except ValueError:
        raise FedloomError(rule, "it is not a certificate", advice) from None
    now = datetime.datetime.now(datetime.UTC)
    start = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    if not start <= now <= end:
        validity = f"it is valid from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
        clock = f"this machine's clock says {now:%Y-%m-%d %H:%M}"
        raise FedloomError(rule, f"{validity}, and {clock}", f"correct the clock, or {advice}")


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
        """Write STEM.key, which only its owner can read, and STEM.crt."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_private(stem.with_suffix(".key"), key)
        certificate = self.certificate.public_bytes(serialization.Encoding.PEM)
        write_whole(stem.with_suffix(".crt"), [certificate], durable=True)

    def ssh_private(self) -> bytes:
        """The private key in the format that Flower expects of a node."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        return bytes(key)

    def ssh_public(self) -> bytes:
        key = self.key.public_key().public_bytes(
            serialization.Encoding.OpenSSH,
            serialization.PublicFormat.OpenSSH,
        )
        return bytes(key)


class Authority(Identity):
    """The federation's own certificate authority."""

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP384R1())
        draft = builder(name, name, key)
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, draft.sign(key, hashes.SHA384()))

    def issue(self, name: str, alternatives: Sequence[str], days: int = 365 * YEARS) -> Identity:
        """A new key with a certificate that this authority signs."""
        key = ec.generate_private_key(ec.SECP384R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        names = [address(text) for text in dict.fromkeys(alternatives)]
        not_an_authority = x509.BasicConstraints(ca=False, path_length=None)
        draft = builder(name, str(issuer), key, days)
        draft = draft.add_extension(x509.SubjectAlternativeName(names), critical=False)
        draft = draft.add_extension(not_an_authority, critical=True)
        return Identity(key, draft.sign(self.key, hashes.SHA384()))


def builder(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    days: int = 365 * YEARS,
) -> Any:
    """A certificate without its extensions and its signature."""
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    start = min(now, end) - datetime.timedelta(minutes=5)  # clocks differ
    draft = x509.CertificateBuilder()
    draft = draft.subject_name(common_name(subject)).issuer_name(common_name(issuer))
    draft = draft.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return draft.not_valid_before(start).not_valid_after(end)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)

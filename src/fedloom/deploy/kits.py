"""A federation's folder and the start kits of its sites: certificates, keys, addresses, policies.

DIR/federation.json   name of the server, port, sites in client order, each site's node id and key
DIR/ca.crt            the certificate by which sites recognise the server
DIR/ca.key            the key of the federation's own authority, unless it is kept elsewhere
DIR/server.crt, .key  the server's certificate, and its key
DIR/authority.crt     the federation's own authority, if ca.crt is that of an existing PKI
DIR/local.crt, .key   a certificate of that authority, for the server's own machine
DIR/tokens.json       who may call the control interface; owner.token: of whoever owns DIR
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
import fcntl
import ipaddress
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedloom import reading
from fedloom.deploy.given_certificates import GivenCertificates
from fedloom.deploy.kit_file import HOST, SITE_NAME, KitFile, check_owner, is_port, is_server
from fedloom.deploy.members import INSECURE, KeyRecord, RevokedKey, fingerprint_of, records_in
from fedloom.deploy.policy import POLICY, Policy, read_policy
from fedloom.deploy.private_files import check_private, write_private
from fedloom.deploy.tokens import TokenFile, owners_token
from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.types import Json

YEARS = 2
LOCK = ".federation.lock"


@dataclass(frozen=True)
class Federation:
    """A federation, as its server knows it."""

    path: Path
    host: str
    port: int
    sites: tuple[str, ...]  # sorted; a site's position is its client number
    nodes: dict[str, int]  # the node id that Flower gave to each site's key
    keys: dict[str, KeyRecord] = field(default_factory=dict)  # of sites, since version 0.2
    revoked: tuple[RevokedKey, ...] = ()
    listen: str | None = None  # address and port, if a reverse proxy stands before the server

    @classmethod
    def create(
        cls,
        path: Path,
        sites: Sequence[str],
        host: str,
        port: int,
        *,
        offline_ca: Path | None = None,
        given: GivenCertificates | None = None,
        listen: str | None = None,
        sites_join: bool = False,
    ) -> Federation:
        """A new federation.

        `offline_ca` is where the authority's key goes, instead of `path`. With `sites_join` there
        may be no site yet: they make their own keys.
        """
        check_new(path, sites, host, may_be_empty=sites_join)
        check_kept_apart(offline_ca, path)
        check_listen(listen)
        if given is not None:
            given.check(host)
        federation = cls(path, host, port, tuple(sorted(sites)), {}, listen=listen)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        authority = Authority.create("fedloom federation")
        write_private(offline_ca or path / "ca.key", authority.private())
        local = authority.issue(host, [host, "localhost", "127.0.0.1"])
        if given is None:
            write_whole(path / "ca.crt", [authority.public()], durable=True)
            local.save(path / "server")
        else:
            write_whole(path / "authority.crt", [authority.public()], durable=True)
            local.save(path / "local")
            given.save(path)
        for site in federation.sites:
            federation = federation.with_kit(site, authority)
        federation.save()
        federation.owners_token()
        return federation

    def with_kit(self, site: str, authority: Authority, days: int = 365 * YEARS) -> Federation:
        """Make a site's kit here, with its key, and admit that key."""
        kit = self.path / "kits" / site
        kit.mkdir(parents=True, exist_ok=True)
        kit.chmod(0o700)
        identity = authority.issue(site, [site, "localhost", "127.0.0.1"], days)
        identity.save(kit / "site")
        write_private(kit / "node.key", ssh_private(identity.key))
        write_whole(kit / "ca.crt", [(self.path / "ca.crt").read_bytes()], durable=True)
        if not (kit / "policy.toml").exists():
            write_whole(kit / "policy.toml", [POLICY.encode()], durable=True)
        KitFile(site=site, server=f"{self.host}:{self.port}").write(kit)
        return self.with_key(site, identity.certificate)

    def with_key(self, site: str, certificate: x509.Certificate) -> Federation:
        """The federation in which this certificate's key is that of the site. It is not saved.

        The key that it replaces is revoked.
        """
        public_key = certificate.public_key()
        record = KeyRecord(fingerprint_of(pem_public(public_key)), certificate.not_valid_after_utc)
        revoked = self.revoked
        if site in self.sites and self.has_key(site):
            replaced = self.fingerprint(site)
            if replaced != record.fingerprint:
                now = datetime.datetime.now(datetime.UTC)
                revoked = (*revoked, RevokedKey(site, replaced, now))
        (self.path / "keys").mkdir(exist_ok=True)
        write_whole(self.path / "keys" / f"{site}.pub", [ssh_public(public_key)], durable=True)
        nodes = {name: node for name, node in self.nodes.items() if name != site}
        sites = tuple(sorted({*self.sites, site}))
        keys = {**self.keys, site: record}
        return replace(self, sites=sites, nodes=nodes, keys=keys, revoked=revoked)

    def with_all_keys(self) -> Federation:
        """The federation with a record of every site's key. It is not saved.

        Federations of versions before 0.2 have none, and the guard admits only keys that have one.
        """
        keys = dict(self.keys)
        for site in self.unrecorded_sites:
            keys[site] = KeyRecord(self.fingerprint(site), None)
        return replace(self, keys=keys)

    @property
    def unrecorded_sites(self) -> tuple[str, ...]:
        """The sites whose keys have no record, because an earlier version admitted them."""
        return tuple(site for site in self.sites if site not in self.keys)

    def has_key(self, site: str) -> bool:
        """Whether the site's key is known. A new federation's sites get theirs one by one."""
        return site in self.keys or (self.path / "keys" / f"{site}.pub").exists()

    def without(self, site: str, now: datetime.datetime) -> Federation:
        """The federation without a site, whose key may never come back. It is not saved."""
        nodes = {name: node for name, node in self.nodes.items() if name != site}
        keys = {name: record for name, record in self.keys.items() if name != site}
        sites = tuple(name for name in self.sites if name != site)
        revoked = (*self.revoked, RevokedKey(site, self.fingerprint(site), now))
        return replace(self, sites=sites, nodes=nodes, keys=keys, revoked=revoked)

    def fingerprint(self, site: str) -> str:
        if site in self.keys:
            return self.keys[site].fingerprint
        return fingerprint_of(self.public_key(site))

    def public_key(self, site: str) -> bytes:
        """A site's public key in PEM, as Flower wants it."""
        path = self.path / "keys" / f"{site}.pub"
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError):
            raise damaged(path) from None
        return pem_public(key)

    @property
    def authority_file(self) -> Path:
        """The certificate of the federation's own authority."""
        if (self.path / "authority.crt").exists():
            return self.path / "authority.crt"
        return self.path / "ca.crt"

    def authority(self, key: Path | None = None) -> Authority:
        """The federation's own authority, whose key may be kept elsewhere."""
        key = key or self.path / "ca.key"
        if not key.exists():
            rule = "the key of the federation's authority must be given"
            raise FedloomError(rule, f"there is no {key}", "add --ca-key FILE")
        check_private(key)
        certificate = x509.load_pem_x509_certificate(self.authority_file.read_bytes())
        try:
            loaded: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        except (ValueError, TypeError):
            raise damaged(key) from None
        if pem_public(loaded.public_key()) != pem_public(certificate.public_key()):
            rule = f"{key} must be the key of {self.authority_file}"
            raise FedloomError(rule, "it is another one", "give the one that `init` wrote")
        return Authority(loaded, certificate)

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens: only locally if the federation is on one machine."""
        if self.listen is not None:
            host, _, port = self.listen.rpartition(":")
            return host, int(port)
        if self.host in ("127.0.0.1", "localhost"):
            return "127.0.0.1", self.port
        return "0.0.0.0", self.port

    @property
    def local_port(self) -> int:
        return self.address[1]

    def owners_token(self) -> TokenFile:
        server = f"127.0.0.1:{self.local_port}"
        return owners_token(self.path, server, self.authority_file.read_text())

    @classmethod
    def open(cls, path: Path) -> Federation:
        file = path / "federation.json"
        raw = read_json(file, "a federation's folder", "`fedloom federation init`")
        try:
            federation = cls.from_json(path.resolve(), raw)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise damaged(file) from None
        check_server_key(path)
        if (path / "ca.key").exists():  # its owner may have moved it to a safer place
            check_private(path / "ca.key")
        for name in certificates_in(path):
            check_certificate(path / name)
        return federation

    @classmethod
    def from_json(cls, path: Path, raw: Any) -> Federation:
        """What federation.json says. Raises an error of some kind if it is not as we wrote it."""
        listen = raw.get("listen")
        if listen is not None and not is_listen(listen):
            raise ValueError("listen")
        if not is_server(f"{raw['host']}:{raw['port']}"):
            raise ValueError("host and port")
        sites = tuple(raw["sites"])
        if len(set(sites)) != len(sites) or not all(map(SITE_NAME.fullmatch, sites)):
            raise ValueError("sites")
        nodes = {}
        for site, node in raw["nodes"].items():
            if type(node) is not int:
                raise TypeError("nodes")
            nodes[str(site)] = node
        return cls(
            path=path,
            host=str(raw["host"]),
            port=int(raw["port"]),
            sites=sites,
            nodes=nodes,
            keys=records_in(raw.get("keys", {})),
            revoked=tuple(map(RevokedKey.from_json, raw.get("revoked", []))),
            listen=listen,
        )

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
            "keys": {site: record.to_json() for site, record in self.keys.items()},
            "revoked": [key.to_json() for key in self.revoked],
        }
        if self.listen is not None:
            facts["listen"] = self.listen
        content = json.dumps(facts, indent=1).encode()
        write_whole(self.path / "federation.json", [content], durable=True)


@contextmanager
def changing(path: Path) -> Iterator[Federation]:
    """A federation that nobody else changes meanwhile.

    A command reads federation.json, and writes it as a whole. Without the lock, a key that is
    revoked while a server starts, or while another site is admitted, would come back.
    """
    Federation.open(path)
    handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Federation.open(path)
    finally:
        os.close(handle)


def check_new(path: Path, sites: Sequence[str], host: str, *, may_be_empty: bool) -> None:
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
    if len(set(sites)) != len(sites) or not (sites or may_be_empty):
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


def check_kept_apart(offline_ca: Path | None, federation: Path) -> None:
    """Raise an error if the authority's key cannot be written where it should be kept."""
    if offline_ca is None:
        return
    rule = "--offline-ca must name a new file outside the federation's folder"
    if offline_ca.resolve().is_relative_to(federation.resolve()):
        raise FedloomError(rule, f"{offline_ca} is inside", "name one on another disk")
    if offline_ca.exists() or not offline_ca.parent.is_dir():
        found = f"{offline_ca} exists, or its folder does not"
        raise FedloomError(rule, found, "try --offline-ca /media/safe/ca.key")


def check_listen(text: str | None) -> None:
    """Raise an error unless this is an IPv4 address of this machine and a port."""
    if text is None:
        return
    if not is_listen(text):
        rule = "--listen must be an IPv4 address and a port"
        raise FedloomError(rule, f"got {text}", "try --listen 127.0.0.1:9092")


def is_listen(text: str) -> bool:
    address, _, port = text.rpartition(":")
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return is_port(port)


def certificates_in(folder: Path) -> list[str]:
    """The certificates that a federation must have. Behind a proxy there is no server.crt."""
    if not (folder / "local.crt").exists():
        return ["server.crt", "ca.crt"]
    names = ["ca.crt", "authority.crt", "local.crt"]
    if (folder / "server.crt").exists():
        names.append("server.crt")
    return names


def check_server_key(folder: Path) -> None:
    """Raise an error unless the keys of the server's certificates are private."""
    for name in certificates_in(folder):
        key = folder / f"{Path(name).stem}.key"
        if key.stem in ("server", "local"):
            check_private(key)


def read_json(path: Path, owner: str, advice: str) -> Json:
    """Read a file of `owner`, which names a folder or kit in the error."""
    try:
        return reading.read_json(path)
    except reading.Unreadable as error:
        raise FedloomError(f"{path} must be the file of {owner}", f"{error}", advice) from None


def damaged(path: Path) -> FedloomError:
    rule = f"{path} must be as fedloom wrote it"
    return FedloomError(rule, "it is damaged", "restore it, or make a new federation")


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


# Certificates


@dataclass(frozen=True)
class Identity:
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def save(self, stem: Path) -> None:
        """Write STEM.key, which only its owner can read, and STEM.crt."""
        write_private(stem.with_suffix(".key"), self.private())
        write_whole(stem.with_suffix(".crt"), [self.public()], durable=True)

    def private(self) -> bytes:
        key = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return bytes(key)

    def public(self) -> bytes:
        return bytes(self.certificate.public_bytes(serialization.Encoding.PEM))


class Authority(Identity):
    """The federation's own certificate authority."""

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP384R1())
        draft = builder(name, name, key.public_key())
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(key, draft.sign(key, hashes.SHA384()))

    def issue(self, name: str, alternatives: Sequence[str], days: int = 365 * YEARS) -> Identity:
        """A new key with a certificate that this authority signs."""
        key = ec.generate_private_key(ec.SECP384R1())
        return Identity(key, self.sign(name, alternatives, key.public_key(), days))

    def sign(
        self, name: str, alternatives: Sequence[str], public_key: Any, days: int = 365 * YEARS
    ) -> x509.Certificate:
        """A certificate for a key that somebody else has."""
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        names = [address(text) for text in dict.fromkeys(alternatives)]
        not_an_authority = x509.BasicConstraints(ca=False, path_length=None)
        draft = builder(name, str(issuer), public_key, days)
        draft = draft.add_extension(x509.SubjectAlternativeName(names), critical=False)
        draft = draft.add_extension(not_an_authority, critical=True)
        certificate: x509.Certificate = draft.sign(self.key, hashes.SHA384())
        return certificate


def builder(
    subject: str,
    issuer: str,
    public_key: Any,
    days: int = 365 * YEARS,
) -> Any:
    """A certificate without its extensions and its signature."""
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    start = min(now, end) - datetime.timedelta(minutes=5)  # clocks differ
    draft = x509.CertificateBuilder()
    draft = draft.subject_name(common_name(subject)).issuer_name(common_name(issuer))
    draft = draft.public_key(public_key).serial_number(x509.random_serial_number())
    return draft.not_valid_before(start).not_valid_after(end)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def pem_public(public_key: Any) -> bytes:
    """A public key in PEM, as a site's calls carry it."""
    key = public_key.public_bytes(
        serialization.Encoding.PEM,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    return bytes(key)


def ssh_public(public_key: Any) -> bytes:
    key = public_key.public_bytes(
        serialization.Encoding.OpenSSH,
        serialization.PublicFormat.OpenSSH,
    )
    return bytes(key)


def ssh_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in the format that Flower expects of a node."""
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return bytes(content)

"""How a site joins with a key that it makes itself, and how its key is replaced or revoked.

    at the site    fedloom federation join KIT --site hospital-c      KIT/hospital-c.request
    at the server  fedloom federation admit DIR hospital-c.request    hospital-c.admission
    at the site    fedloom federation join KIT --admission hospital-c.admission

No private key travels: a request holds the public key, signed by the private one, and an admission
holds certificates. Both may be read by anybody, but must come from whom they say: whoever carries
them could put others in their place. So there are two fingerprints to compare, by telephone for
example: that of the site's key, which `join --site` and `admit` print, and that of the admission,
which `admit` and `join --admission` print.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import BaseModel, ConfigDict, ValidationError

from fedloom.deploy.kit_file import SITE_NAME, KitFile, check_owner, is_server
from fedloom.deploy.kits import Federation, common_name, damaged, pem_public, ssh_private
from fedloom.deploy.members import fingerprint_of
from fedloom.deploy.policy import POLICY
from fedloom.deploy.private_files import check_private, write_private
from fedloom.deploy.processes import answers, register
from fedloom.errors import FedloomError, shortened
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json, read_text

NEW = "new"  # in a kit: the folder of a key that is not admitted yet
REQUESTED = "site.name"  # in that folder: the name that was requested
DAYS = 730  # for which a site's key is admitted, unless `--days` says otherwise
MOST_DAYS = 3660


class Admission(BaseModel):
    """What a server answers to a site's request. There is nothing secret in it."""

    model_config = ConfigDict(strict=True, frozen=True)

    format: int = 1
    site: str
    server: str
    certificate: str  # PEM: the site's key, its name and until when it is admitted
    authority: str  # PEM: by this, the site recognises the server
    # PEM: the federation's own authority, which signed the certificate, if it is another one.
    issuer: str | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of everything that the site will trust, in groups that can be read out."""
        content = [self.site, self.server, self.certificate, self.authority, self.issuer]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return " ".join(digest[place : place + 4] for place in range(0, len(digest), 4))

    @classmethod
    def read(cls, path: Path) -> Admission:
        rule = f"{path} must be the answer to a site's request"
        advice = "ask whoever runs the federation for it"
        try:
            admission = cls.model_validate(read_json(path))
        except Unreadable as error:
            raise FedloomError(rule, f"{error}", advice) from None
        except ValidationError:
            raise FedloomError(rule, "it is damaged", advice) from None
        if not is_server(admission.server):
            raise FedloomError(rule, "it names no server", advice)
        return admission


# At the site


def request(kit: Path, site: str) -> tuple[Path, str]:
    """Make a key and a request for it. Returns the request's file and the key's fingerprint.

    A kit that is in use stays as it is until its new key is admitted.
    """
    check_site_name(site)
    check_owner(kit)
    if (kit / "kit.json").exists() and KitFile.read(kit).site != site:
        rule = f"{kit} must be a new folder, or the kit of {site}"
        raise FedloomError(rule, f"it is the kit of {KitFile.read(kit).site}", "name another")
    kit.mkdir(parents=True, exist_ok=True)
    kit.chmod(0o700)
    folder = kit / NEW
    folder.mkdir(mode=0o700, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(folder / "site.key", pem_private(key))
    write_private(folder / "node.key", ssh_private(key))
    write_private(folder / REQUESTED, site.encode())
    draft = x509.CertificateSigningRequestBuilder().subject_name(common_name(site))
    signed = draft.sign(key, hashes.SHA384())
    path = kit / f"{site}.request"
    write_whole(path, [signed.public_bytes(serialization.Encoding.PEM)], durable=True)
    return path, fingerprint_of(pem_public(key.public_key()))


def accept(kit: Path, file: Path, fingerprint: str | None = None) -> tuple[KitFile, Admission]:
    """Complete a kit with the server's answer. Its new key replaces an old one.

    `fingerprint` is what whoever runs the federation read out: the answer must have it.
    """
    check_owner(kit)
    admission = Admission.read(file)
    folder = kit / NEW
    for name in ("site.key", REQUESTED):
        if not (folder / name).exists():
            rule = f"{kit} must have a key that waits for its admission"
            advice = "run `fedloom federation join KIT --site` first"
            raise FedloomError(rule, "it has none", advice)
    check_private(folder / "site.key")
    if fingerprint is not None:
        check_fingerprint(file, admission, fingerprint)
    check_admission(kit, file, admission)
    for name in ("site.key", "node.key"):
        write_private(kit / name, (folder / name).read_bytes())
    write_whole(kit / "site.crt", [admission.certificate.encode()], durable=True)
    write_whole(kit / "ca.crt", [admission.authority.encode()], durable=True)
    if not (kit / "policy.toml").exists():
        write_whole(kit / "policy.toml", [POLICY.encode()], durable=True)
    completed = KitFile(site=admission.site, server=admission.server)
    completed.write(kit)
    for name in ("site.key", "node.key", REQUESTED):
        (folder / name).unlink()
    folder.rmdir()
    return completed, admission


def check_fingerprint(file: Path, admission: Admission, expected: str) -> None:
    """Raise an error unless an admission is the one whose fingerprint was read out."""
    digits = "".join(expected.lower().replace(":", " ").split())
    if re.fullmatch("[0-9a-f]{64}", digits) is None:
        rule = "--fingerprint must be the 64 digits that `fedloom federation admit` printed"
        found = f"got {shortened(repr(expected), 80)}"
        raise FedloomError(rule, found, "let whoever runs the federation read them out")
    if digits != admission.fingerprint.replace(" ", ""):
        rule = f"{file} must be the admission with the given fingerprint"
        advice = "do not use it: ask whoever runs the federation for theirs"
        raise FedloomError(rule, f"its own is {admission.fingerprint}", advice)


def check_admission(kit: Path, file: Path, admission: Admission) -> None:
    """Raise an error unless this is an answer to the kit's request, and fits together."""
    folder = kit / NEW
    requested = text_of(folder / REQUESTED)
    try:
        certificate = x509.load_pem_x509_certificate(admission.certificate.encode())
        authorities = x509.load_pem_x509_certificates(admission.authority.encode())
        if admission.issuer is not None:
            authorities += x509.load_pem_x509_certificates(admission.issuer.encode())
        key: Any = serialization.load_pem_private_key((folder / "site.key").read_bytes(), None)
        own_key = pem_public(key.public_key())
        certified_key = pem_public(certificate.public_key())
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise damaged(file) from None
    if certified_key != own_key:
        rule = f"{file} must be the answer to the last request of {kit}"
        raise FedloomError(rule, "it is for another key", "send the request again")
    certified_names = [str(name.value) for name in names]
    if admission.site != requested or certified_names != [requested]:
        certified = ", ".join(certified_names) or "nobody"
        rule = f"{file} must be for {requested}, the site that was requested"
        found = f"it admits {shortened(admission.site, 80)}, with a certificate of {certified}"
        raise FedloomError(rule, found, "ask whoever runs the federation for another")
    if not any(is_signed_by(certificate, authority) for authority in authorities):
        rule = f"the certificate in {file} must be signed by the authority in it"
        advice = "do not use it: ask whoever runs the federation for theirs"
        raise FedloomError(rule, "it is not", advice)


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def text_of(path: Path) -> str:
    try:
        return read_text(path)
    except Unreadable as error:
        rule = f"{path} must be as fedloom wrote it"
        raise FedloomError(rule, f"{error}", "restore it") from None


# At the server


def admit(
    federation: Federation, file: Path, days: int, ca_key: Path | None, *, replace: bool
) -> tuple[Federation, Admission, str]:
    """Admit the key in a request. Returns the answer and the key's fingerprint."""
    check_days(days)
    site, public_key = read_request(file)
    if site in federation.sites and not replace:
        rule = f"{site} must not be in the federation yet"
        raise FedloomError(rule, "it has a key already", "add --replace to replace it")
    if site not in federation.sites and replace:
        rule = "--replace must be for a site of the federation"
        raise FedloomError(rule, f"{site} is none", "leave it out")
    fingerprint = fingerprint_of(pem_public(public_key))
    if fingerprint in {key.fingerprint for key in federation.revoked}:
        rule = "a revoked key must never be admitted again"
        advice = "the site must make a new one: `fedloom federation join KIT --site`"
        raise FedloomError(rule, f"the request of {site} has one", advice)
    for other in federation.sites:
        if other != site and federation.fingerprint(other) == fingerprint:
            rule = "every site must have a key of its own"
            raise FedloomError(rule, f"{other} has this one", "make a new one for the other site")
    names = [site, "localhost", "127.0.0.1"]
    certificate = federation.authority(ca_key).sign(site, names, public_key, days)
    changed = applied(federation.with_key(site, certificate))
    authority = text_of(federation.path / "ca.crt")
    issuer: str | None = text_of(federation.authority_file)
    if issuer == authority:
        issuer = None
    admission = Admission(
        site=site,
        server=f"{federation.host}:{federation.port}",
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        authority=authority,
        issuer=issuer,
    )
    return changed, admission, fingerprint


def add(federation: Federation, site: str, days: int, ca_key: Path | None) -> Federation:
    """Add a site with a kit that is made here."""
    check_days(days)
    check_site_name(site)
    if site in federation.sites:
        rule = "--site must name a new site"
        raise FedloomError(rule, f"{site} is in the federation", "name another, or rotate its key")
    return applied(federation.with_kit(site, federation.authority(ca_key), days))


def rotate(federation: Federation, site: str, days: int, ca_key: Path | None) -> Federation:
    """Replace the key of a site whose kit was made here. The old one is no longer accepted."""
    check_days(days)
    check_member(federation, site)
    return applied(federation.with_kit(site, federation.authority(ca_key), days))


def revoke(federation: Federation, site: str) -> Federation:
    """Take a site out. Its key may never come back."""
    check_member(federation, site)
    changed = federation.without(site, datetime.datetime.now(datetime.UTC))
    return applied(changed)


def applied(federation: Federation) -> Federation:
    """Save a change of the sites, and tell a running server of it.

    The guard reads the file at every call, so a revoked key is refused from now on even if
    Flower's server is not told before its next start.
    """
    federation.save()
    if answers(federation) and not federation.insecure:
        return register(federation)
    return federation


def read_request(file: Path) -> tuple[str, Any]:
    """The site's name and public key in a request that the site has signed with its key."""
    rule = f"{file} must be a request of `fedloom federation join`"
    advice = "ask the site for it"
    try:
        signed = x509.load_pem_x509_csr(read_text(file).encode())
        names = signed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        public_key = signed.public_key()
        if not signed.is_signature_valid or len(names) != 1:
            raise FedloomError(rule, "its signature does not fit its key", advice)
    except Unreadable as error:
        raise FedloomError(rule, f"{error}", advice) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FedloomError(rule, "it is damaged", advice) from None
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or public_key.key_size < 256:
        raise FedloomError(rule, "its key is of another kind", advice)
    site = str(names[0].value)
    check_site_name(site)
    return site, public_key


def check_site_name(name: str) -> None:
    if not SITE_NAME.fullmatch(name):
        raise FedloomError(
            "a site's name must consist of lower-case letters, digits and hyphens",
            f"got {name!r}",
            "try --site hospital-a",
        )


def check_member(federation: Federation, site: str) -> None:
    if site not in federation.sites:
        names = ", ".join(federation.sites) or "none"
        rule = "--site must name a site of the federation"
        raise FedloomError(rule, f"got {site!r}", f"choose from {names}")


def check_days(days: int) -> None:
    if not 0 < days <= MOST_DAYS:
        rule = f"--days must be a number from 1 to {MOST_DAYS}"
        raise FedloomError(rule, f"got {days}", f"try {DAYS}")


def pem_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return bytes(content)

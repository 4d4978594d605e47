"""Certificates of an existing PKI, instead of those that `fedloom federation init` makes.

Sites then recognise the server by the PKI's authority. The server shows the given certificate to
whoever calls it by its name, and to callers on its own machine one of the federation's own
authority, because a PKI rarely certifies 127.0.0.1. Behind a reverse proxy, which has the
certificate itself, only the authority is given.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from fedloom.deploy.private_files import write_private
from fedloom.errors import FedloomError
from fedloom.files import write_whole


@dataclass(frozen=True)
class GivenCertificates:
    """The files that an administrator gives to `init`."""

    authority: Path  # PEM: by this, sites recognise the server or its proxy
    certificate: Path | None = None  # PEM, with intermediate ones if there are any
    key: Path | None = None

    def check(self, host: str) -> None:
        """Raise an error unless a site that trusts the authority would accept the server."""
        if (self.certificate is None) != (self.key is None):
            rule = "--certificate and --key must be given together"
            raise FedloomError(rule, "one of them is missing", "add it")
        if is_address(host) and self.certificate is not None:
            rule = "--host must be a name if its certificate is given"
            raise FedloomError(rule, f"got {host}", "use the name that the certificate has")
        rule = f"{self.authority} must hold certificates in PEM"
        try:
            trusting = ssl.create_default_context(cafile=self.authority)
        except (OSError, ssl.SSLError) as error:
            raise FedloomError(rule, f"it does not ({error.strerror})", "check --ca") from None
        if self.certificate is None or self.key is None:
            return
        showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            showing.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            rule = f"{self.certificate} and {self.key} must be a certificate and its key in PEM"
            raise FedloomError(rule, f"they are not ({reason_of(error)})", "check them") from None
        complaint = handshake(showing, trusting, host)
        if complaint:
            rule = f"{self.certificate} must be valid for {host} and signed by {self.authority}"
            raise FedloomError(rule, f"a site would refuse it ({complaint})", "ask your PKI")

    def save(self, folder: Path) -> None:
        write_whole(folder / "ca.crt", [self.authority.read_bytes()], durable=True)
        if self.certificate is not None and self.key is not None:
            write_whole(folder / "server.crt", [self.certificate.read_bytes()], durable=True)
            write_private(folder / "server.key", self.key.read_bytes())


def handshake(showing: ssl.SSLContext, trusting: ssl.SSLContext, host: str) -> str:
    """Why a client that trusts these authorities would not talk to this server; empty: it would."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = showing.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(10):
        done = True
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLCertVerificationError as error:
                return str(error.verify_message)
            except ssl.SSLError as error:
                return reason_of(error)
        if done:
            return ""
    return "the handshake did not end"


def reason_of(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror
    return str(reason or type(error).__name__).lower().replace("_", " ")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

"""What a site and its server say to each other before Flower connects them.

The site asks with its key, and signs the moment at which it asks. The server's guard answers
whether it admits that key, which version of fedloom it runs, and what its clock says. Servers of
versions before 0.2 do not know the question; a site then simply goes on.
"""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.deploy.members import moment_in
from fedloom.errors import FedloomError
from fedloom.types import Json
from fedloom.version import __version__

PATH = "/v1/fleet/fedloom-hello"
PROTOCOL = 1  # of the messages between server and site; another number means that they cannot talk
KEY = "fedloom-key"
MOMENT = "fedloom-moment"
SIGNATURE = "fedloom-signature"
VERSION = "fedloom-version"
CLOCKS = datetime.timedelta(seconds=60)  # by which two clocks may differ; Flower allows about 10 s
LONGEST = 1 << 14  # bytes of an answer


@dataclass(frozen=True)
class Greeting:
    """What the server answers."""

    version: str
    protocol: int
    now: datetime.datetime
    refusal: str | None  # why the site is turned away

    def to_json(self) -> dict[str, Json]:
        return {
            "fedloom": self.version,
            "protocol": self.protocol,
            "now": self.now.isoformat(),
            "refusal": self.refusal,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Json]) -> Greeting:
        """What a server said, which may be anybody's. Raises ValueError, KeyError or TypeError."""
        refusal = raw["refusal"]
        if refusal is not None:
            refusal = printable(str(refusal)[:300])
        protocol = raw["protocol"]
        if type(protocol) is not int:
            raise TypeError("a protocol is a whole number")
        return cls(printable(str(raw["fedloom"])[:40]), protocol, moment_in(raw["now"]), refusal)


def printable(text: str) -> str:
    """A text from the other side, safe for a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


# The site


def greet(server: str, authority: Path | None, node_key: Path) -> Greeting | None:
    """Ask the server. None: it does not answer, or does not know the question."""
    host, _, port = server.rpartition(":")
    connection: http.client.HTTPConnection
    if authority is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=5.0)
    else:
        context = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(host, int(port), timeout=5.0, context=context)
    try:
        connection.request("GET", PATH, headers=signed(node_key))
        response = connection.getresponse()
        content = response.read(LONGEST)
        if response.status != 200:
            return None
        return Greeting.from_json(json.loads(content))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return None
    finally:
        connection.close()


def signed(node_key: Path) -> dict[str, str]:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = serialization.load_ssh_private_key(node_key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        rule = f"{node_key} must be the key of a site"
        raise FedloomError(rule, "it is of another kind", "restore it")
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    moment = datetime.datetime.now(datetime.UTC).isoformat()
    signature = private.sign(moment.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        KEY: base64.b64encode(public).decode(),
        MOMENT: moment,
        SIGNATURE: base64.b64encode(signature).decode(),
        VERSION: __version__,
    }


def check_greeting(greeting: Greeting, site: str) -> str | None:
    """Raise an error if the site cannot take part. Returns what an operator should know."""
    if greeting.refusal is not None:
        rule = f"the server must admit {site}"
        advice = "ask whoever runs the federation to admit a new key (`fedloom federation join`)"
        raise FedloomError(rule, greeting.refusal, advice)
    now = datetime.datetime.now(datetime.UTC)
    if abs(now - greeting.now) > CLOCKS:
        rule = "the clocks of this machine and of the server must agree"
        found = f"here it is {now:%Y-%m-%d %H:%M} UTC, there {greeting.now:%Y-%m-%d %H:%M} UTC"
        raise FedloomError(rule, found, "set the one that is wrong")
    if greeting.protocol != PROTOCOL:
        rule = "server and site must speak the same protocol"
        found = (
            f"the server's fedloom {greeting.version} speaks {greeting.protocol}, "
            f"this fedloom {__version__} speaks {PROTOCOL}"
        )
        raise FedloomError(rule, found, "install versions that fit")
    if greeting.version == __version__:
        return None
    versions = f"the server runs fedloom {greeting.version}, this site {__version__}"
    if minor(greeting.version) == minor(__version__):
        return f"{versions}; they work together"
    return f"{versions}; only versions with the same first two numbers are tested together"


def minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


# The server


@dataclass(frozen=True)
class Question:
    """What a site asked, if its signature is right."""

    public_key: bytes
    version: str
    moment: datetime.datetime


def question_in(headers: Mapping[str, str]) -> Question | None:
    """The question in a call's headers. None: it is malformed, or signed by another key."""
    try:
        public_key = base64.b64decode(headers[KEY], validate=True)
        text = headers[MOMENT]
        if not is_signed(text, headers[SIGNATURE], public_key):
            return None
        version = printable(headers.get(VERSION, "?")[:40])
        return Question(public_key, version, moment_in(text))
    except (KeyError, ValueError, TypeError):
        return None


def is_signed(text: str, signature: str, public_key: bytes) -> bool:
    """Whether a site has signed a text with this key, as its calls are signed."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        loaded: Any = serialization.load_pem_public_key(public_key)
        if not isinstance(loaded, ec.EllipticCurvePublicKey):
            return False
        usual = loaded.public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        if public_key.strip() != usual.strip():
            return False  # keys are compared by their text, so each must have only one
        raw = base64.b64decode(signature, validate=True)
        loaded.verify(raw, text.encode(), ec.ECDSA(hashes.SHA256()))
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True

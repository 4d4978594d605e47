"""Which keys of sites a federation admits: until when, and which it has revoked.

The records are in federation.json. The guard reads them for every call of a site, so that a key
that was revoked or has expired is turned away at once.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.types import Json

REVOKED = "was revoked"
EXPIRED = "expired"


@dataclass(frozen=True)
class KeyRecord:
    """The key of a site."""

    fingerprint: str  # SHA-256 of the public key, see `fingerprint_of`
    expires: datetime.datetime | None  # None: never, as those of versions before 0.2 do

    def to_json(self) -> dict[str, Json]:
        expires = None
        if self.expires is not None:
            expires = self.expires.isoformat()
        return {"fingerprint": self.fingerprint, "expires": expires}

    @classmethod
    def from_json(cls, record: Mapping[str, Json]) -> KeyRecord:
        expires = None
        if record["expires"] is not None:
            expires = datetime.datetime.fromisoformat(str(record["expires"]))
        return cls(str(record["fingerprint"]), expires)


@dataclass(frozen=True)
class RevokedKey:
    """A key that may never come back."""

    site: str
    fingerprint: str
    when: datetime.datetime

    def to_json(self) -> dict[str, Json]:
        return {
            "site": self.site,
            "fingerprint": self.fingerprint,
            "when": self.when.isoformat(),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Json]) -> RevokedKey:
        when = datetime.datetime.fromisoformat(str(record["when"]))
        return cls(str(record["site"]), str(record["fingerprint"]), when)


def fingerprint_of(public_key: bytes) -> str:
    """The SHA-256 of a public key in PEM, as sites send it with every call."""
    return hashlib.sha256(public_key.strip()).hexdigest()


def refusal_of(
    public_key: bytes,
    keys: Mapping[str, KeyRecord],
    revoked: Sequence[RevokedKey],
    now: datetime.datetime,
) -> str | None:
    """Why a site with this key is turned away.

    None: it is not. Flower itself turns away keys that were never registered.
    """
    fingerprint = fingerprint_of(public_key)
    for key in revoked:
        if key.fingerprint == fingerprint:
            return f"the key of {key.site} {REVOKED} at {key.when:%Y-%m-%d %H:%M} UTC"
    for site, record in keys.items():
        if record.fingerprint != fingerprint or record.expires is None:
            continue
        if now >= record.expires:
            return f"the key of {site} {EXPIRED} at {record.expires:%Y-%m-%d %H:%M} UTC"
    return None

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

INSECURE = "INSECURE"  # a file that marks the folder of a server started with --insecure
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
            expires = moment_in(record["expires"])
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
        return cls(str(record["site"]), str(record["fingerprint"]), moment_in(record["when"]))


def records_in(raw: Mapping[str, Mapping[str, Json]]) -> dict[str, KeyRecord]:
    """The records of the sites' keys, as federation.json has them."""
    return {str(site): KeyRecord.from_json(record) for site, record in raw.items()}


def moment_in(text: Json) -> datetime.datetime:
    """A moment with its time zone. Raises ValueError."""
    moment = datetime.datetime.fromisoformat(str(text))
    if moment.tzinfo is None:
        raise ValueError("a moment must have a time zone")
    return moment


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

    None: it is not. Only a key of a site of the federation is let in, whatever Flower's own
    database still holds.
    """
    fingerprint = fingerprint_of(public_key)
    for key in revoked:
        if key.fingerprint == fingerprint:
            return f"the key of {key.site} {REVOKED} at {key.when:%Y-%m-%d %H:%M} UTC"
    for site, record in keys.items():
        if record.fingerprint != fingerprint:
            continue
        if record.expires is not None and now >= record.expires:
            return f"the key of {site} {EXPIRED} at {record.expires:%Y-%m-%d %H:%M} UTC"
        return None
    return "its key is not one of the federation's"

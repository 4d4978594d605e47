"""How many samples the sites of a federation claim, from one experiment to the next.

A site's weight is bounded by the number of samples that it tells when an experiment begins, and
only the site can count them. So the federation's folder keeps what each site told last, and one
that tells more than twice as many in a new experiment is named: in run.log, in the run's folder, in
`fedloom federation status`, in result.json and on the report. It takes part all the same: data
grow. An operator who did not expect it has a person to ask.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json
from fedloom.records.folder import RunFolder

log = logging.getLogger("fedloom")

KEPT = "samples.json"  # in the federation's folder
CLAIMS = "claims.json"  # in the folder of a run in which a site was named
GROWTH = 2  # times as many as before, and more, is worth a question


class Kept(BaseModel):
    """The file in the federation's folder."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    format: Annotated[int, Field(ge=1, le=1)] = 1
    sites: dict[str, Annotated[int, Field(ge=0)]] = {}


class Claim(BaseModel):
    """A site that tells of many more samples than in the experiment before."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    site: str
    before: Annotated[int, Field(ge=0)]
    now: Annotated[int, Field(ge=0)]

    @property
    def text(self) -> str:
        before = f"{self.before:,} in its last experiment"
        return f"site {self.site} claims {self.now:,} samples, {before}"


CLAIM_LIST = TypeAdapter(list[Claim])  # what claims.json holds


def note_claims(federation: Path, folder: RunFolder, samples: Mapping[str, int]) -> list[Claim]:
    """Compare with the last experiment, and keep the new counts for the next one.

    Who is to be asked is named. It is called once an experiment, before its id is noted. Killed in
    between, it is called again, and finds nothing new: what was noted in the run's folder stays.
    """
    kept = read_kept(federation / KEPT)
    claims = []
    for site, now in sorted(samples.items()):
        before = kept.sites.get(site)
        if before is not None and now > GROWTH * before:
            claims.append(Claim(site=site, before=before, now=now))
    for claim in claims:
        advice = "ask there before you trust its weight, or cap it with --max-weight-share"
        log.warning("%s: %s", claim.text, advice)
    if claims:
        folder.write_json(CLAIMS, [claim.model_dump() for claim in claims])
    new = Kept(sites={**kept.sites, **samples})
    text = json.dumps(new.model_dump(), indent=1)
    write_whole(federation / KEPT, [text.encode()], durable=True)
    return claims


def read_kept(path: Path) -> Kept:
    """What the sites told last. A damaged file is told of and begun anew."""
    try:
        return Kept.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Kept()
    except (OSError, ValidationError):
        consequence = "the sites' counts of samples are compared from the next experiment on"
        log.warning("%s is damaged: %s", path, consequence)
        return Kept()


def claims_in(folder: RunFolder) -> list[str]:
    """What was noted in a run's folder, as sentences.

    There are none if there is nothing to read.
    """
    try:
        claims = CLAIM_LIST.validate_python(read_json(folder.path / CLAIMS))
    except (Unreadable, ValidationError):
        return []
    return [claim.text for claim in claims]

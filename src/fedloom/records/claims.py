"""How many samples the sites of a federation claim to have, from one experiment to the next.

A site's weight is bounded by the number of samples that it reports when an experiment begins, and
only the site can count them. So the federation's folder keeps the last number of each site. A site
that reports more than twice as many in a new experiment is named in run.log, in the run's folder,
in `fedloom federation status`, in result.json and in the report. It takes part nevertheless,
because data can grow. An operator who did not expect the growth knows which site to ask.
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

LAST_COUNTS = "samples.json"  # in the federation's folder
CLAIMS = "claims.json"  # in the folder of a run in which a site is named
GROWTH = 2  # more than this many times as many samples as before is worth a question


class LastCounts(BaseModel):
    """The content of samples.json: each site's last number of samples."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    format: Annotated[int, Field(ge=1, le=1)] = 1
    sites: dict[str, Annotated[int, Field(ge=0)]] = {}


class Claim(BaseModel):
    """A site that reports many more samples than in its last experiment."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    site: str
    before: Annotated[int, Field(ge=0)]
    now: Annotated[int, Field(ge=0)]

    @property
    def text(self) -> str:
        before = f"{self.before:,} in its last experiment"
        return f"site {self.site} claims {self.now:,} samples, {before}"


CLAIM_LIST = TypeAdapter(list[Claim])  # the content of claims.json


def note_claims(federation: Path, folder: RunFolder, samples: Mapping[str, int]) -> list[Claim]:
    """Compare the sites' samples with the last experiment, and keep them for the next one.

    It returns, logs and stores the sites to ask about. It is called once per experiment, before the
    experiment's id is noted. If the process is killed in between, it is called again and finds
    nothing new; what was stored in the run's folder stays.
    """
    last_counts = read_last_counts(federation / LAST_COUNTS)
    claims = []
    for site, now in sorted(samples.items()):
        before = last_counts.sites.get(site)
        if before is not None and now > GROWTH * before:
            claims.append(Claim(site=site, before=before, now=now))
    for claim in claims:
        advice = "ask the site before you trust its weight, or cap it with --max-weight-share"
        log.warning("%s: %s", claim.text, advice)
    if claims:
        folder.write_json(CLAIMS, [claim.model_dump() for claim in claims])
    new = LastCounts(sites={**last_counts.sites, **samples})
    text = json.dumps(new.model_dump(), indent=1)
    write_whole(federation / LAST_COUNTS, [text.encode()], durable=True)
    return claims


def read_last_counts(path: Path) -> LastCounts:
    """The sites' last numbers of samples. A damaged file is reported in the log and ignored."""
    try:
        return LastCounts.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return LastCounts()
    except (OSError, ValidationError):
        consequence = "the sites' counts of samples are compared from the next experiment on"
        log.warning("%s is damaged: %s", path, consequence)
        return LastCounts()


def claims_in(folder: RunFolder) -> list[str]:
    """The claims that are stored in a run's folder, as sentences.

    The list is empty if there is no readable file.
    """
    try:
        claims = CLAIM_LIST.validate_python(read_json(folder.path / CLAIMS))
    except (Unreadable, ValidationError):
        return []
    return [claim.text for claim in claims]

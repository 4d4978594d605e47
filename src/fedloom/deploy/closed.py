"""The base of schemas for what a server and a site send each other, and for a site's counters."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from fedloom.federation.protocol.strict_json import read_json


class Closed(BaseModel):
    """A schema that allows no other fields than those it names."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    @classmethod
    def read(cls, text: str) -> Self:
        """The value that a JSON text describes."""
        value = cls.model_validate_json(text)
        read_json(text)  # refuses an object with the same key twice
        return value

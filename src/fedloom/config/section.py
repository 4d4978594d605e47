"""The base of all sections of a configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SET_LATER = "set when the run is created"  # in descriptions of options that no user gives


class Section(BaseModel):
    """Unknown names are refused, and so are NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

"""Options: a closed, frozen schema that methods and networks build theirs on."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Unknown names are refused with their nearest match."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

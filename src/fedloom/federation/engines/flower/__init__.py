"""Orders and replies carried by Flower, which the extra `fedloom[flower]` brings."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from fedloom.errors import FedloomError

# Versions of flwr that this was tested with, from the first up to below the second.
OLDEST, TOO_NEW = (1, 41), (1, 43)
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}  # nothing calls home; the last one only silences a warning


def require() -> None:
    """Flower must be there, in a version we know, and be quiet.

    To be called before anything imports flwr.
    """
    todo = "`pip install 'fedloom[flower]'`"
    try:
        found, _ = version("flwr"), version("ray")
    except PackageNotFoundError as error:
        raise FedloomError(
            "Flower must be installed for this",
            f"there is no package {error.name}",
            todo,
        ) from None
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if not OLDEST <= numbers < TOO_NEW:
        known = f"flwr must be at least {OLDEST[0]}.{OLDEST[1]} and below {TOO_NEW[0]}.{TOO_NEW[1]}"
        raise FedloomError(known, f"this is {found}", todo)
    os.environ.update(QUIET)

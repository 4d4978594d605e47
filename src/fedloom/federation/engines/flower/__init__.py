"""Orders and replies carried by Flower, which the extra `fedloom[flower]` brings."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from fedloom.errors import FedloomError

# This was tested with versions of flwr from the first up to below the second.
OLDEST = (1, 41)
TOO_NEW = (1, 43)
# Nothing calls home; the last one only silences a warning.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def require() -> None:
    """Flower must be there, in a version we know, and be quiet.

    To be called before anything imports flwr.
    """
    install = "`pip install 'fedloom[flower]'`"
    try:
        installed = version("flwr")
        version("ray")
    except PackageNotFoundError as error:
        raise FedloomError(
            "Flower must be installed for this",
            f"there is no package {error.name}",
            install,
        ) from None
    numbers = tuple(int(part) for part in installed.split(".")[:2])
    if not OLDEST <= numbers < TOO_NEW:
        oldest = f"at least {OLDEST[0]}.{OLDEST[1]}"
        newest = f"below {TOO_NEW[0]}.{TOO_NEW[1]}"
        raise FedloomError(f"flwr must be {oldest} and {newest}", f"this is {installed}", install)
    os.environ.update(QUIET)

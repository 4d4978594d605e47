"""Delivery of orders and replies by Flower, which the extra `fedloom[flower]` installs."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from fedloom.errors import FedloomError

# The versions of flwr that were tested: from OLDEST up to, but not including, TOO_NEW.
OLDEST = (1, 41)
TOO_NEW = (1, 43)
# No telemetry is sent. The last variable only silences a warning.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def require() -> None:
    """Check that Flower is installed in a tested version, and turn its telemetry off.

    Call this before anything imports flwr.
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

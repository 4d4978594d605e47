"""`make pip-audit`: are advisories known for the packages of this environment?

    .venv/bin/python tools/audit.py

Without a network nothing can be checked: it says so and exits with 0. Known advisories exit with 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

SECONDS = 600
OFFLINE = "no advisory was looked up"


def main() -> int:
    if find_spec("pip_audit") is None and not installed():
        print(f"pip-audit is not installed and cannot be fetched: {OFFLINE}")
        return 0
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json"]
    audit = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    return verdict(audit.stdout, audit.stderr)


def installed() -> bool:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--retries", "0", "--timeout", "10", "pip-audit>=2.7"]
    installation = subprocess.run(command, capture_output=True, timeout=SECONDS)
    return installation.returncode == 0


def verdict(output: str, errors: str) -> int:
    """Print what pip-audit found. Without an answer in JSON, it could not ask."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        messages = errors.strip().splitlines() or ["no answer"]
        print(f"the database of advisories did not answer ({messages[-1][:200]}): {OFFLINE}")
        return 0
    advisories = 0
    for package in packages:
        for advisory in package.get("vulns", []):
            advisories += 1
            fixed = ", ".join(advisory.get("fix_versions", [])) or "no version"
            version = package["version"]
            print(f"{package['name']} {version}: {advisory['id']}, fixed in {fixed}")
    print(f"{len(packages)} packages, {advisories} known advisories")
    return int(advisories > 0)


if __name__ == "__main__":
    sys.exit(main())

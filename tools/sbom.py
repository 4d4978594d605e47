"""`make sbom`: every package of this environment, as CycloneDX 1.5 JSON in build/sbom.json.

    .venv/bin/python tools/sbom.py [FILE]

The serial number and the time are left out, so that the same packages give the same file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

MAIN = "fedloom"


def main() -> int:
    path = Path("build/sbom.json")
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    document = sbom(distributions())
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{path}: {len(document['components'])} packages beside {MAIN}")
    return 0


def sbom(installed: Iterable[Distribution]) -> dict[str, Any]:
    """The bill of materials of these packages, of which one is fedloom."""
    packages: dict[str, Distribution] = {}
    for package in installed:
        packages.setdefault(normalised(package.name), package)
    main_component = component(packages[MAIN], "application")
    components = []
    for name in sorted(packages):
        if name != MAIN:
            components.append(component(packages[name], "library"))
    dependencies = []
    for name in sorted(packages):
        needs = sorted(needed(packages[name]) & packages.keys())
        depends_on = [reference(packages[other]) for other in needs]
        dependencies.append({"ref": reference(packages[name]), "dependsOn": depends_on})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main_component},
        "components": components,
        "dependencies": dependencies,
    }


def component(package: Distribution, kind: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "type": kind,
        "bom-ref": reference(package),
        "name": normalised(package.name),
        "version": package.version,
        "purl": reference(package),
    }
    if "License-Expression" in package.metadata:
        described["licenses"] = [{"expression": package.metadata["License-Expression"]}]
    return described


def reference(package: Distribution) -> str:
    """The package's URL, by which CycloneDX and databases of advisories name it."""
    return f"pkg:pypi/{normalised(package.name)}@{package.version.replace('+', '%2B')}"


def needed(package: Distribution) -> set[str]:
    """The names of packages that a package always needs, without its extras."""
    names = set()
    for requirement in package.requires or []:
        if "extra ==" in requirement:
            continue
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match is not None:
            names.add(normalised(match.group()))
    return names


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())

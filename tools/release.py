"""`make release`: builds sdist and wheel, checks them, and tries the wheel in a new environment.

Nothing is uploaded and no tag is made: both are up to the person who releases. Run it before
tagging as a rehearsal, and again afterwards: then the tag must agree too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGE = "fedloom/"
DATA_OF_THE_PACKAGE = ("py.typed", "cost/phones.json")  # all files other than Python ones
NEEDED_IN_SDIST = ("LICENSE", "README.md", "pyproject.toml", "src/fedloom/version.py")
HEADING = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)
UNRELEASED = "unreleased"


class ReleaseError(Exception):
    """The reason why this cannot be released, as a sentence."""


# The version: one number in three files and in the tag


@dataclass(frozen=True)
class Versions:
    package: str  # src/fedloom/version.py
    changelog: str  # the first heading
    changelog_date: str
    citation: str  # CITATION.cff


@dataclass(frozen=True)
class Checkout:
    """The state of the git checkout."""

    tags_here: Collection[str]  # of the checked-out commit
    all_tags: Collection[str]
    is_clean: bool


def read_versions(root: Path) -> Versions:
    version_file = (root / "src" / "fedloom" / "version.py").read_text(encoding="utf-8")
    package = re.search(r'^__version__ = "(.+)"$', version_file, re.MULTILINE)
    heading = HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    citation_file = (root / "CITATION.cff").read_text(encoding="utf-8")
    citation = re.search(r"^version: (\S+)$", citation_file, re.MULTILINE)
    if package is None or citation is None:
        raise ReleaseError("src/fedloom/version.py and CITATION.cff must each name a version")
    if heading is None:
        raise ReleaseError("the first heading of CHANGELOG.md must be `## VERSION (DATE)`")
    return Versions(package[1], heading[1], heading[2], citation[1])


def check_versions(versions: Versions, checkout: Checkout) -> bool:
    """Whether this is the release itself; False: it is a rehearsal before the tag."""
    for name, version in (
        ("CHANGELOG.md", versions.changelog),
        ("CITATION.cff", versions.citation),
    ):
        if version != versions.package:
            rule = f"{name} must name version {versions.package}, as src/fedloom/version.py does"
            raise ReleaseError(f"{rule}, but it names {version}")
    tag = f"v{versions.package}"
    for other in sorted(checkout.tags_here):
        if re.fullmatch(r"v\d.*", other) and other != tag:
            raise ReleaseError(f"the tag of this commit must be {tag}, but it is {other}")
    if tag not in checkout.tags_here:
        if tag in checkout.all_tags:
            raise ReleaseError(f"{tag} is the tag of an earlier commit: raise the version")
        return False
    if versions.changelog_date == UNRELEASED:
        raise ReleaseError(f"{tag} is tagged, but CHANGELOG.md says {UNRELEASED}: write the date")
    if not checkout.is_clean:
        raise ReleaseError(f"{tag} is tagged, but there are uncommitted changes")
    return True


def read_checkout(root: Path) -> Checkout:
    return Checkout(
        tags_here=git(root, "tag", "--points-at", "HEAD"),
        all_tags=git(root, "tag"),
        is_clean=not git(root, "status", "--porcelain"),
    )


def git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


# The content of the wheel and the sdist


def check_wheel(names: Collection[str], modules: Collection[str]) -> None:
    """Check that a wheel has every module and the type marker, but no tests and no test data."""
    expected = {PACKAGE + name for name in (*modules, *DATA_OF_THE_PACKAGE)}
    shipped = {name for name in names if ".dist-info/" not in name and not name.endswith("/")}
    missing = sorted(expected - shipped)
    if missing:
        raise ReleaseError(
            f"the wheel must have every file of the package, but lacks {missing[:5]}"
        )
    surplus = sorted(shipped - expected)
    if surplus:
        raise ReleaseError(f"the wheel must have nothing but the package, but has {surplus[:5]}")


def check_sdist(names: Collection[str]) -> None:
    """Check that an sdist has the files from which the wheel is built, in one folder."""
    inside = {name.partition("/")[2] for name in names}
    missing = [name for name in NEEDED_IN_SDIST if name not in inside]
    if missing:
        raise ReleaseError(f"the sdist must have {missing}, but does not")


def source_modules(root: Path) -> list[str]:
    package = root / "src" / "fedloom"
    return [path.relative_to(package).as_posix() for path in package.rglob("*.py")]


def only_file(pattern: str) -> Path:
    files = list(DIST.glob(pattern))
    if len(files) != 1:
        raise ReleaseError(f"dist must hold one {pattern}, but holds {len(files)}")
    return files[0]


# Building and trying


def build(root: Path) -> None:
    """Build the sdist, and the wheel from it, so that files missing in the sdist are noticed.

    Old build files are removed first: they would get into the wheel.
    """
    for leftovers in (DIST, root / "build" / "lib"):
        shutil.rmtree(leftovers, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(root)], root)


def try_wheel(wheel: Path, version: str, root: Path) -> None:
    """Try the wheel in an environment and a folder that have nothing of this checkout."""
    with tempfile.TemporaryDirectory(prefix="fedloom-release-") as name:
        folder = Path(name)
        run([sys.executable, "-m", "venv", "env"], folder)
        programs = folder / "env" / "bin"
        constraints = root / "constraints.txt"
        install = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
        run([*install, "-c", str(constraints), str(wheel)], folder)
        printed = output([str(programs / "fedloom"), "--version"], folder).strip()
        if version not in printed.split():
            raise ReleaseError(f"the installed fedloom must be {version}, but says {printed}")
        print_place = "import fedloom, pathlib; print(pathlib.Path(fedloom.__file__).parent)"
        package = Path(output([str(programs / "python"), "-c", print_place], folder).strip())
        if folder.resolve() not in package.resolve().parents:
            raise ReleaseError(f"the wheel must be what runs, but {package} was imported")
        if not (package / "py.typed").is_file():
            raise ReleaseError("the installed package must have py.typed, but does not")
        run([str(programs / "fedloom"), "run", "--out", "demo"], folder)
        for file in ("result.json", "report.html"):
            if not (folder / "demo" / file).is_file():
                raise ReleaseError(f"the demo must leave {file}, but did not")


def run(command: Sequence[str], folder: Path) -> None:
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=folder, env=clean_environment())
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` ended with {done.returncode}")


def output(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True
    )
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The environment without PYTHONPATH, which could make Python import the checkout instead."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def release(root: Path) -> str:
    versions = read_versions(root)
    is_release = check_versions(versions, read_checkout(root))
    build(root)
    wheel = only_file("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        check_wheel(archive.namelist(), source_modules(root))
    with tarfile.open(only_file("*.tar.gz")) as sdist:
        check_sdist(sdist.getnames())
    try_wheel(wheel, versions.package, root)
    if is_release:
        return f"{wheel.name} and its sdist are ready in dist/: version, changelog and tag agree"
    tag = f"v{versions.package}"
    return (
        f"{wheel.name} works. This was a rehearsal: there is no tag {tag} yet. To release: write "
        f"the date in CHANGELOG.md, commit, `git tag -a {tag}`, and run `make release` again"
    )


def main() -> int:
    try:
        print(release(ROOT))
    except ReleaseError as error:
        print(f"release: {error}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

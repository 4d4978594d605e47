"""What `make release` checks before it says that something can be released; tools/release.py."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load_tool():
    spec = importlib.util.spec_from_file_location("release_tool", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


release = load_tool()
DATED = release.Versions("0.2.0", "0.2.0", "2026-12-01", "0.2.0")
UNTAGGED = release.Checkout(tags_here=(), all_tags=("v0.1.0",), is_clean=True)
TAGGED = release.Checkout(tags_here=("v0.2.0",), all_tags=("v0.1.0", "v0.2.0"), is_clean=True)
MODULES = ["__init__.py", "types.py"]
WHEEL = [
    "fedloom/__init__.py",
    "fedloom/types.py",
    "fedloom/py.typed",
    "fedloom/cost/phones.json",
    "fedloom-0.2.0.dist-info/METADATA",
]


def test_the_versions_of_this_checkout_agree():
    versions = release.read_versions(ROOT)
    assert versions.package == versions.changelog == versions.citation


def test_before_the_tag_it_is_a_rehearsal():
    assert release.check_versions(replace(DATED, changelog_date="unreleased"), UNTAGGED) is False


def test_with_the_tag_it_is_the_release():
    assert release.check_versions(DATED, TAGGED) is True


@pytest.mark.parametrize(
    ("versions", "checkout", "complaint"),
    [
        (replace(DATED, changelog="0.3.0"), UNTAGGED, "CHANGELOG.md must name version 0.2.0"),
        (replace(DATED, citation="0.1.0"), UNTAGGED, "CITATION.cff must name version 0.2.0"),
        (replace(DATED, changelog_date="unreleased"), TAGGED, "write the date"),
        (DATED, replace(TAGGED, is_clean=False), "uncommitted changes"),
        (DATED, replace(UNTAGGED, tags_here=("v0.2.1",)), "must be v0.2.0, but it is v0.2.1"),
        (DATED, replace(UNTAGGED, all_tags=("v0.2.0",)), "raise the version"),
    ],
)
def test_what_does_not_agree_is_named(versions, checkout, complaint):
    with pytest.raises(release.ReleaseError, match=complaint):
        release.check_versions(versions, checkout)


def test_other_tags_are_nobodys_business():
    assert release.check_versions(DATED, replace(UNTAGGED, tags_here=("verified",))) is False


def test_a_wheel_of_the_package_passes():
    release.check_wheel(WHEEL, MODULES)


@pytest.mark.parametrize(
    "surplus", ["tests/test_api.py", "fedloom/data/digits.npz", "fedloom/old_module.py"]
)
def test_a_wheel_with_anything_else_is_refused(surplus):
    with pytest.raises(release.ReleaseError, match="nothing but the package"):
        release.check_wheel([*WHEEL, surplus], MODULES)


@pytest.mark.parametrize("lost", ["fedloom/py.typed", "fedloom/types.py"])
def test_a_wheel_that_lacks_a_file_is_refused(lost):
    with pytest.raises(release.ReleaseError, match=f"lacks .*{lost}"):
        release.check_wheel([name for name in WHEEL if name != lost], MODULES)


def test_an_sdist_must_build_the_wheel():
    names = [f"fedloom-0.2.0/{name}" for name in release.NEEDED_IN_SDIST]
    release.check_sdist(names)
    with pytest.raises(release.ReleaseError, match="LICENSE"):
        release.check_sdist(names[1:])


def test_the_data_that_ships_is_the_data_that_pyproject_names():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["tool"]["setuptools"]["package-data"]["fedloom"]
    assert tuple(named) == release.DATA_OF_THE_PACKAGE

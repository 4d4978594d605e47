"""Who may call a server, and which programs a site runs. These tests do not need Flower."""

import io
import zipfile

import pytest
import tomli_w

from fedloom.deploy.guard import COMPONENTS, is_ours, passes


@pytest.mark.parametrize(
    ("kind", "host", "path", "expected"),
    [
        ("http", "127.0.0.1", "/v1/control/start-run", True),
        ("http", "::1", "/v1/control/start-run", True),
        ("http", "10.0.0.7", "/v1/fleet/pull-messages", True),
        ("http", "10.0.0.7", "/v1/control/start-run", False),
        ("http", "10.0.0.7", "/other/v1/fleet/pull-messages", False),
        ("http", "127.0.0.10", "/v1/control/start-run", False),
        ("websocket", "10.0.0.7", "/v1/fleet/pull-messages", False),
    ],
)
def test_from_another_machine_only_sites_calls_pass(kind, host, path, expected):
    assert passes({"type": kind, "client": (host, 4711), "path": path}) is expected


def test_a_caller_without_an_address_is_none_of_ours():
    assert not passes({"type": "http", "client": None, "path": "/v1/control/start-run"})


def project(components=COMPONENTS, dependencies=()):
    return {
        "project": {"dependencies": list(dependencies)},
        "tool": {"flwr": {"app": {"components": components}}},
    }


def program(about, **further):
    """The archive that a server sends, with further files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("pyproject.toml", tomli_w.dumps(about))
        archive.writestr(".info/CONTENT", "")
        for name, content in further.items():
            archive.writestr(name, content)
    return made.getvalue()


def test_a_program_that_points_at_the_installed_fedloom_is_ours():
    assert is_ours(program(project()))


@pytest.mark.parametrize(
    "sent",
    [
        program(project(dependencies=["surprise"])),
        program(project(components={**COMPONENTS, "clientapp": "surprise:app"})),
        program(project(components={"clientapp": COMPONENTS["clientapp"]})),
        program(project(), **{"surprise.py": ""}),
        program(project(), **{"fedloom/deploy/site.py": ""}),
        program({**project(), "large": "#" * (1 << 17)}),
        program({"tool": {}}),
        b"",
        b"no archive",
    ],
    ids=[
        "packages",
        "component",
        "no server",
        "file",
        "our file",
        "large",
        "nothing said",
        "empty",
        "no archive",
    ],
)
def test_any_other_program_is_not(sent):
    assert not is_ours(sent)

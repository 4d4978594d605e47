import importlib.metadata
import sys
from collections import OrderedDict
from dataclasses import fields

import pytest

from fedloom import registry
from fedloom.errors import FedloomError
from fedloom.methods import METHODS, recipe
from fedloom.registry import Registry, absolute, from_file

REGISTRY = Registry(
    "toy", "fedloom.toys", {"ordered": "collections:OrderedDict", "lost": "fedloom_nowhere:x"}
)


@pytest.fixture(autouse=True)
def _fresh():
    registry.entry_points.cache_clear()
    registry.load_module.cache_clear()
    yield
    registry.entry_points.cache_clear()
    registry.load_module.cache_clear()


@pytest.fixture
def plugin(monkeypatch):
    """An installed package that offers one toy."""
    entry = importlib.metadata.EntryPoint("counter", "collections:Counter", "fedloom.toys")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == "fedloom.toys" else []
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toys.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "loads = []\n"
        "@dataclass\n"
        "class Robot:\n"
        "    arms: int = 2\n"
        "_hidden = 1\n"
    )
    return path


# Built in, and entry points


def test_a_builtin_is_imported_when_asked_for():
    assert REGISTRY.get("ordered") is OrderedDict
    with pytest.raises(ModuleNotFoundError, match="fedloom_nowhere"):
        REGISTRY.get("lost")


def test_names_are_those_built_in_and_those_installed(plugin):
    assert REGISTRY.names() == ["counter", "lost", "ordered"]


def test_an_entry_point_is_loaded(plugin):
    assert REGISTRY.get("counter").__name__ == "Counter"


def test_a_builtin_goes_before_an_entry_point_of_its_name(monkeypatch):
    entry = importlib.metadata.EntryPoint("ordered", "collections:Counter", "fedloom.toys")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    assert REGISTRY.get("ordered") is OrderedDict and REGISTRY.names() == ["lost", "ordered"]


def test_a_name_nobody_knows_brings_the_nearest(plugin):
    with pytest.raises(
        FedloomError, match=r"toy must be a known name, but got 'countre'; did you mean counter\?"
    ):
        REGISTRY.get("countre")


@pytest.mark.parametrize(
    "value", ["fedloom_nowhere:Toy", "collections:Nothing", "no reference at all"]
)
def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch, value):
    entry = importlib.metadata.EntryPoint("broken", value, "fedloom.toys")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    with pytest.raises(
        FedloomError, match=f"toy broken must be importable, as {value}, but it raised"
    ):
        REGISTRY.get("broken")


# Files


def test_a_name_in_a_file(file):
    robot = REGISTRY.get(f"{file}:Robot")
    assert robot().arms == 2 and fields(robot)[0].name == "arms"


def test_a_relative_path_is_of_the_current_folder(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert REGISTRY.get("toys.py:Robot") is REGISTRY.get(f"{file}:Robot")


def test_a_file_is_executed_once(file):
    assert from_file(f"{file}:loads") is from_file(f"{file}:loads")


def test_a_files_module_can_be_found_by_its_classes(file):
    robot = from_file(f"{file}:Robot")
    assert sys.modules[robot.__module__].Robot is robot


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        FedloomError, match=r"absent\.py must be a Python file, but there is none; check the path"
    ):
        REGISTRY.get(f"{tmp_path}/absent.py:Robot")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(FedloomError, match="must be a Python file"):
        REGISTRY.get(f"{tmp_path}/folder.py:Robot")


def test_a_missing_name_brings_the_nearest_public_one(file):
    with pytest.raises(FedloomError, match=r"got 'Robt'; did you mean Robot\?") as caught:
        REGISTRY.get(f"{file}:Robt")
    assert "_hidden" not in str(caught.value)


def test_an_absolute_name_is_found_from_any_folder(file, monkeypatch, tmp_path):
    monkeypatch.chdir(file.parent)
    name = absolute("toys.py:Robot")
    assert name == f"{file}:Robot"
    monkeypatch.chdir("/")
    assert REGISTRY.get(name)().arms == 2
    assert absolute(name) == name


def test_a_registered_name_is_absolute_already():
    assert absolute("fedavg") == "fedavg"


def test_every_builtin_method_and_network_can_be_loaded():
    from fedloom.methods import METHODS
    from fedloom.networks import NETWORKS

    for builtin in (METHODS, NETWORKS):
        assert builtin.builtin and all(builtin.get(name) is not None for name in builtin.builtin)


def test_a_file_that_does_not_import_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(
        FedloomError, match=r"broken.py must be importable, but it raised ModuleNotFoundError"
    ):
        from_file(f"{tmp_path}/broken.py:x")


def test_a_method_that_is_no_recipe_is_named(tmp_path):
    (tmp_path / "wrong.py").write_text("x = 3")
    with pytest.raises(FedloomError, match="must be a Recipe, but it is a int"):
        recipe(f"{tmp_path}/wrong.py:x")


def test_a_file_that_ends_the_process_is_named(tmp_path):
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)")
    with pytest.raises(
        FedloomError, match=r"leaving.py must be importable, but it raised SystemExit: 3"
    ):
        from_file(f"{tmp_path}/leaving.py:x")


def test_what_a_file_imports_is_not_offered(tmp_path):
    (tmp_path / "toys.py").write_text(
        "import os\nfrom pathlib import Path\nthing = Path()\n\ndef make(): ...\n"
    )
    with pytest.raises(FedloomError, match=r"got 'absent'; choose from make, thing\.$"):
        from_file(f"{tmp_path}/toys.py:absent")


def test_a_file_without_the_name_of_an_object(tmp_path):
    """The last object that fits is suggested: a file ends with what it defines."""
    (tmp_path / "mine.py").write_text(
        "from fedloom.federation.protocol.method import Recipe\n"
        "from fedloom.methods.fedavg import FedAvgOptions\n"
        "def stages(task): ...\n"
        "mine = Recipe('mine', FedAvgOptions, stages)\n"
        "first = 1\n"
    )
    with pytest.raises(FedloomError) as caught:
        METHODS.get(f"{tmp_path}/mine.py")
    rule = "method of a file must be given as FILE.py:NAME"
    assert str(caught.value) == f"{rule}, but got {tmp_path}/mine.py; try {tmp_path}/mine.py:mine."

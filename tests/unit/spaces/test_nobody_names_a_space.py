"""Adding a space touches its folder and one line of the registry: nothing else knows which spaces there are."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import fedloom
from fedloom.spaces import SPACES, open_family, open_space
from fedloom.spaces.space import Space
from fedloom.spaces.supernet import Supernet

SOURCE = Path(fedloom.__file__).parent
FOLDERS = [Path(place.partition(":")[0].replace(".", "/")).relative_to("fedloom") for place in SPACES.builtin.values()]
# By module path or family: the tables of what can be chosen by name.
REGISTRIES = {"spaces/__init__.py": ("SPACES", "DEFAULT", "LARGEST"), "nets/__init__.py": ("NETWORKS",)}


def is_inside(file: Path) -> bool:
    return any(SOURCE / folder in file.parents for folder in FOLDERS)


OUTSIDE = [file for file in sorted(SOURCE.rglob("*.py")) if not is_inside(file)]


def classes_of_spaces() -> set[str]:
    """The names of all spaces and supernets that a space's folder defines."""
    names = set()
    for folder in FOLDERS:
        package = ".".join(("fedloom", *folder.parts))
        files = (SOURCE / folder).glob("*.py")
        for file in files:
            module = import_module(package if file.stem == "__init__" else f"{package}.{file.stem}")
            for name, value in vars(module).items():
                if (
                    inspect.isclass(value)
                    and issubclass(value, Space | Supernet)
                    and value.__module__ == module.__name__
                ):
                    names.add(name)
    return names


CLASSES = classes_of_spaces()
PACKAGES = tuple(".".join(("fedloom", *folder.parts)) for folder in FOLDERS)
FAMILIES = re.compile(rf"\b({'|'.join(SPACES.builtin)})(?![\w.-])")  # `darts-v2` is a network


def without_registries(file: Path, tree: ast.Module) -> ast.Module:
    """The module without the tables that may name a space."""
    tables = REGISTRIES.get(file.relative_to(SOURCE).as_posix(), ())
    kept = []
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not any(isinstance(target, ast.Name) and target.id in tables for target in targets):
            kept.append(statement)
    return ast.Module(kept, [])


def docstrings(tree: ast.Module) -> set[int]:
    """Explanations may name an example."""
    nodes = ast.Module | ast.ClassDef | ast.FunctionDef
    found = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, nodes) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            found.add(id(first.value))
    return found


def namings(file: Path, text: str) -> list[str]:
    """Where a file names a space: by its class, its package, or its family in a string that is no docstring."""
    tree = without_registries(file, ast.parse(text))
    explained = docstrings(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in CLASSES:
                found.append(f"line {node.lineno}: {name}")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(of_a_space(module) for module in imported(node)):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Constant) and id(node) not in explained and says_a_space(node.value):
            found.append(f"line {node.lineno}: {node.value!r}")
    return found


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return names
    return [node.module or "", *(f"{node.module}.{name}" for name in names)]


def of_a_space(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in PACKAGES)


def says_a_space(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return FAMILIES.search(value) is not None or any(package in value for package in PACKAGES)


def operations_of_spaces() -> set[str]:
    """Names of options that only a space gives: `skip_connect`, not words such as `none`."""
    names = set()
    for name in ("darts:full:4", "nasbench201"):
        for slot in open_space(name).slots:
            names.update(option for option in slot.options if "_" in option)
    return names


OPERATIONS = operations_of_spaces()


def operations_named(text: str) -> list[str]:
    """Where a file has an operation's name as a string."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in OPERATIONS:
            found.append(f"line {node.lineno}: {node.value!r}")
    return found


def asks_which(text: str) -> list[str]:
    """Questions which space something is: there is no answer that anybody should act on."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            what, kinds = ast.unparse(node.args[0]), ast.unparse(node.args[1])
            if "space" in what.lower() or any(re.search(rf"\b{name}\b", kinds) for name in CLASSES):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_the_classes_are_known():
    assert {open_family(name).__name__ for name in SPACES.builtin} <= CLASSES
    assert {"CellNetwork", "BenchNetwork"} <= CLASSES
    assert len(OUTSIDE) > 200


@pytest.mark.parametrize("file", OUTSIDE, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_no_file_names_a_space(file):
    text = file.read_text()
    assert namings(file, text) == []
    assert asks_which(text) == []
    if SOURCE / "spaces" not in file.parents:  # spaces share their operations' modules
        assert operations_named(text) == []


def test_an_operation_is_found():
    assert operations_named("SHORT = {'skip_connect': 'skip', 'nor_conv_1x1': 'conv1'}")
    assert not operations_named("NONE = 'none'")


@pytest.mark.parametrize(
    "text",
    [
        "from fedloom.spaces.cells import DartsCells",
        "from fedloom.spaces import nasbench201",
        "import fedloom.spaces.cells.net",
        "import fedloom.spaces.cells as cells",
        "x = spaces.NasBench201Cells()",
        "if name == 'darts': pass",
        "name = 'darts:s2:4'",
        "place = 'fedloom.spaces.cells:DartsCells'",
        "def f():\n    '''Fine.'''\n    return f'of {x} nasbench201'",
    ],
)
def test_a_name_is_found(text):
    assert namings(SOURCE / "report" / "somewhere.py", text)


def test_a_question_is_found():
    assert asks_which("if isinstance(space, Chain): pass")
    assert asks_which("if isinstance(net.space, spaces.Chain | Other): pass")
    assert asks_which("ok = issubclass(kind, CellNetwork)")
    assert not asks_which("ok = isinstance(net, Supernet)")


def test_explanations_and_named_networks_are_none():
    assert namings(SOURCE / "somewhere.py", '"""Such as `darts:s2:4`."""\nnetwork = "darts-v2"') == []

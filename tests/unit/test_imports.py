"""Imports go one way. A late import inside a function counts; one for the type checker alone does not."""

import ast
from pathlib import Path

import pytest

import fedloom

SOURCE = Path(fedloom.__file__).parent
LAYERS = [
    {"version", "errors", "rng", "flags", "reading"},
    {"options"},
    {"registry", "config"},
    {"types"},
    {"spaces"},
    {"nets"},
    {"optimizers", "threads"},
    {"searchers", "cost"},
    {"data", "metrics"},
    {"federation"},
    {"training"},
    {"methods"},
    {"evaluate"},
]  # from the lowest; what is not named here lies above them all, and `commands`, `cli` and `__main__` above that
TOP = [{"commands"}, {"cli"}, {"__main__"}]


def module_of(file):
    parts = ["fedloom", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in sorted(SOURCE.rglob("*.py"))}


def for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(tree, *, late):
    """All import statements that can be executed; not `late`: when the module itself is."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif for_types_only(node):
            yield from statements(ast.Module(node.orelse, []), late=late)
        elif late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(node, late=late)


def imported(name, node):
    """The modules of ours that one statement imports."""
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    else:
        package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        found = [each if (each := f"{base}.{alias.name}") in MODULES else base for alias in node.names]
    return {each for each in found if each in MODULES}


def all_imports(*, late):
    trees = {name: ast.parse(file.read_text()) for name, file in MODULES.items()}
    return {
        name: {found for node in statements(tree, late=late) for found in imported(name, node)}
        for name, tree in trees.items()
    }


IMPORTS = all_imports(late=True)


def package_of(name):
    return name.split(".")[1] if "." in name else "fedloom"


def level(name):
    package = package_of(name)
    for height, layer in enumerate([*LAYERS, set(), *TOP]):
        if package in layer:
            return height
    return len(LAYERS)


def may_import(name, other):
    """What lies lower, its own package, and anything beside it above the layers."""
    return (
        level(other) < level(name)
        or package_of(name) == package_of(other)
        or level(name) == level(other) == len(LAYERS)
    )


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    assert [other for other in sorted(IMPORTS[name]) if not may_import(name, other)] == []


def test_the_modules_are_really_read():
    assert "fedloom.rng" in IMPORTS["fedloom.types"]
    assert "fedloom.federation.protocol.wire" in IMPORTS["fedloom.federation.protocol.aggregate"]
    assert "fedloom.data.samples" not in IMPORTS["fedloom.types"]  # for the type checker alone
    assert "fedloom.runs.experiment" in IMPORTS["fedloom.commands.run"]  # inside a function


@pytest.mark.parametrize(
    ("name", "other", "allowed"),
    [
        ("fedloom.methods.fedavg", "fedloom.federation.server.loop", True),
        ("fedloom.federation.server.loop", "fedloom.methods", False),
        ("fedloom.federation.server.loop", "fedloom.learning.training", False),
        ("fedloom.data.split", "fedloom.metrics.classification", False),
        ("fedloom.data.split", "fedloom.data.sources", True),
        ("fedloom.report.tables", "fedloom.evaluate.summary", True),
        ("fedloom.evaluate.summary", "fedloom.runs.experiment", False),
        ("fedloom.runs.experiment", "fedloom.cli", False),
        ("fedloom.cli", "fedloom.runs.experiment", True),
        ("fedloom.errors", "fedloom", False),
    ],
)
def test_the_rule_itself(name, other, allowed):
    assert may_import(name, other) == allowed


def test_there_is_no_circle():
    left = all_imports(late=False)
    while free := [name for name, found in left.items() if not found]:
        left = {name: found - set(free) for name, found in left.items() if name not in free}
    assert left == {}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name):
    words = set(name.split(".")[-1].split("_"))
    assert not words & {"util", "utils", "helper", "helpers", "common", "misc"}
    assert not any(part.startswith("base") for part in name.split("."))


@pytest.mark.parametrize("name", [name for name, file in MODULES.items() if file.read_text().strip()])
def test_every_module_opens_with_a_docstring(name):
    assert ast.get_docstring(ast.parse(MODULES[name].read_text()))


def test_only_the_flower_folder_imports_flwr():
    for name, file in MODULES.items():
        for node in statements(ast.parse(file.read_text()), late=True):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            foreign = any(each.split(".")[0] in ("flwr", "ray") for each in names)
            assert not foreign or name.startswith("fedloom.flower"), name

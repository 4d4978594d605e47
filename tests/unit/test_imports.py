"""Imports go one way, as the table of rooms in docs/architecture.md says.

A late import inside a function counts; one for the type checker alone does not.
"""

import ast
import re
from pathlib import Path

import pytest

import fedloom

SOURCE = Path(fedloom.__file__).parent
MAP = Path(__file__).parents[2] / "docs" / "architecture.md"
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "misc"}
FLOWER = ("fedloom.federation.engines.flower", "fedloom.deploy")


def rooms_in(text):
    """The rows of the table under "The rooms", from the ground up: sets of names."""
    section = text.split("## The rooms")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [set(re.findall(r"`([a-z_]+)`", row)) for row in rows[2:]]


ROOMS = rooms_in(MAP.read_text())


def module_of(file):
    parts = ["fedloom", *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(file.read_text()) for name, file in MODULES.items()}


def for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(tree, *, late=True):
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
        candidates = [alias.name for alias in node.names]
    else:
        package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        candidates = []
        for alias in node.names:
            module = f"{base}.{alias.name}"
            candidates.append(module if module in MODULES else base)
    return {module for module in candidates if module in MODULES}


def all_imports(*, late):
    imports = {}
    for name, tree in TREES.items():
        imports[name] = set()
        for node in statements(tree, late=late):
            imports[name] |= imported(name, node)
    return imports


IMPORTS = all_imports(late=True)


def room_of(name):
    return name.split(".")[1] if "." in name else "fedloom"


def height(room):
    return next(number for number, row in enumerate(ROOMS) if room in row)


def may_import(name, other):
    """From its own room, and from every lower one."""
    room, lower = room_of(name), room_of(other)
    return room == lower or height(lower) < height(room)


def test_every_room_stands_in_the_map_once():
    named = [room for row in ROOMS for room in row]
    assert sorted(named) == sorted({room_of(name) for name in MODULES})


@pytest.mark.parametrize("room", sorted({room_of(name) for name in MODULES}))
def test_imports_go_one_way(room):
    upward = []
    for name, others in IMPORTS.items():
        if room_of(name) == room:
            upward += [f"{name} imports {other}" for other in sorted(others) if not may_import(name, other)]
    assert upward == []


def test_the_modules_are_really_read():
    assert "fedloom.rng" in IMPORTS["fedloom.types"]
    assert "fedloom.federation.protocol.wire" in IMPORTS["fedloom.federation.protocol.aggregate"]
    assert "fedloom.data.samples" not in IMPORTS["fedloom.types"]  # for the type checker alone
    assert "fedloom.runs.experiment" in IMPORTS["fedloom.commands.run"]  # inside a function


def test_the_map_is_really_read():
    text = "## The rooms\n\n| Rooms | What |\n|---|---|\n| `a` `b_c` | x `y` |\n| `d` | z |\n\n## Next\n| `e` | |\n"
    assert rooms_in(text) == [{"a", "b_c"}, {"d"}]


@pytest.mark.parametrize(
    ("name", "other", "allowed"),
    [
        ("fedloom.methods.fedavg", "fedloom.federation.server.loop", True),
        ("fedloom.federation.server.loop", "fedloom.methods", False),
        ("fedloom.federation.server.loop", "fedloom.learning.training", False),
        ("fedloom.data.split", "fedloom.metrics.classification", False),
        ("fedloom.data.split", "fedloom.data.sources", True),
        ("fedloom.report.tables", "fedloom.evaluate.summary", True),
        ("fedloom.report.tables", "fedloom.runs.results", False),
        ("fedloom.records.folder", "fedloom.federation.server.loop", False),
        ("fedloom.runs.results", "fedloom.deploy.submission", False),
        ("fedloom.runs.experiment", "fedloom.cli", False),
        ("fedloom.cli", "fedloom.runs.experiment", True),
        ("fedloom.errors", "fedloom", False),
    ],
)
def test_the_rule_itself(name, other, allowed):
    assert may_import(name, other) == allowed


def circles(imports):
    """What remains of the modules when, again and again, those that import nothing of the rest are taken away."""
    remaining = {name: set(others) - {name} for name, others in imports.items()}
    while free := {name for name, others in remaining.items() if not others}:
        remaining = {name: others - free for name, others in remaining.items() if name not in free}
    return remaining


def test_there_is_no_circle_late_imports_included():
    assert circles(IMPORTS) == {}


def test_a_circle_is_seen():
    assert set(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})) == {"a", "b", "c"}


def test_the_client_never_sees_the_server_nor_the_server_a_client():
    """The trust boundary: both sides know the protocol alone."""
    for name, others in IMPORTS.items():
        if name.startswith("fedloom.federation.client"):
            assert not [other for other in others if other.startswith("fedloom.federation.server")], name
        if name.startswith("fedloom.federation.server"):
            assert not [other for other in others if other.startswith("fedloom.federation.client")], name
        if name.startswith("fedloom.federation.protocol"):
            sides = ("fedloom.federation.client", "fedloom.federation.server")
            assert not [other for other in others if other.startswith(sides)], name


def bases_in(tree):
    """Names of the classes that this module's classes are made of."""
    bases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases |= {ast.unparse(base) for base in node.bases}
    return bases


def foreign_methods(name):
    """Files of other methods that a method's file imports: neither its own other half nor the base of its classes."""
    own = name.rpartition(".")[2].split("_")[0]
    for node in statements(TREES[name]):
        for other in imported(name, node):
            if not other.startswith("fedloom.methods.") or other.rpartition(".")[2].split("_")[0] == own:
                continue
            if not {alias.name for alias in node.names} & bases_in(TREES[name]):
                yield other


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("fedloom.methods.")])
def test_no_method_imports_another_except_a_variant_its_own_base(name):
    assert list(foreign_methods(name)) == []


def test_every_module_says_what_it_is_for():
    for name, file in MODULES.items():
        assert not set(name.split(".")[-1].split("_")) & BANNED_WORDS, name
        assert not any(part.startswith("base") for part in name.split(".")), name
        if file.read_text().strip():
            assert ast.get_docstring(TREES[name]), f"{name} has no docstring"


def test_only_flowers_rooms_import_flwr():
    for name, tree in TREES.items():
        for node in statements(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            foreign = any(each.split(".")[0] in ("flwr", "ray") for each in names)
            assert not foreign or name.startswith(FLOWER), name

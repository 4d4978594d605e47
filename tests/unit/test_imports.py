"""Imports go one way, as the table of rooms in docs/architecture.md says.

A late import inside a function counts; one for the type checker alone does not. A module that is
named in a string, as in registries and the command lines of processes, must follow the same order,
except for the edges that the map lists.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import fedloom
import fedloom.methods

SOURCE = Path(fedloom.__file__).parent
MAP = Path(__file__).parents[2] / "docs" / "architecture.md"
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "misc"}
FLOWER = ("fedloom.federation.engines.flower", "fedloom.deploy")


def rooms_in(text):
    """The rows of the table under "The packages", from the ground up: sets of names."""
    section = text.split("## The packages")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [set(re.findall(r"`([a-z_]+)`", row)) for row in rows[2:]]


def listed_edges_in(text):
    """The rows of the table under "Names in strings", as pairs (module, module that it names)."""
    section = text.split("## Names in strings")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    edges = set()
    for row in rows[2:]:
        naming, named, reason = row.strip("|").split("|")
        assert reason.strip(), f"{row} gives no reason"
        edges.add((f"fedloom.{naming.strip(' `')}", f"fedloom.{named.strip(' `')}"))
    return edges


ROOMS = rooms_in(MAP.read_text())
LISTED_EDGES = listed_edges_in(MAP.read_text())
NAME_IN_STRING = re.compile(r"\bfedloom(?:\.\w+)+")


def module_of(file):
    parts = ["fedloom", *file.relative_to(SOURCE).with_suffix("").parts]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


MODULES = {module_of(file): file for file in sorted(SOURCE.rglob("*.py"))}


@cache
def trees():
    """The syntax trees of all modules. Parsed late: collecting the tests should cost nothing."""
    return {name: ast.parse(file.read_text()) for name, file in MODULES.items()}


def for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(tree, *, late=True):
    """All import statements that can be executed; without `late`, only those outside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif for_types_only(node):
            yield from statements(ast.Module(node.orelse, []), late=late)
        elif late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(node, late=late)


def imported(name, node):
    """The modules of ours that one statement imports."""
    modules = {module_imported(name, node, alias) for alias in node.names}
    return modules - {None}


def module_imported(name, node, alias):
    """Our module that one name of a statement is, or comes from; None: it is not ours."""
    if isinstance(node, ast.Import):
        candidates = [alias.name]
    else:
        base = base_of(name, node)
        candidates = [f"{base}.{alias.name}", base]
    for module in candidates:
        if module in MODULES:
            return module
    return None


def base_of(name, node):
    """The absolute name of the module behind `from`, which may be relative to the module `name`."""
    if not node.level:
        return node.module
    parts = name.split(".")
    if MODULES[name].name != "__init__.py":
        parts.pop()
    parts = parts[: len(parts) - node.level + 1]
    if node.module:
        parts.append(node.module)
    return ".".join(parts)


@cache
def all_imports(*, late):
    imports = {}
    for name, tree in trees().items():
        imports[name] = set()
        for node in statements(tree, late=late):
            imports[name] |= imported(name, node)
    return imports


def docstrings(tree):
    """The docstrings of a module, which may name any module."""
    explanations = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                explanations.add(first.value)
    return explanations


def strings(tree):
    """All strings other than docstrings, and the literal parts of formatted strings."""
    explanations = docstrings(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in explanations
        ):
            yield node.value


def module_named_by(name):
    """The longest beginning of a dotted name that is one of our modules; None: only the package."""
    parts = name.split(".")
    while len(parts) > 1:
        module = ".".join(parts)
        if module in MODULES:
            return module
        parts.pop()
    return None


def named_in_strings(tree):
    """The modules of ours that a module's strings name, such as "fedloom.nets.cnn:SmallCNN"."""
    modules = set()
    for text in strings(tree):
        for name in NAME_IN_STRING.findall(text):
            modules.add(module_named_by(name))
    return modules - {None}


@cache
def names_in_strings():
    """The modules that each module names in strings."""
    return {name: named_in_strings(tree) for name, tree in trees().items()}


def room_of(name):
    return name.split(".")[1] if "." in name else "fedloom"


def height(room):
    return next(number for number, row in enumerate(ROOMS) if room in row)


def may_import(name, other):
    """Whether a module may import another: one of its own room, or of any lower one."""
    room = room_of(name)
    other_room = room_of(other)
    return room == other_room or height(other_room) < height(room)


def test_every_room_stands_in_the_map_once():
    rooms_in_map = []
    for row in ROOMS:
        rooms_in_map += row
    assert sorted(rooms_in_map) == sorted({room_of(name) for name in MODULES})


def test_imports_go_one_way():
    upward = []
    for name, others in all_imports(late=True).items():
        for other in sorted(others):
            if not may_import(name, other):
                upward.append(f"{name} imports {other}")
    assert upward == []


def test_names_in_strings_go_the_same_way_but_for_those_in_the_map():
    upward = set()
    for name, others in names_in_strings().items():
        upward |= {(name, other) for other in others if not may_import(name, other)}
    assert upward - LISTED_EDGES == set(), "not in the map's table of names in strings"
    assert LISTED_EDGES - upward == set(), "in the map's table, and no string says it"


def test_a_string_says_at_least_the_room_of_a_module():
    """If the room were filled in at run time, the order could not be checked."""
    for name, tree in trees().items():
        assert [text for text in strings(tree) if text.endswith("fedloom.")] == [], name


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ('NETS = {"cnn": "fedloom.nets.cnn:SmallCNN"}', {"fedloom.nets.cnn"}),
        ('run([python, "-m", "fedloom.runs.worker"])', {"fedloom.runs.worker"}),
        (
            'def f():\n    return import_module(f"fedloom.report.sinks.{name}")',
            {"fedloom.report.sinks"},
        ),
        ('text = "component = fedloom.flower.site:app\\n"', {"fedloom.flower.site"}),
        ('"""See fedloom.runs.worker."""\nTAG = "fedloom.run"', set()),
        ('class A:\n    """Like fedloom.api."""\n    group = "fedloom"', set()),
    ],
)
def test_a_module_named_in_a_string_is_seen(source, modules):
    assert named_in_strings(ast.parse(source)) == modules


def test_the_strings_are_really_read():
    assert "fedloom.methods.fedavg" in names_in_strings()["fedloom.methods"]
    assert "fedloom.runs.worker" in names_in_strings()["fedloom.federation.engines.worker_pool"]


def test_the_modules_are_really_read():
    imports = all_imports(late=True)
    assert "fedloom.rng" in imports["fedloom.types"]
    assert "fedloom.federation.protocol.packing" in imports["fedloom.federation.protocol.aggregate"]
    assert "fedloom.data.samples" not in imports["fedloom.types"]  # for the type checker alone
    assert "fedloom.runs.experiment" in imports["fedloom.commands.run"]  # inside a function


def test_the_map_is_really_read():
    table = "| Packages | What |\n|---|---|\n| `a` `b_c` | x `y` |\n| `d` | z |\n"
    text = f"## The packages\n\n{table}\n## Next\n| `e` | |\n"
    assert rooms_in(text) == [{"a", "b_c"}, {"d"}]
    table = "| A | B | C |\n|---|---|---|\n| `a.b` | `c.d` | so |\n"
    text = f"## Names in strings\n\n{table}\n## Next\n| `e` | `f` | |\n"
    assert listed_edges_in(text) == {("fedloom.a.b", "fedloom.c.d")}


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
    """The modules in circles, and those that import them.

    They remain when modules that import none of the others are removed again and again.
    """
    remaining = {name: set(others) - {name} for name, others in imports.items()}
    while free := {name for name, others in remaining.items() if not others}:
        remaining = {name: others - free for name, others in remaining.items() if name not in free}
    return remaining


def test_there_is_no_circle_late_imports_included():
    assert circles(all_imports(late=True)) == {}


def test_a_circle_is_seen():
    assert set(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})) == {"a", "b", "c"}


def test_the_client_never_sees_the_server_nor_the_server_a_client():
    """The trust boundary: both sides know only the protocol."""
    client = "fedloom.federation.client"
    server = "fedloom.federation.server"
    forbidden = {
        client: (server,),
        server: (client,),
        "fedloom.federation.protocol": (client, server),
    }
    for name, imports in all_imports(late=True).items():
        for side, forbidden_sides in forbidden.items():
            if name.startswith(side):
                others = imports | names_in_strings()[name]
                assert not [other for other in others if other.startswith(forbidden_sides)], name


def packages_of(name):
    """The packages that Python loads before a module, and the module itself."""
    parts = name.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def import_paths_from(start, imports):
    """Every module that is loaded together with `start`, and the path of imports that loads it."""
    paths = {start: (start,)}
    waiting = [start]
    while waiting:
        name = waiting.pop(0)
        loaded = packages_of(name)
        for other in imports[name]:
            loaded |= packages_of(other)
        for other in sorted(loaded - set(paths)):
            paths[other] = (*paths[name], other)
            waiting.append(other)
    return paths


def modules_of_clients():
    """The modules that run where the data is: the client's side, its processes and every method."""
    sides = [name for name in MODULES if name.startswith("fedloom.federation.client")]
    processes = [
        "fedloom.federation.engines.worker",
        "fedloom.runs.worker",
        "fedloom.deploy.site",
        "fedloom.flower.site",
    ]
    return [
        *sides,
        *processes,
        *sorted(names_in_strings()["fedloom.methods"] - {"fedloom.methods"}),
    ]


def test_what_runs_at_a_client_does_not_load_the_server_by_any_way():
    to_the_server = []
    for start in modules_of_clients():
        for name, path in import_paths_from(start, all_imports(late=False)).items():
            if name.startswith("fedloom.federation.server"):
                to_the_server.append(" → ".join(path))
    assert to_the_server == []


def test_a_long_way_is_seen():
    imports = {
        "a": set(),
        "a.site": {"a.b.middle"},
        "a.b": {"a.far"},
        "a.b.middle": set(),
        "a.far": {"a.site"},
        "a.c": set(),
    }
    paths = import_paths_from("a.site", imports)
    assert set(paths) == {"a", "a.site", "a.b", "a.b.middle", "a.far"}
    assert paths["a.far"] == ("a.site", "a.b", "a.far")  # a package is loaded before its modules
    loaded = all_imports(late=False)
    assert "fedloom.federation.server.spool" in import_paths_from("fedloom.deploy.server", loaded)
    assert "fedloom.federation.client.store" in import_paths_from("fedloom.deploy.site", loaded)


METHODS = "fedloom.methods"
REGISTERED = {place.partition(":")[0] for place in fedloom.methods.METHODS.builtin.values()}
# What a variant may import from its base method: it extends these classes, or runs the method as
# one of its stages.
OFFERED_TO_VARIANTS = {"fedloom.methods.fedavg": {"FedAvg", "FedAvgOptions"}}


def paper_of(name):
    """The registered method that a file belongs to: `fednas_options` belongs to `fednas`.

    A registered method belongs to itself, whatever its name begins with: `local_adaptation` does
    not belong to `local`.
    """
    if name in REGISTERED:
        return name
    for paper in sorted(REGISTERED, key=len, reverse=True):
        if name.startswith(f"{paper}_"):
            return paper
    return None


def bases_in(tree):
    """The names of the classes that this module's classes inherit from."""
    bases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases |= {ast.unparse(base) for base in node.bases}
    return bases


def foreign_names(name, tree):
    """The names that a method's file imports from other methods.

    A variant may import the classes of its base that it extends. The registry, which leads to all
    methods, is foreign too.
    """
    bases = bases_in(tree)
    for node in statements(tree):
        for alias in node.names:
            other = module_imported(name, node, alias)
            if other is None or room_of(other) != "methods":
                continue
            if other != METHODS and paper_of(other) == paper_of(name):
                continue
            offered = OFFERED_TO_VARIANTS.get(other, set())
            is_variant = bool(offered & bases)
            if not (is_variant and alias.name in offered):
                yield alias.name


def test_no_method_imports_another_except_a_variant_its_own_base():
    offences = []
    for name in MODULES:
        if not name.startswith(f"{METHODS}."):
            continue
        if paper_of(name) is None:
            offences.append(f"{name} is neither registered nor NAME_part.py of a registered NAME")
        for foreign in foreign_names(name, trees()[name]):
            offences.append(f"{name} imports {foreign} from another method")
    assert offences == []


def test_what_is_offered_to_variants_is_a_methods_class_and_its_options():
    for name, offered in OFFERED_TO_VARIANTS.items():
        classes = {node.name for node in trees()[name].body if isinstance(node, ast.ClassDef)}
        assert offered <= classes


@pytest.mark.parametrize(
    ("file", "paper"),
    [
        ("fednas_options", "fednas"),
        ("fedoras_tune", "fedoras"),
        ("local_adaptation", "local_adaptation"),
        ("knn_per", "knn_per"),
        ("local", "local"),
    ],
)
def test_a_file_is_of_one_paper(file, paper):
    assert paper_of(f"{METHODS}.{file}") == f"{METHODS}.{paper}"


VARIANT = "class Mine(FedAvg): ...\n"


@pytest.mark.parametrize(
    ("file", "text", "foreign"),
    [
        ("ditto", f"from fedloom.methods.fedavg import FedAvg, FedAvgOptions\n{VARIANT}", []),
        ("ditto", f"from fedloom.methods.fedavg import FedAvg, stages\n{VARIANT}", ["stages"]),
        ("ditto", f"from fedloom.methods.fedavg import *\n{VARIANT}", ["*"]),
        (
            "ditto",
            f"from fedloom.methods.fedavg import FedAvg\nfrom .fedprox import mu\n{VARIANT}",
            ["mu"],
        ),
        ("ditto", "from fedloom.methods.fedavg import FedAvg", ["FedAvg"]),  # a variant of nothing
        ("ditto", "from fedloom.methods import fedavg", ["fedavg"]),
        ("ditto", "import fedloom.methods.fedavg as base", ["fedloom.methods.fedavg"]),
        ("ditto", "def late():\n    from fedloom.methods import recipe", ["recipe"]),
        ("ditto", "from fedloom.methods.fedrep import FedRep\nclass Mine(FedRep): ...", ["FedRep"]),
        ("local_adaptation", "from fedloom.methods.local import Local", ["Local"]),
        ("local", "from fedloom.methods.local_adaptation import adapted", ["adapted"]),
        ("fednas", "from fedloom.methods.fednas_options import FedNASOptions", []),
        ("fednas_perturbation", "from fedloom.methods.fednas_options import FedNASOptions", []),
        ("spider", "from fedloom.methods.fednas_options import FedNASOptions", ["FedNASOptions"]),
    ],
)
def test_a_name_of_another_method_is_found(file, text, foreign):
    assert list(foreign_names(f"{METHODS}.{file}", ast.parse(text))) == foreign


def test_every_module_says_what_it_is_for():
    for name, file in MODULES.items():
        assert not set(name.split(".")[-1].split("_")) & BANNED_WORDS, name
        assert not any(part.startswith("base") for part in name.split(".")), name
        if file.read_text().strip():
            assert ast.get_docstring(trees()[name]), f"{name} has no docstring"


def test_only_flowers_rooms_import_flwr():
    for name, tree in trees().items():
        for node in statements(tree):
            modules = [getattr(node, "module", None) or ""]
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            is_flower = any(module.split(".")[0] in ("flwr", "ray") for module in modules)
            assert not is_flower or name.startswith(FLOWER), name

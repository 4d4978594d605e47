"""Adding a space touches only its folder and one line of the registry.

No other code knows which spaces exist, what can be chosen in one, or what its parameters are
called.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, get_args, get_origin

import pytest

import fedloom
from fedloom.errors import FedloomError
from fedloom.spaces import SPACES, configured_space, open_family, open_space
from fedloom.spaces.chains.grammar import SEQUENCE_OPS, map_op_names
from fedloom.spaces.space import NONE, Space
from fedloom.spaces.supernet import Supernet

SOURCE = Path(fedloom.__file__).parent
FOLDERS = [
    Path(place.partition(":")[0].replace(".", "/")).relative_to("fedloom")
    for place in SPACES.builtin.values()
]
# By module path or family: the tables of what can be chosen by name.
REGISTRIES = {
    "spaces/__init__.py": (
        "SPACES",
        "DEFAULT",
        "LARGEST",
        "SPARSE",
        "SMALL",
        "SMALL_SEARCH",
        "FEW_OPERATIONS",
        "GROUP",
        "STACKS",
        "DEFINITIONS",
    )
}


def path_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


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
FAMILIES = re.compile(
    rf"(?<![\w-])({'|'.join(SPACES.builtin)})(?![\w.-])"
)  # `darts-v2` is a network


@lru_cache(maxsize=4)  # the questions about one file follow one another
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def without_registries(file: Path, tree: ast.Module) -> ast.Module:
    """The module without the tables that may name a space."""
    tables = REGISTRIES.get(path_of(file), ())
    kept = []
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not any(isinstance(target, ast.Name) and target.id in tables for target in targets):
            kept.append(statement)
    return ast.Module(kept, [])


def docstrings(tree: ast.Module) -> set[int]:
    """Explanations may name an example."""
    nodes = ast.Module | ast.ClassDef | ast.FunctionDef
    docstring_ids = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, nodes) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            docstring_ids.add(id(first.value))
    return docstring_ids


def namings(file: Path, text: str) -> list[str]:
    """Returns where a file names a space: by class, package, or family in a string of code."""
    tree = without_registries(file, parsed(text))
    explained = docstrings(tree)
    excepted = OTHER_MEANINGS.get(path_of(file))
    places = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in CLASSES:
                places.append(f"line {node.lineno}: {name}")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(of_a_space(module) for module in imported(node)):
                places.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif (
            isinstance(node, ast.Constant)
            and id(node) not in explained
            and says_a_space(node.value, excepted)
        ):
            places.append(f"line {node.lineno}: {node.value!r}")
    return places


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return names
    return [node.module or "", *(f"{node.module}.{name}" for name in names)]


def of_a_space(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in PACKAGES)


def says_a_space(value: object, excepted: str | None) -> bool:
    if not isinstance(value, str):
        return False
    families = set(FAMILIES.findall(value)) - {excepted}
    return bool(families) or any(package in value for package in PACKAGES)


# What can be chosen in these a user's file says, by the grammar of chains.
DEFINED_BY_A_FILE = {"map-chain": map_op_names(), "text-chain": SEQUENCE_OPS}
# Where a word that is also an operation, a parameter or the name of a space means something else.
OTHER_MEANINGS = {
    "config/flags.py": "group",  # of clients, as the data have them
    "config/models.py": "group",  # the same
    "evaluate/verdict.py": "lstm",  # the network
    "data/showing/picture.py": "group",  # an element of SVG
    "federation/protocol/wire.py": "group",  # of orders: a cluster
    "federation/server/clustered.py": "group",  # the same
    "methods/finch_options.py": "group",  # of cells, in words for a person
    "registry.py": "group",  # of entry points
    "report/sections/clusters.py": "noise",  # that clients added to their label counts
    "report/sections/subspaces.py": "group",  # of cells, in words for a person
    "stages/group_options.py": "group",  # the same
    "stages/group_training.py": "group",  # an order's cluster, and a name in the result
    "report/sections/tiers.py": "group",  # of clients: a tier
    "cost/steps.py": "zero",  # a step of a latency table: the zeros of a node without operations
    "data/augmenting/randaugment.py": "identity",  # RandAugment's, which leaves an image as it is
    "data/fetching/fetch.py": "identity",  # HTTP's encoding that is none
    "deploy/kits.py": "nodes",  # Flower's, one a site
    "deploy/processes.py": "nodes",  # the same
    "federation/engines/flower/simulation.py": "nodes",  # the same
    "learning/training.py": "lstm",  # a fixed network
    "methods/fedoras.py": "ops",  # FedorAS's own key in its messages and state: operation numbers
    "methods/fedoras_frame.py": "ops",  # the same
    "methods/fedoras_path.py": "ops",  # the same
    "methods/fedoras_result.py": "ops",  # the same
    "methods/fedoras_search.py": "ops",  # the same
    "methods/fedoras_tiers.py": "ops",  # the same
    "methods/fedoras_tune.py": "ops",  # the same
    "runs/tier_results.py": "ops",  # the same, as a section of the result
    "searchers/routes_taken.py": "ops",  # a key of a client's routes: the operations of an edge
    "nets/head.py": "linear",  # torch's layer, in a sentence
    "nets/lstm.py": "lstm",  # a fixed network
    "networks/__init__.py": "lstm",  # the same
    "report/space_tables.py": "ops",  # a key of `fedloom space show --json`: a layer's operations
    "testing/engines.py": "noise",  # a state full of it
    "deploy/policy.py": "noise",  # of label counts, which hides them
    "report/sections/classes.py": "noise",  # the same
    "report/sections/privacy.py": "noise",  # the same
    "runs/privacy.py": "noise",  # the same
}
# The operations that spaces share are built and counted here.
SHARED_OPERATIONS = ("spaces/ops.py", "spaces/edge_costs.py")


def variants_of(family: str) -> Iterator[Space]:
    """Yields a built-in space with all combinations of the values that its schema lists.

    Every other parameter has its default.
    """
    fields = open_family(family).schema.model_fields
    if not fields:
        yield open_space(family)
        return
    values = []
    for field in fields.values():
        listed = get_origin(field.annotation) is Literal
        values.append(get_args(field.annotation) if listed else (field.default,))
    for chosen in product(*values):
        options = dict(zip(fields, chosen, strict=True))
        yield configured_space(open_family(family), open_family(family).schema(**options))


def operations_of_spaces() -> set[str]:
    """The options of every slot of every built-in space, but `none`, which all spaces may have."""
    names = set()
    for family in SPACES.builtin:
        if family in DEFINED_BY_A_FILE:
            names.update(DEFINED_BY_A_FILE[family])
            continue
        for space in variants_of(family):
            for slot in space.slots:
                names.update(slot.options)
    return names - {NONE}


# Parameters whose names everybody uses: a node of a graph, of a cell, of Flower.
EVERYBODYS = {"node"}


def parameters_of_spaces() -> set[str]:
    names = set()
    for family in SPACES.builtin:
        names.update(open_family(family).schema.model_fields)
    return names - EVERYBODYS


def any_of(words: set[str]) -> re.Pattern[str]:
    """Any of these as a whole word: not the `mb3e1` of `mb3e1.5`."""
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(words)))})(?![\w-]|\.\d)")


OPERATIONS = operations_of_spaces()
PARAMETERS = parameters_of_spaces()
AN_OPERATION = any_of(OPERATIONS)
A_PARAMETER = any_of(PARAMETERS)


class Word(NamedTuple):
    line: int
    text: str


def words_in_strings(tree: ast.Module, pattern: re.Pattern[str]) -> list[Word]:
    """Where a string that is no docstring has such a word."""
    explained = docstrings(tree)
    words = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in explained
        ):
            words += [Word(node.lineno, word) for word in pattern.findall(node.value)]
    return words


def operations_named(tree: ast.Module) -> list[Word]:
    return words_in_strings(tree, AN_OPERATION)


def parameters_named(tree: ast.Module) -> list[Word]:
    """In a string, as an argument's name, or as an attribute of a space or of options."""
    words = words_in_strings(tree, A_PARAMETER)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in PARAMETERS:
            words.append(Word(node.value.lineno, node.arg))
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in PARAMETERS
            and may_own_parameters(node.value)
        ):
            words.append(Word(node.lineno, node.attr))
    return words


def may_own_parameters(node: ast.expr) -> bool:
    return re.search(r"(space|options|parameters)$", ast.unparse(node), re.IGNORECASE) is not None


def words_of_spaces(file: Path) -> list[Word]:
    """The operations and parameters of spaces that a file names, whatever they mean there."""
    tree = without_registries(file, parsed(file.read_text()))
    words = parameters_named(tree)
    if path_of(file) not in SHARED_OPERATIONS:
        words += operations_named(tree)
    return words


def asks_which(text: str) -> list[str]:
    """Questions which space something is: there is no answer that anybody should act on."""
    places = []
    for node in ast.walk(parsed(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            what = ast.unparse(node.args[0])
            kinds = ast.unparse(node.args[1])
            if "space" in what.lower() or any(re.search(rf"\b{name}\b", kinds) for name in CLASSES):
                places.append(f"line {node.lineno}: {ast.unparse(node)}")
    return places


def test_the_classes_are_known():
    assert {open_family(name).__name__ for name in SPACES.builtin} <= CLASSES
    assert {"CellNetwork", "BenchNetwork"} <= CLASSES
    assert len(OUTSIDE) > 200


def test_no_file_names_a_space():
    named = {}
    for file in OUTSIDE:
        text = file.read_text()
        named[path_of(file)] = [*namings(file, text), *asks_which(text)]
    assert only_with_words(named) == {}


def test_no_file_names_an_operation_or_a_parameter_of_a_space():
    named = {}
    for file in OUTSIDE:
        excepted = OTHER_MEANINGS.get(path_of(file))
        named[path_of(file)] = [word for word in words_of_spaces(file) if word.text != excepted]
    assert only_with_words(named) == {}


def only_with_words(named):
    """The files in which something was found, so that a failure names all of them."""
    return {path: words for path, words in named.items() if words}


def test_no_exception_is_listed_in_vain():
    for path, excepted in OTHER_MEANINGS.items():
        assert excepted in {word.text for word in words_of_spaces(SOURCE / path)}, path
    for path in SHARED_OPERATIONS:
        assert operations_named(parsed((SOURCE / path).read_text())), path


def test_the_operations_and_parameters_of_all_spaces_are_known():
    of_every_kind = {"skip_connect", "noise", "nor_conv_1x1", "mb3e2", "ds1e2", "conv7", "gru"}
    assert of_every_kind <= OPERATIONS
    assert {"ops", "nodes", "group"} <= PARAMETERS
    assert set(DEFINED_BY_A_FILE) <= set(SPACES.builtin)


@pytest.mark.parametrize("family", DEFINED_BY_A_FILE)
def test_what_a_file_defines_cannot_be_opened_without_one(family):
    with pytest.raises(FedloomError, match="the definition of a space must be JSON"):
        open_space(family)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "SHORT = {'skip_connect': 'skip', 'nor_conv_1x1': 'one'}",
            ["skip_connect", "nor_conv_1x1"],
        ),
        ("POLICY = 'unsupported = [\"mb3e2\"]'", ["mb3e2"]),
        ("what = f'{name} has no mb3e1.5, nor conv1.'", ["mb3e1.5", "conv1"]),
        ("NONE = 'none'", []),
        ("a = 'conv1x1', 'pre-conv1', 'mb3e1.7'", []),
        ("def f():\n    '''Such as `mb3e2`.'''", []),
    ],
)
def test_an_operation_is_found(text, words):
    assert [word.text for word in operations_named(parsed(text))] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SIZE = 'ops=s2,cells=3,nodes=2'", ["ops", "nodes"]),
        ("TINY = {'nodes': 2, 'cells': 3}", ["nodes"]),
        ("options = SpaceOptions(nodes=2)", ["nodes"]),
        ("count = task.options.nodes + self.space.nodes", ["nodes", "nodes"]),
        ("width = parameters.ops", ["ops"]),
        ("places = traced.graph.nodes\nwords = 'loops'", []),
    ],
)
def test_a_parameter_is_found(text, words):
    assert [word.text for word in parameters_named(parsed(text))] == words


def test_what_a_space_says_of_its_parameters_are_parameters():
    for name in SPACES.builtin:
        family = open_family(name)
        assert {*family.tiny, *family.once_kept_by_all} <= set(family.schema.model_fields)


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
    assert (
        namings(SOURCE / "somewhere.py", '"""Such as `darts:s2:4`."""\nnetwork = "darts-v2"') == []
    )

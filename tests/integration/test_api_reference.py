"""The API reference of `make docs` (tools/api_reference.py): its content and its links."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

from fedloom.federation.protocol.method import Method

ROOT = Path(__file__).parents[2]


def load_tool():
    spec = importlib.util.spec_from_file_location(
        "api_reference", ROOT / "tools" / "api_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference = load_tool()


def imported_by(text: str) -> set[str]:
    """The modules of fedloom that a page or an example imports from."""
    return set(re.findall(r"^\s*(?:from|import) (fedloom[\w.]*)", text, flags=re.MULTILINE))


def test_what_the_docs_import_is_in_the_reference():
    docs = ROOT / "docs"
    missing = []
    for file in sorted([*docs.glob("*.md"), *(docs / "examples").glob("*.py")]):
        for module in sorted(imported_by(file.read_text()) - set(reference.MODULES)):
            missing.append(f"{file.name} imports {module}")
    assert missing == []


def test_every_module_of_it_exists_and_says_what_it_is_for():
    for name in reference.MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        assert Path(spec.origin).read_text().startswith('"""'), name


class Described:
    """Fields with comments, as in fedloom's own classes."""

    first: int  # how many there are
    # The unit of `first`. It may
    # take two lines.
    second: str = "#"
    third: float = 0.0


def test_comments_of_fields_are_their_descriptions():
    comments = reference.field_comments(inspect.getsource(Described))
    assert comments == {
        "first": "How many there are.",
        "second": "The unit of `first`. It may take two lines.",
    }


def test_links_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="#x">3</a>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="there"></p><a href="no.html">4</a><a href="https://pdoc.dev">5</a>'
    )
    assert reference.broken_links(tmp_path) == [
        "a.html: #x",
        "a.html: b.html#gone",
        "b.html: no.html",
    ]


def test_a_guess_that_leads_nowhere_is_no_link():
    page = (
        '<i id="Run"></i><code><a href="#Run">Run</a></code> '
        '<code><a href="#Run.path">path</a></code>'
    )
    assert reference.without_wrong_guesses(page) == (
        '<i id="Run"></i><code><a href="#Run">Run</a></code> <code>path</code>'
    )


@pytest.mark.docs
def test_it_is_built_without_broken_links(tmp_path, capsys):
    assert reference.main([str(tmp_path / "api")]) == 0
    page = (tmp_path / "api" / "fedloom.html").read_text()
    for name in ("search", "compare", "auto", "resume", "Run"):
        assert f'id="{name}"' in page
    methods = tmp_path / "api" / "fedloom" / "federation" / "protocol" / "method.html"
    explained = inspect.getdoc(Method.check_rounds).splitlines()[0]
    assert explained in methods.read_text()
    types = (tmp_path / "api" / "fedloom" / "types.html").read_text()
    assert "How many clients are registered." in types  # Setup.population

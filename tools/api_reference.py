"""`make docs`: the API reference, generated from docstrings by pdoc, with every link in it checked.

python tools/api_reference.py [FOLDER]      build/api unless another folder is named
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import shutil
import sys
import textwrap
import tokenize
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

GUESSED_LINK = re.compile(r'<a href="#(?P<anchor>[\w.]+)">(?P<text>[\w.()]+)</a>(?=</code>)')
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "api"
# What users and authors of extensions import. Everything else may change between versions.
MODULES = (
    # to run, compare and read results
    "fedloom",
    "fedloom.api",
    "fedloom.errors",
    "fedloom.runs.results",
    "fedloom.runs.comparison",
    "fedloom.runs.auto",
    "fedloom.records.result",
    "fedloom.records.comparison",
    "fedloom.runs.profiles",
    # to write a method
    "fedloom.types",
    "fedloom.options",
    "fedloom.rng",
    "fedloom.federation.protocol.method",
    "fedloom.federation.protocol.aggregate",
    "fedloom.learning.training",
    "fedloom.learning.averaging",
    "fedloom.learning.personal",
    "fedloom.learning.parts",
    "fedloom.learning.formula",
    "fedloom.cost.limits",
    "fedloom.cost.steps",
    # to write a search space
    "fedloom.spaces",
    "fedloom.spaces.space",
    "fedloom.spaces.supernet",
    "fedloom.spaces.edges",
    "fedloom.spaces.choice",
    "fedloom.spaces.cost_table",
    "fedloom.spaces.layout",
    "fedloom.spaces.mixed",
    "fedloom.spaces.ops",
    "fedloom.spaces.options",
    "fedloom.spaces.paths",
    "fedloom.nets.heads",
    "fedloom.nets.pooling",
    # to write a searcher
    "fedloom.searchers",
    "fedloom.searchers.gumbel",
    "fedloom.searchers.local_search",
    "fedloom.searchers.milenas",
    "fedloom.searchers.nsga2",
    "fedloom.searchers.perturbation",
    # to add data
    "fedloom.data.source",
    "fedloom.data.sources",
    "fedloom.data.samples",
    "fedloom.data.tables.table",
    # to test all of these
    "fedloom.testing",
)


def build(folder: Path) -> None:
    """A page for each module, an index and a search index."""
    from pdoc import doc, render

    import_late_names()
    shutil.rmtree(folder, ignore_errors=True)
    render.configure(docformat="markdown", show_source=False, footer_text=footer())
    with warnings.catch_warnings():
        # Types that are imported for type checkers only cannot be resolved. They are shown as they
        # are written.
        warnings.filterwarnings("ignore", message="Error parsing type annotation")
        modules = {name: doc.Module.from_name(name) for name in MODULES}
        for module in modules.values():
            for documented in module.classes:
                describe_fields(documented)
        for name, module in modules.items():
            page = without_wrong_guesses(render.html_module(module, modules))
            write(page_of(folder, name), page)
        write(folder / "index.html", render.html_index(modules))
        write(folder / "search.js", render.search_index(modules))


def describe_fields(documented: Any) -> None:
    """Give the fields of a class the comments that stand beside them, as pdoc shows docstrings."""
    try:
        comments = field_comments(inspect.getsource(documented.obj))
    except (OSError, TypeError):  # a class that no file defines
        return
    for member in documented.own_members:
        if member.kind == "variable" and not member.docstring:
            member.docstring = comments.get(member.name, "")


def field_comments(source: str) -> dict[str, str]:
    """The comments of a class's annotated fields: at the end of the line, or in lines above it."""
    source = textwrap.dedent(source)
    lines = source.splitlines()
    texts = {}  # of the comments, by line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts[token.start[0]] = token.string.removeprefix("#").strip()
    comments = {}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        above: list[str] = []
        line = statement.lineno - 1
        while line in texts and lines[line - 1].lstrip().startswith("#"):
            above.insert(0, texts[line])
            line -= 1
        if statement.end_lineno in texts:
            above.append(texts[statement.end_lineno])
        if above:
            comments[statement.target.id] = as_sentence(" ".join(above))
    return comments


def as_sentence(text: str) -> str:
    sentence = text[0].upper() + text[1:]
    if sentence.endswith((".", "…", "?", "!")):
        return sentence
    return f"{sentence}."


def without_wrong_guesses(html: str) -> str:
    """The page without links from docstrings that lead nowhere.

    pdoc links `path` to a member of the class, even if the member is inherited and not on the page.
    """
    anchors = parsed(html).anchors

    def unlinked(match: re.Match[str]) -> str:
        if match["anchor"] in anchors:
            return match[0]
        return match["text"]

    return GUESSED_LINK.sub(unlinked, html)


def page_of(folder: Path, module: str) -> Path:
    return folder / f"{module.replace('.', '/')}.html"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def import_late_names() -> None:
    """Load the names that `import fedloom` loads on first use: pdoc looks at them without using."""
    package = importlib.import_module("fedloom")
    for name in package.__all__:
        setattr(package, name, getattr(package, name))


def footer() -> str:
    from fedloom.version import __version__

    return f"FedLoom {__version__}"


# Links


@dataclass
class Page:
    """The links of a page, and the anchors that can be linked to."""

    links: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)


class PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.page.anchors.add(value)
            if name in ("href", "src") and value:
                self.page.links.add(value)


def parsed(html: str) -> Page:
    reader = PageReader()
    reader.feed(html)
    return reader.page


def broken_links(folder: Path) -> list[str]:
    """The links of a folder's pages that lead to no file, or to no anchor in it.

    Web addresses are not checked.
    """
    folder = folder.resolve()
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = parsed(path.read_text(encoding="utf-8"))
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            if not leads_somewhere(link, path, pages):
                broken.append(f"{path.relative_to(folder)}: {link}")
    return broken


def leads_somewhere(link: str, path: Path, pages: Mapping[Path, Page]) -> bool:
    if link.startswith(("http:", "https:", "data:", "mailto:")):
        return True
    file, anchor = urldefrag(link)
    target = path
    if file:
        target = (path.parent / unquote(file)).resolve()
    if not target.exists():
        return False
    if not anchor or target not in pages:
        return True
    return unquote(anchor) in pages[target].anchors


def main(arguments: list[str]) -> int:
    folder = FOLDER
    if arguments:
        folder = Path(arguments[0])
    build(folder)
    broken = broken_links(folder)
    for line in broken:
        print(f"broken link: {line}", file=sys.stderr)
    print(f"{len(MODULES)} modules: {folder / 'index.html'}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

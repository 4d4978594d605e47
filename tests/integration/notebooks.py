"""Notebooks, executed cell by cell in this process without Jupyter.

What a notebook adds to Python is done here: the value of a cell's last line is shown,
`!fedloom …` runs the command
line, and `%%writefile` writes a file.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

from fedloom import cli


class Notebook:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.book = json.loads(path.read_text(encoding="utf-8"))

    @property
    def cells(self) -> list[dict[str, Any]]:
        return list(self.book["cells"])

    def sources(self, kind: str) -> list[str]:
        return ["".join(cell["source"]) for cell in self.cells if cell["cell_type"] == kind]

    def run(self, scope: dict[str, Any]) -> list[str | None]:
        """What each code cell shows, if anything; `scope` are the notebook's variables."""
        return [self.execute(source, scope) for source in self.sources("code")]

    def execute(self, source: str, scope: dict[str, Any]) -> str | None:
        if source.startswith("%%writefile "):
            name, _, text = source.removeprefix("%%writefile ").partition("\n")
            Path(name).write_text(text)
            return None
        if source.startswith("!fedloom "):
            words = shlex.split(source.removeprefix("!fedloom ").format(**scope))
            assert cli.main(words) == 0, source
            return None
        return self.execute_python(source, scope)

    def execute_python(self, source: str, scope: dict[str, Any]) -> str | None:
        *lines, last = ast.parse(source).body
        exec(compile(ast.Module(lines, []), str(self.path), "exec"), scope)
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), str(self.path), "exec"), scope)
            return None
        return shown(eval(compile(ast.Expression(last.value), str(self.path), "eval"), scope))

    def check_saved_without_outputs(self) -> None:
        assert (self.book["nbformat"], self.book["nbformat_minor"]) == (4, 5)
        for cell in self.cells:
            assert cell.get("outputs", []) == [], cell["id"]
            assert cell.get("execution_count") is None, cell["id"]
        assert len({cell["id"] for cell in self.cells}) == len(self.cells)

    def check_links(self) -> None:
        for source in self.sources("markdown"):
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", source):
                assert (self.path.parent / target).exists(), f"{self.path.name}: {target}"


def shown(value: Any) -> str:
    """What a notebook shows of a value: its picture, its HTML, or its text."""
    for name in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, name):
            return str(getattr(value, name)())
    return repr(value)

"""Options for reading a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedloom.config.models import TableTask
from fedloom.data.tables.encoding import Encoding

LABEL = "label"  # the column of labels, unless another is named
CLIENT = "client"  # the column of clients


@dataclass(frozen=True)
class TableRules:
    label: str | None = None  # the column of labels; None: the one named `label`
    task: TableTask = "auto"
    ignore: tuple[str, ...] = ()  # columns that are left out
    categorical: tuple[str, ...] = ()  # numeric columns that are categories
    # The encoding that was agreed on before, which is then used; None: this table decides.
    agreed: Encoding | None = None
    classes: tuple[str, ...] = ()  # the classes that were agreed on with it

    @property
    def label_name(self) -> str:
        if self.agreed is not None:
            return self.agreed.label
        return self.label or LABEL

    @property
    def are_usual(self) -> bool:
        """Whether the user left all options at their defaults."""
        return replace(self, agreed=None, classes=()) == USUAL


USUAL = TableRules()


def matching_column(wanted: str, names: Sequence[str]) -> str | None:
    """Returns the column of this name, or else the only one that differs from it in case alone."""
    if wanted in names:
        return wanted
    alike = [name for name in names if name.lower() == wanted.lower()]
    if len(alike) == 1:
        return alike[0]
    return None

"""How a table becomes samples: what a person may ask for when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedloom.config.models import TableTask
from fedloom.data.tables.encoding import Encoding

LABEL = "label"  # the column, if nobody names another
CLIENT = "client"


@dataclass(frozen=True)
class TableRules:
    label: str | None = None  # the label's column; None: the one that is called so
    task: TableTask = "auto"
    ignore: tuple[str, ...] = ()  # columns that are left out
    categorical: tuple[str, ...] = ()  # columns of categories, though they look like numbers
    # What others agreed on before: columns become what they are there. None: this table decides.
    agreed: Encoding | None = None
    classes: tuple[str, ...] = ()  # that were agreed on with it

    @property
    def label_name(self) -> str:
        if self.agreed is not None:
            return self.agreed.label
        return self.label or LABEL

    @property
    def are_usual(self) -> bool:
        return replace(self, agreed=None, classes=()) == USUAL


USUAL = TableRules()


def found_column(wanted: str, names: Sequence[str]) -> str | None:
    """The column of this name; if there is none, the only one that differs in case alone."""
    if wanted in names:
        return wanted
    alike = [name for name in names if name.lower() == wanted.lower()]
    if len(alike) == 1:
        return alike[0]
    return None

"""What a site tells of its table, and what a federation makes of it: sums, never rows.

Of a column of numbers a site tells how many there are, their sum, the sum of their squares and how
many are missing; of a column of categories which there are and how many cells are missing. From
these alone follow the mean and the standard deviation over all sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedloom.config.models import TableTask
from fedloom.data.labels import class_order, label_notices, united
from fedloom.data.tables.encoding import CategoryColumn, Encoding, Fixed, Name, NumberColumn
from fedloom.data.tables.table import Column, Numbers, Texts, as_texts
from fedloom.errors import FedloomError, nearest, shortened

MOST_CATEGORIES = 100  # of a column
# A column whose standard deviation is a smaller share of its size is constant: float32, in which
# samples are, would hardly see a difference, and neither would a sum of squares.
FLAT = 1e-6
MOST_GUESSED = 20  # whole numbers that are taken for classes if nobody says what they are
MOST_NAMED = 10  # columns of a notice

Count = Annotated[int, Field(ge=0)]


class NumberSums(Fixed):
    kind: Literal["number"] = "number"
    count: Count  # of the values that are there; 0: what the column holds is not known
    total: float
    squares: float = Field(ge=0)
    missing: Count


class CategorySums(Fixed):
    kind: Literal["category"] = "category"
    categories: tuple[Name, ...] = Field(max_length=MOST_CATEGORIES)
    missing: Count


ColumnSums = Annotated[NumberSums | CategorySums, Field(discriminator="kind")]


class LabelSums(Fixed):
    """Of the column of labels, in which nothing is missing."""

    numbers: NumberSums | None = None  # None: some are no numbers, or nobody needs them
    is_whole: bool  # whether all of them are whole numbers
    # None: they are no classes, or too many to be some.
    classes: tuple[Name, ...] | None = Field(None, max_length=65_536)


class TableSums(Fixed):
    label: Name
    of_label: LabelSums
    columns: dict[Name, ColumnSums]


# What one site tells


def sums_of_column(where: str, name: str, column: Column) -> NumberSums | CategorySums:
    missing = int(column.missing.sum())
    if isinstance(column, Numbers):
        return sums_of_numbers(column)
    if len(column.used) > MOST_CATEGORIES:
        raise neither(where, name, column)
    return CategorySums(categories=tuple(sorted(column.used)), missing=missing)


def sums_of_numbers(column: Numbers) -> NumberSums:
    values = column.values[~column.missing]
    return NumberSums(
        count=len(values),
        total=float(values.sum()),
        squares=float((values * values).sum()),
        missing=len(column.values) - len(values),
    )


def neither(where: str, name: str, column: Texts) -> FedloomError:
    """For a column that is no number and has too many texts to be a category."""
    rule = f"the column {name} of {where} must be numbers, or at most {MOST_CATEGORIES} categories"
    found = f"it has {len(column.used):,} different texts, such as {column.used[0]!r}"
    return FedloomError(
        rule, found, f"leave it out with --ignore {name}, or join its texts to fewer"
    )


def check_no_identifier(where: str, name: str, column: Column) -> None:
    """Texts that nearly every row has its own of name rows: they must not be told as categories."""
    if isinstance(column, Numbers):
        return
    rows = int((~column.missing).sum())
    if len(column.used) > MOST_GUESSED and len(column.used) > rows / 2:
        raise neither(where, name, column)


def sums_of_label(column: Column, task: TableTask) -> LabelSums:
    """Class names are told where they are needed, and the sums of numbers are."""
    names = as_texts(column).used
    if task == "classification" or not isinstance(column, Numbers):
        return LabelSums(numbers=None, is_whole=False, classes=names)
    is_whole = bool((column.values == np.round(column.values)).all())
    classes = None
    if task == "auto" and is_whole and len(names) <= MOST_GUESSED:
        classes = names
    return LabelSums(numbers=sums_of_numbers(column), is_whole=is_whole, classes=classes)


# What all sites together have


class Moments(Fixed):
    mean: float
    std: float  # over all values, with ddof 0
    is_flat: bool  # hardly any value differs from another


def added(sums: Sequence[NumberSums]) -> NumberSums:
    """The order of the sites does not matter, to the last bit."""
    return NumberSums(
        count=sum(site.count for site in sums),
        total=fsum(site.total for site in sums),
        squares=fsum(site.squares for site in sums),
        missing=sum(site.missing for site in sums),
    )


def moments(sums: NumberSums) -> Moments:
    mean = sums.total / sums.count
    mean_square = sums.squares / sums.count
    variance = mean_square - mean * mean
    is_flat = variance <= FLAT * FLAT * mean_square
    return Moments(mean=mean, std=sqrt(max(0.0, variance)), is_flat=is_flat)


class Agreed(Fixed):
    columns: tuple[NumberColumn | CategoryColumn, ...]
    notices: tuple[str, ...]


def agreed_columns(sites: Mapping[str, TableSums]) -> Agreed:
    """The columns of all sites, in the order of the first; those that say nothing are left out."""
    names = same_names(sites)
    columns: list[NumberColumn | CategoryColumn] = []
    constant = []
    empty = []
    for name in names:
        by_site = {site: sums.columns[name] for site, sums in sites.items()}
        column = agreed_column(name, by_site)
        if column is not None:
            columns.append(column)
        elif all(sums.kind == "number" and sums.count == 0 for sums in by_site.values()):
            empty.append(name)
        else:
            constant.append(name)
    notices = []
    if constant:
        notices.append(f"{listed(constant)} the same value in every row: left out")
    if empty:
        notices.append(f"{listed(empty)} no value in any row: left out")
    if not columns:
        raise FedloomError(
            "a table must have a column beside its label that says something",
            "none is left" + "".join(f"; {notice}" for notice in notices),
            "add columns",
        )
    return Agreed(columns=tuple(columns), notices=tuple(notices))


def listed(names: Sequence[str]) -> str:
    """`the column age has`, `the columns age and sex have`"""
    if len(names) == 1:
        return f"the column {names[0]} has"
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown = f"{shown} and {len(names) - MOST_NAMED} more"
    return f"the columns {shown} have"


def same_names(sites: Mapping[str, TableSums]) -> list[str]:
    """Of the columns, if all sites have the same."""
    first_site = next(iter(sites))
    names = list(sites[first_site].columns)
    for site, sums in sites.items():
        for name in names:
            if name not in sums.columns:
                raise different_columns(first_site, site, name, list(sums.columns))
        for name in sums.columns:
            if name not in names:
                raise different_columns(site, first_site, name, names)
    return names


def different_columns(having: str, lacking: str, name: str, others: list[str]) -> FedloomError:
    found = f"{having} has {name}, and {lacking} has not"
    near = nearest(name, others)
    advice = f"add it, or leave it out everywhere with --ignore {name}"
    if near is not None:
        advice = f"rename {near} if that is it, {advice}"
    return FedloomError("all sites must have the same columns", found, advice)


def agreed_column(
    name: str, by_site: Mapping[str, NumberSums | CategorySums]
) -> NumberColumn | CategoryColumn | None:
    """None: it has the same value in every row, or none."""
    numbers: dict[str, NumberSums] = {}
    categories: dict[str, CategorySums] = {}
    missing = 0
    for site, sums in by_site.items():
        missing += sums.missing
        if isinstance(sums, CategorySums):
            categories[site] = sums
        elif sums.count:
            numbers[site] = sums
    if numbers and categories:
        raise mixed_column(name, next(iter(numbers)), next(iter(categories)), categories)
    if categories:
        return category_column(name, list(categories.values()), missing)
    if not numbers:
        return None
    of_all = moments(added(list(numbers.values())))
    if not of_all.is_flat:
        return NumberColumn(name=name, mean=of_all.mean, std=of_all.std, tells_missing=missing > 0)
    if not missing:
        return None
    # One value or none: whether it is there may say something.
    return NumberColumn(name=name, mean=of_all.mean, std=1.0, tells_missing=True)


def category_column(name: str, sums: Sequence[CategorySums], missing: int) -> CategoryColumn | None:
    categories: set[str] = set()
    for site in sums:
        categories |= set(site.categories)
    if len(categories) > MOST_CATEGORIES:
        rule = f"the column {name} must have at most {MOST_CATEGORIES} categories over all sites"
        found = f"it has {len(categories)}"
        raise FedloomError(rule, found, f"join them, or leave it out with --ignore {name}")
    if len(categories) == 1 and not missing:
        return None
    ordered = class_order(categories)
    return CategoryColumn(name=name, categories=ordered, tells_missing=missing > 0)


def mixed_column(
    name: str,
    numeric_site: str,
    text_site: str,
    categories: Mapping[str, CategorySums],
) -> FedloomError:
    text = categories[text_site].categories[0]
    return FedloomError(
        f"the column {name} must be numbers at all sites, or categories at all of them",
        f"{numeric_site} has numbers and {text_site} has {shortened(repr(text), 60)}",
        f"correct it, or add --categorical {name}",
    )


# What the label is


def is_regression(sites: Mapping[str, TableSums], task: TableTask) -> bool:
    """Whether a number is foretold instead of a class.

    If nobody says so, it is where all labels are numbers and one of them is not whole.
    """
    if task != "auto":
        return task == "regression"
    labels = [sums.of_label for sums in sites.values()]
    if any(label.numbers is None for label in labels):
        return False
    if not all(label.is_whole for label in labels):
        return True
    classes: set[str] = set()
    for site, sums in sites.items():
        classes |= set(sums.of_label.classes or ())
        if sums.of_label.classes is None or len(classes) > MOST_GUESSED:
            raise FedloomError(
                f"the label column {sums.label} must be classes, or numbers to foretell",
                f"it has more than {MOST_GUESSED} different whole numbers at {site}",
                "say --task regression or --task classification",
            )
    return False


def classes_by_site(sites: Mapping[str, TableSums]) -> dict[str, tuple[str, ...]]:
    names = {}
    for site, sums in sites.items():
        classes = sums.of_label.classes
        if classes is None:
            rule = f"the label column {sums.label} must be classes at all sites"
            found = f"{site} has numbers there, and others have text"
            raise FedloomError(rule, found, "correct it, or say --task classification")
        names[site] = class_order(set(classes))
    return names


def agreed_target(sites: Mapping[str, TableSums]) -> tuple[float, float]:
    """Mean and standard deviation of a label that is a number."""
    numbers = []
    for site, sums in sites.items():
        label = sums.label
        if sums.of_label.numbers is None:
            rule = f"the label column {label} must be numbers for regression"
            raise FedloomError(rule, f"{site} has text there", "use --task classification")
        numbers.append(sums.of_label.numbers)
    of_all = moments(added(numbers))
    if of_all.is_flat:
        rule = f"the label column {label} must have different values"
        raise FedloomError(rule, "it has the same in every row", "name another with --label")
    return of_all.mean, of_all.std


# All of it


@dataclass(frozen=True)
class Agreement:
    encoding: Encoding
    labels: tuple[str, ...]  # the classes; of a number the name of its column alone
    notices: tuple[str, ...]

    @property
    def kind(self) -> str:
        if self.encoding.target is None:
            return "table"
        return "regression"


def agreement(
    sites: Mapping[str, TableSums], task: TableTask, *, tells_labels: bool = True
) -> Agreement:
    """What follows from all sites' sums, by their names.

    `tells_labels`: whether it is worth a notice that sites have different classes.
    """
    label = next(iter(sites.values())).label
    columns = agreed_columns(sites)
    if is_regression(sites, task):
        target = agreed_target(sites)
        encoding = Encoding(columns=columns.columns, label=label, target=target)
        return Agreement(encoding, (label,), columns.notices)
    encoding = Encoding(columns=columns.columns, label=label)
    by_site = classes_by_site(sites)
    labels = united(by_site.values())
    notices = columns.notices
    if tells_labels:
        notices += label_notices(by_site, labels)
    return Agreement(encoding, labels, notices)

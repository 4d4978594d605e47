"""What a site shares of its table, and what a federation makes of it: sums, never rows.

For a numeric column, a site shares the count of values, their sum, the sum of their squares and the
number of missing values. For a categorical column, it shares the categories and the number of
missing values. The mean and the standard deviation over all sites follow from these sums alone.
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
# If the standard deviation of a column is a smaller share of its size, the column counts as
# constant: samples are float32, in which values would hardly differ, nor would a sum of squares.
FLAT = 1e-6
MOST_GUESSED = 20  # so many different whole numbers are taken for classes, unless --task is given
MOST_NAMED = 10  # columns in a notice

Count = Annotated[int, Field(ge=0)]


class NumberSums(Fixed):
    """What a site shares of a numeric column."""

    kind: Literal["number"] = "number"
    count: Count  # of values that are not missing; 0: it is not known what the column holds
    total: float
    squares: float = Field(ge=0)
    missing: Count


class CategorySums(Fixed):
    """What a site shares of a categorical column."""

    kind: Literal["category"] = "category"
    categories: tuple[Name, ...] = Field(max_length=MOST_CATEGORIES)
    missing: Count


ColumnSums = Annotated[NumberSums | CategorySums, Field(discriminator="kind")]


class LabelSums(Fixed):
    """What a site shares of the column of labels, in which no value may be missing."""

    numbers: NumberSums | None = None  # None: some labels are texts, or no sums are needed
    is_whole: bool  # whether all labels are whole numbers
    # None: the labels are no classes, or there are too many of them.
    classes: tuple[Name, ...] | None = Field(None, max_length=65_536)


class TableSums(Fixed):
    """What a site shares of its table."""

    label: Name
    of_label: LabelSums
    columns: dict[Name, ColumnSums]


# The sums of one site


def sums_of_column(where: str, name: str, column: Column) -> NumberSums | CategorySums:
    if isinstance(column, Numbers):
        return sums_of_numbers(column)
    if len(column.used) > MOST_CATEGORIES:
        raise too_many_texts(where, name, column)
    missing = int(column.missing.sum())
    return CategorySums(categories=tuple(sorted(column.used)), missing=missing)


def sums_of_numbers(column: Numbers) -> NumberSums:
    values = column.values[~column.missing]
    return NumberSums(
        count=len(values),
        total=float(values.sum()),
        squares=float((values * values).sum()),
        missing=len(column.values) - len(values),
    )


def too_many_texts(where: str, name: str, column: Texts) -> FedloomError:
    """The error for a column that is not numeric and has too many texts to be categorical."""
    rule = f"the column {name} of {where} must be numbers, or at most {MOST_CATEGORIES} categories"
    problem = f"it has {len(column.used):,} different texts, such as {column.used[0]!r}"
    return FedloomError(rule, problem, f"leave it out with --ignore {name}, or merge some texts")


def check_no_identifier(where: str, name: str, column: Column) -> None:
    """Refuses a column of texts that differ in nearly every row.

    Such texts identify rows, so they must not be shared as categories.
    """
    if isinstance(column, Numbers):
        return
    rows = int((~column.missing).sum())
    if len(column.used) > MOST_GUESSED and len(column.used) > rows / 2:
        raise too_many_texts(where, name, column)


def sums_of_label(column: Column, task: TableTask) -> LabelSums:
    """Returns class names, sums of numeric labels, or both, as far as the task needs them."""
    names = as_texts(column).used
    if task == "classification" or not isinstance(column, Numbers):
        return LabelSums(numbers=None, is_whole=False, classes=names)
    is_whole = bool((column.values == np.round(column.values)).all())
    classes = None
    if task == "auto" and is_whole and len(names) <= MOST_GUESSED:
        classes = names
    return LabelSums(numbers=sums_of_numbers(column), is_whole=is_whole, classes=classes)


# All sites together


class Moments(Fixed):
    mean: float
    std: float  # over all values, with ddof 0
    is_flat: bool  # whether values hardly differ


def added(sums: Sequence[NumberSums]) -> NumberSums:
    """Adds the sums of all sites. Their order does not matter, to the last bit."""
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


class AgreedColumns(Fixed):
    columns: tuple[NumberColumn | CategoryColumn, ...]
    notices: tuple[str, ...]


def agreed_columns(sites: Mapping[str, TableSums]) -> AgreedColumns:
    """Decides how each column is encoded, in the order of the first site's columns.

    Columns with the same value in every row, or with none, are left out. A notice names them.
    """
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
    return AgreedColumns(columns=tuple(columns), notices=tuple(notices))


def listed(names: Sequence[str]) -> str:
    """Begins a sentence: `the column age has`, `the columns age and sex have`."""
    if len(names) == 1:
        return f"the column {names[0]} has"
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown = f"{shown} and {len(names) - MOST_NAMED} more"
    return f"the columns {shown} have"


def same_names(sites: Mapping[str, TableSums]) -> list[str]:
    """Returns the names of the columns, which must be the same at all sites."""
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
    problem = f"{having} has {name}, and {lacking} does not"
    near = nearest(name, others)
    advice = f"add it, or leave it out everywhere with --ignore {name}"
    if near is not None:
        advice = f"rename {near} if it is the same column, {advice}"
    return FedloomError("all sites must have the same columns", problem, advice)


def agreed_column(
    name: str, by_site: Mapping[str, NumberSums | CategorySums]
) -> NumberColumn | CategoryColumn | None:
    """Decides how one column is encoded. None: it has the same value in every row, or no value."""
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
    overall = moments(added(list(numbers.values())))
    if not overall.is_flat:
        return NumberColumn(
            name=name, mean=overall.mean, std=overall.std, tells_missing=missing > 0
        )
    if not missing:
        return None
    # There is a single value, but whether it is missing may be informative.
    return NumberColumn(name=name, mean=overall.mean, std=1.0, tells_missing=True)


def category_column(name: str, sums: Sequence[CategorySums], missing: int) -> CategoryColumn | None:
    categories: set[str] = set()
    for site in sums:
        categories |= set(site.categories)
    if len(categories) > MOST_CATEGORIES:
        rule = f"the column {name} must have at most {MOST_CATEGORIES} categories over all sites"
        problem = f"it has {len(categories)}"
        raise FedloomError(rule, problem, f"merge some, or leave it out with --ignore {name}")
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


# The label


def is_regression(sites: Mapping[str, TableSums], task: TableTask) -> bool:
    """Whether a number is to be predicted instead of a class.

    Unless the task is given, that is so if all labels are numbers and at least one is not whole.
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
                f"the label column {sums.label} must be classes, or numbers to predict",
                f"it has more than {MOST_GUESSED} different whole numbers at {site}",
                "give --task regression or --task classification",
            )
    return False


def classes_by_site(sites: Mapping[str, TableSums]) -> dict[str, tuple[str, ...]]:
    names = {}
    for site, sums in sites.items():
        classes = sums.of_label.classes
        if classes is None:
            rule = f"the label column {sums.label} must be classes at all sites"
            problem = f"{site} has numbers there, and others have text"
            raise FedloomError(rule, problem, "correct it, or give --task classification")
        names[site] = class_order(set(classes))
    return names


def agreed_target(sites: Mapping[str, TableSums]) -> tuple[float, float]:
    """Returns the mean and standard deviation of a numeric label over all sites."""
    numbers = []
    for site, sums in sites.items():
        label = sums.label
        if sums.of_label.numbers is None:
            rule = f"the label column {label} must be numbers for regression"
            raise FedloomError(rule, f"{site} has text there", "use --task classification")
        numbers.append(sums.of_label.numbers)
    overall = moments(added(numbers))
    if overall.is_flat:
        rule = f"the label column {label} must have different values"
        problem = "it has the same value in every row"
        raise FedloomError(rule, problem, "name another with --label")
    return overall.mean, overall.std


# The whole table


@dataclass(frozen=True)
class Agreement:
    """How a table is encoded, the same at all sites."""

    encoding: Encoding
    labels: tuple[str, ...]  # the classes; for regression only the name of the label's column
    notices: tuple[str, ...]

    @property
    def kind(self) -> str:
        if self.encoding.target is None:
            return "table"
        return "regression"


def agreement(
    sites: Mapping[str, TableSums], task: TableTask, *, tells_labels: bool = True
) -> Agreement:
    """Decides the encoding and the classes from the sums of all sites, given by site name.

    `tells_labels`: whether a notice says so if sites have different classes.
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

"""Turns tables into samples: one file, or several files with one site each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from fedloom.data.labels import class_order
from fedloom.data.source import Source
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.rules import CLIENT, TableRules, matching_column
from fedloom.data.tables.sums import (
    Agreement,
    TableSums,
    agreement,
    check_no_identifier,
    sums_of_column,
    sums_of_label,
)
from fedloom.data.tables.table import Column, Numbers, Table, Texts, as_texts
from fedloom.errors import FedloomError, nearest

# Other common names of the column of labels.
OTHER_LABELS = ("target", "class", "y", "outcome", "diagnosis", "result")
VERY_NEAR = 0.7  # similarity of two names, from 0 to 1
MOST_ROWS_NAMED = 5  # in an error


@dataclass(frozen=True)
class TableForm:
    """What is known about a table besides its samples."""

    encoding: Encoding
    sums: Mapping[str, TableSums]  # by site or client


@dataclass(frozen=True, eq=False)
class Labelled:
    """A table with its columns by purpose: features, label and clients."""

    features: Table
    label: Column
    clients: Texts | None


def one_table(name: str, table: Table, rules: TableRules) -> Source:
    """Returns the samples of one table, which may have a column of clients."""
    if rules.task == "auto":
        rules = replace(rules, task=table.task)
    labelled = with_label(table, rules)
    if labelled.clients is None:
        return source_of(name, {name: labelled}, rules)
    names = class_order(set(labelled.clients.used))
    numbers = {client: number for number, client in enumerate(names)}
    number_of_code = np.array([numbers.get(client, 0) for client in labelled.clients.names])
    groups = number_of_code[labelled.clients.codes]
    by_client = {}
    for number, client in enumerate(names):
        by_client[client] = rows_of(labelled, np.flatnonzero(groups == number))
    source = source_of(name, by_client, rules, tells_labels=False)
    # The source has them client by client; here they are put back in the order of the file.
    by_client_order = np.argsort(groups, kind="stable")
    file_order = np.argsort(by_client_order, kind="stable")
    return replace(
        source,
        x=source.x[file_order],
        y=source.y[file_order],
        groups=groups,
        group_names=names,
        grouping="client",
    )


def site_tables(name: str, tables: Mapping[str, Table], rules: TableRules) -> Source:
    """Returns the samples of several tables, one per site. Columns of clients are ignored."""
    sites = {site: with_label(table, rules) for site, table in tables.items()}
    source = source_of(name, sites, rules)
    sizes = [len(site.features) for site in sites.values()]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return replace(source, groups=groups, group_names=tuple(tables), grouping="site")


def table_sums(table: Table, rules: TableRules) -> TableSums:
    """Returns the sums that a site shares of its table. A column of clients is ignored."""
    if rules.task == "auto":
        rules = replace(rules, task=table.task)
    return sums_of(with_label(table, rules), rules)


def source_of(
    name: str,
    sites: Mapping[str, Labelled],
    rules: TableRules,
    *,
    tells_labels: bool = True,
) -> Source:
    """Returns the rows of all sites as samples, one site after the other.

    `tells_labels`: whether a notice says so if sites have different classes.
    """
    sums = {site: sums_of(labelled, rules) for site, labelled in sites.items()}
    agreed = agreed_before(sums, rules)
    if agreed is None:
        agreed = agreement(sums, rules.task, tells_labels=tells_labels and len(sums) > 1)
    encoding = agreed.encoding
    inputs = []
    labels = []
    for labelled in sites.values():
        inputs.append(encoding.encode(labelled.features))
        labels.append(targets(labelled, agreed))
    return Source(
        name,
        np.concatenate(inputs),
        np.concatenate(labels),
        agreed.labels,
        encoding.mean,
        encoding.std,
        agreed.kind,
        notices=agreed.notices,
        table=TableForm(encoding, sums),
    )


def agreed_before(sums: Mapping[str, TableSums], rules: TableRules) -> Agreement | None:
    """Returns the agreement that the options give, if any, with classes that are new here added."""
    if rules.agreed is None:
        return None
    if rules.agreed.target is not None:
        return Agreement(rules.agreed, (rules.agreed.label,), ())
    classes: set[str] = set()
    for site in sums.values():
        classes |= set(site.of_label.classes or ())
    if classes <= set(rules.classes):
        return Agreement(rules.agreed, rules.classes, ())
    return Agreement(rules.agreed, class_order(classes | set(rules.classes)), ())


def sums_of(labelled: Labelled, rules: TableRules) -> TableSums:
    """Returns the sums of a table, without those of its columns if an encoding was agreed on."""
    where = labelled.features.where
    task = rules.task
    if rules.agreed is not None:
        task = "classification" if rules.agreed.target is None else "regression"
    columns = {}
    if rules.agreed is None:  # otherwise they are not needed
        for name, column in labelled.features.columns.items():
            columns[name] = sums_of_column(where, name, column)
    return TableSums(
        label=rules.label_name,
        of_label=sums_of_label(labelled.label, task),
        columns=columns,
    )


def targets(labelled: Labelled, agreed: Agreement) -> np.ndarray:
    """Returns class numbers, or numeric labels in standard deviations from the mean, as float32."""
    if agreed.encoding.target is None:
        texts = as_texts(labelled.label)
        numbers = {name: number for number, name in enumerate(agreed.labels)}
        number_of_code = np.array([numbers.get(name, 0) for name in texts.names], np.int64)
        classes: np.ndarray = number_of_code[texts.codes]
        return classes
    if not isinstance(labelled.label, Numbers):
        rule = f"the label column {agreed.encoding.label} of {labelled.features.where} must be"
        problem = f"it has {labelled.label.used[0]!r}"
        raise FedloomError(f"{rule} numbers", problem, "correct it")
    mean, std = agreed.encoding.target
    standardised: np.ndarray = ((labelled.label.values - mean) / std).astype(np.float32)
    return standardised


def rows_of(labelled: Labelled, chosen: np.ndarray) -> Labelled:
    clients = labelled.clients
    if clients is not None:
        clients = clients.rows(chosen)
    return Labelled(labelled.features.rows(chosen), labelled.label.rows(chosen), clients)


# The purpose of each column


def with_label(table: Table, rules: TableRules) -> Labelled:
    """Divides the columns of a table by purpose, and checks them."""
    names = list(table.columns)
    label_name = matching_column(rules.label_name, names)
    if label_name is None:
        raise without_label(table, rules)
    label = table.columns[label_name]
    if len(table) == 0:
        rule = f"{table.where} must have rows"
        raise FedloomError(rule, "it has a header only", "add a row for each sample")
    check_complete(table, label_name, "drop such rows, or fill it in")
    check_no_identifier(table.where, label_name, label)
    clients = None
    client_name = matching_column(CLIENT, names)
    if client_name is not None and client_name != label_name:
        check_complete(table, client_name, "fill it in, or rename the column")
        clients = as_texts(table.columns[client_name])
    else:
        client_name = None
    features = without(features_of(table, rules), {label_name, client_name})
    if rules.agreed is None:
        for name, column in features.columns.items():
            check_no_identifier(table.where, name, column)
    return Labelled(features, label, clients)


def features_of(table: Table, rules: TableRules) -> Table:
    """Returns the table without ignored columns, and with `categorical` ones as texts."""
    for name in (*rules.ignore, *rules.categorical):
        if name not in table.columns:
            raise unknown_column(table, name)
    columns = {}
    for name, column in table.columns.items():
        if name in rules.ignore:
            continue
        if name in rules.categorical and not column.missing.all():
            column = as_texts(column)
        columns[name] = column
    return replace(table, columns=columns)


def without(table: Table, names: set[str | None]) -> Table:
    columns = {name: column for name, column in table.columns.items() if name not in names}
    return replace(table, columns=columns)


def check_complete(table: Table, name: str, advice: str) -> None:
    gaps = table.row_numbers[table.columns[name].missing]
    if len(gaps) == 0:
        return
    shown = ", ".join(map(str, gaps[:MOST_ROWS_NAMED].tolist()))
    if len(gaps) > MOST_ROWS_NAMED:
        shown = f"{shown}, …"
    rule = f"every row of {table.where} must have a value in the column {name}"
    raise FedloomError(rule, f"{len(gaps)} have none (rows {shown})", advice)


def without_label(table: Table, rules: TableRules) -> FedloomError:
    names = list(table.columns)
    rule = f"{table.where} must have the label column {rules.label_name}"
    problem = f"its columns are {', '.join(names)}"
    near = likely_label(rules.label_name, names)
    if near is None:
        advice = "name it with --label; a list of files begins with the header file,label"
        return FedloomError(rule, problem, advice)
    return FedloomError(rule, problem, f"try --label {quoted(near)}")


def likely_label(wanted: str, names: Sequence[str]) -> str | None:
    near = get_close_matches(wanted, names, n=1, cutoff=VERY_NEAR)
    if near:
        return near[0]
    for other in OTHER_LABELS:
        same = matching_column(other, names)
        if same is not None:
            return same
    return nearest(wanted, names)


def quoted(name: str) -> str:
    """Quotes a name that has spaces, as a shell needs it."""
    if " " in name:
        return f"'{name}'"
    return name


def unknown_column(table: Table, name: str) -> FedloomError:
    rule = f"--ignore and --categorical must name columns of {table.where}"
    near = nearest(name, list(table.columns))
    advice = f"its columns are {', '.join(table.columns)}"
    if near is not None:
        advice = f"did you mean {near}"
    return FedloomError(rule, f"it has no {name}", advice)

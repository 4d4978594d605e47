"""Tables as samples: one file, or several of which each is a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from fedloom.data.labels import class_order
from fedloom.data.source import Source
from fedloom.data.tables.encoding import Encoding
from fedloom.data.tables.rules import CLIENT, TableRules, found_column
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

# What people call the column of labels elsewhere.
OTHER_LABELS = ("target", "class", "y", "outcome", "diagnosis", "result")
VERY_NEAR = 0.7  # from 0 to 1, of two names
MOST_ROWS_NAMED = 5


@dataclass(frozen=True)
class TableForm:
    """What is known of a table beside its samples."""

    encoding: Encoding
    sums: Mapping[str, TableSums]  # by site or client


@dataclass(frozen=True, eq=False)
class Labelled:
    """A table whose label and clients are known."""

    features: Table
    label: Column
    clients: Texts | None


def one_table(name: str, table: Table, rules: TableRules) -> Source:
    """The samples of one file, which may have a column of clients."""
    if rules.task == "auto":
        rules = replace(rules, task=table.task)
    labelled = with_label(table, rules)
    if labelled.clients is None:
        return source_of(name, {name: labelled}, rules)
    names = class_order(set(labelled.clients.used))
    numbers = {client: number for number, client in enumerate(names)}
    table_of_numbers = np.array([numbers.get(client, 0) for client in labelled.clients.names])
    groups = table_of_numbers[labelled.clients.codes]
    by_client = {}
    for number, client in enumerate(names):
        by_client[client] = rows_of(labelled, np.flatnonzero(groups == number))
    source = source_of(name, by_client, rules, tells_labels=False)
    # By client, one after the other; here they are put back in the order of the file.
    order = np.argsort(groups, kind="stable")
    back = np.argsort(order, kind="stable")
    return replace(
        source,
        x=source.x[back],
        y=source.y[back],
        groups=groups,
        group_names=names,
        grouping="client",
    )


def site_tables(name: str, tables: Mapping[str, Table], rules: TableRules) -> Source:
    """The samples of several files, a site each; a column of clients in them says nothing."""
    sites = {site: with_label(table, rules) for site, table in tables.items()}
    source = source_of(name, sites, rules)
    sizes = [len(site.features) for site in sites.values()]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return replace(source, groups=groups, group_names=tuple(tables), grouping="site")


def table_sums(table: Table, rules: TableRules) -> TableSums:
    """What a site tells of its table; a column of clients in it says nothing."""
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
    """The rows of all sites, one site after the other."""
    sums = {site: sums_of(labelled, rules) for site, labelled in sites.items()}
    settled = agreed_before(sums, rules)
    if settled is None:
        settled = agreement(sums, rules.task, tells_labels=tells_labels and len(sums) > 1)
    encoding = settled.encoding
    x = []
    y = []
    for labelled in sites.values():
        x.append(encoding.encode(labelled.features))
        y.append(targets(labelled, settled))
    return Source(
        name,
        np.concatenate(x),
        np.concatenate(y),
        settled.labels,
        encoding.mean,
        encoding.std,
        settled.kind,
        notices=settled.notices,
        table=TableForm(encoding, sums),
    )


def agreed_before(sums: Mapping[str, TableSums], rules: TableRules) -> Agreement | None:
    """What is given; a class that nobody knew joins those that were agreed on."""
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
    where = labelled.features.where
    task = rules.task
    if rules.agreed is not None:
        task = "classification" if rules.agreed.target is None else "regression"
    columns = {}
    if rules.agreed is None:  # otherwise nobody asks for them
        for name, column in labelled.features.columns.items():
            columns[name] = sums_of_column(where, name, column)
    return TableSums(
        label=rules.label_name,
        of_label=sums_of_label(labelled.label, task),
        columns=columns,
    )


def targets(labelled: Labelled, settled: Agreement) -> np.ndarray:
    """Class numbers, or numbers in standard deviations from the mean, float32."""
    if settled.encoding.target is None:
        texts = as_texts(labelled.label)
        numbers = {name: number for number, name in enumerate(settled.labels)}
        table = np.array([numbers.get(name, 0) for name in texts.names], np.int64)
        classes: np.ndarray = table[texts.codes]
        return classes
    if not isinstance(labelled.label, Numbers):
        rule = f"the label column {settled.encoding.label} of {labelled.features.where} must be"
        found = f"it has {labelled.label.used[0]!r}"
        raise FedloomError(f"{rule} numbers", found, "correct it")
    mean, std = settled.encoding.target
    standardised: np.ndarray = ((labelled.label.values - mean) / std).astype(np.float32)
    return standardised


def rows_of(labelled: Labelled, chosen: np.ndarray) -> Labelled:
    clients = labelled.clients
    if clients is not None:
        clients = clients.rows(chosen)
    return Labelled(labelled.features.rows(chosen), labelled.label.rows(chosen), clients)


# Which column is what


def with_label(table: Table, rules: TableRules) -> Labelled:
    """The columns of a table by what they are for."""
    names = list(table.columns)
    label_name = found_column(rules.label_name, names)
    if label_name is None:
        raise without_label(table, rules)
    label = table.columns[label_name]
    if len(table) == 0:
        rule = f"{table.where} must have rows"
        raise FedloomError(rule, "it has a header only", "add a row for each sample")
    check_complete(table, label_name, "drop such rows, or fill it in")
    check_no_identifier(table.where, label_name, label)
    clients = None
    client_name = found_column(CLIENT, names)
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
    """With columns that are to be categories as such, and without those that are to be ignored."""
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
    found = f"its columns are {', '.join(names)}"
    near = likely_label(rules.label_name, names)
    if near is None:
        advice = "name it with --label; a list of files begins with the header file,label"
        return FedloomError(rule, found, advice)
    return FedloomError(rule, found, f"try --label {quoted(near)}")


def likely_label(wanted: str, names: Sequence[str]) -> str | None:
    near = get_close_matches(wanted, names, n=1, cutoff=VERY_NEAR)
    if near:
        return near[0]
    for other in OTHER_LABELS:
        same = found_column(other, names)
        if same is not None:
            return same
    return nearest(wanted, names)


def quoted(name: str) -> str:
    """As one types it."""
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

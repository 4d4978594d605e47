"""Parquet files of numbers and categories, through pyarrow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.readers.csv_table import LONGEST_CELL, check_distinct, check_finite
from fedloom.data.tables.table import Column, Numbers, Table, table_of, texts_of
from fedloom.errors import FedloomError, raised


def read_parquet(path: Path, ignore: Collection[str] = ()) -> Table:
    """Reads a parquet file. Ignored columns are left empty, because they may have any type."""
    try:
        from pyarrow import parquet
    except ImportError:
        rule = f"--data {path} must have pyarrow to be read"
        advice = "pip install 'fedloom[parquet]', or save the table as .csv"
        raise FedloomError(rule, "it is not installed", advice) from None
    try:
        contents = parquet.read_table(path)
    except Exception as error:  # a damaged file may raise any of pyarrow's many errors
        rule = f"{path} must be a parquet file"
        raise FedloomError(rule, raised(error), "save it again") from error
    names = [str(name) for name in contents.column_names]
    if not names:
        raise FedloomError(f"{path} must have columns", "it has none", "save it again")
    check_distinct(path, names)
    columns: dict[str, Column] = {}
    for name in names:
        if name in ignore:
            columns[name] = Numbers(np.full(len(contents), np.nan))
        else:
            columns[name] = read_column(path, name, contents.column(name))
    table = table_of(str(path), columns)
    check_finite(table)
    return table


def read_column(path: Path, name: str, values: Any) -> Column:
    from pyarrow import types

    kind = values.type
    if types.is_dictionary(kind):
        kind = kind.value_type
        values = values.cast(kind)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        cells = [None if cell is None else cell[:LONGEST_CELL] for cell in values.to_pylist()]
        return texts_of(cells)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if is_number or types.is_boolean(kind) or types.is_null(kind):
        numbers = [np.nan if cell is None else float(cell) for cell in values.to_pylist()]
        return Numbers(np.array(numbers, np.float64))
    rule = f"the column {name} of {path} must be numbers or text"
    raise FedloomError(rule, f"its type is {kind}", f"convert it, or leave it out: --ignore {name}")

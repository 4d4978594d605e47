"""Files that hold a table of numbers and categories: one file, or a folder with one per site."""

from __future__ import annotations

from pathlib import Path

from fedloom.data.readers.csv_table import read_csv_table, read_header
from fedloom.data.readers.parquet import read_parquet
from fedloom.data.source import Source
from fedloom.data.tables.rules import TableRules
from fedloom.data.tables.samples import one_table, site_tables
from fedloom.data.tables.table import Table
from fedloom.errors import FedloomError

SUFFIXES = (".csv", ".parquet")
FILE_COLUMN = "file"  # in the header of a CSV that lists files instead of holding samples


def is_table(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix != ".csv":
        return suffix in SUFFIXES
    return FILE_COLUMN not in [name.lower() for name in read_header(path)]


def holds_tables(folder: Path) -> bool:
    """Whether a folder has tables and no folders: folders would be classes of images."""
    if not files_in(folder):
        return False
    return not any(entry.is_dir() for entry in folder.glob("[!.]*"))


def files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("[!.]*") if file.suffix.lower() in SUFFIXES)


def read_table(path: Path, rules: TableRules) -> Table:
    if path.suffix.lower() == ".parquet":
        return read_parquet(path, rules.ignore)
    return read_csv_table(path)


def read_file(path: Path, rules: TableRules) -> Source:
    return one_table(path.stem, read_table(path, rules), rules)


def read_folder(folder: Path, rules: TableRules) -> Source:
    tables: dict[str, Table] = {}
    for file in files_in(folder):
        if file.stem in tables:
            rule = f"every site of {folder} must have one file"
            raise FedloomError(rule, f"{file.stem} has two", "remove or rename one")
        tables[file.stem] = read_table(file, rules)
    return site_tables(folder.resolve().name, tables, rules)

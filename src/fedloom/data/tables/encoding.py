"""What a network sees of a table: the columns that a federation agreed on, as numbers.

A column of numbers is one number, in its own units: the model subtracts the federation's mean and
divides by its standard deviation itself. Where a value is missing the mean stands, and if any value
of the column is missing anywhere, a second number is 1 there and else 0. A column of categories is
one number a category, 1 for the one that a row has, in sorted order; if any is missing anywhere,
the last number stands for that. A category that nobody had counts as missing: where nothing was
missing, all numbers of the column are 0.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedloom.data.tables.table import Column, Numbers, Table, as_texts
from fedloom.errors import FedloomError, nearest
from fedloom.types import Json

Name = Annotated[str, Field(max_length=1000)]


class Fixed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class NumberColumn(Fixed):
    kind: Literal["number"] = "number"
    name: Name
    mean: float  # of all values in the federation
    std: float = Field(gt=0)
    tells_missing: bool  # whether a second number says where a value is missing

    @property
    def inputs(self) -> list[str]:
        """What each of its numbers is called."""
        if self.tells_missing:
            return [self.name, f"{self.name} is missing"]
        return [self.name]

    @property
    def means(self) -> list[float]:
        return [self.mean, 0.0][: len(self.inputs)]

    @property
    def stds(self) -> list[float]:
        return [self.std, 1.0][: len(self.inputs)]

    def encode(self, where: str, column: Column) -> np.ndarray:
        """[n, inputs]"""
        if not isinstance(column, Numbers):
            raise FedloomError(
                f"the column {self.name} of {where} must be numbers, as it was agreed on",
                f"it has {column.used[0]!r}",
                "correct it, or leave the cell empty",
            )
        gaps = column.missing
        filled = np.where(gaps, self.mean, column.values)
        if not self.tells_missing:
            return filled[:, None]
        return np.stack([filled, gaps.astype(np.float64)], axis=1)


class CategoryColumn(Fixed):
    kind: Literal["category"] = "category"
    name: Name
    categories: tuple[Name, ...] = Field(min_length=1)  # sorted
    tells_missing: bool

    @property
    def inputs(self) -> list[str]:
        names = [f"{self.name} is {category}" for category in self.categories]
        if self.tells_missing:
            names.append(f"{self.name} is missing")
        return names

    @property
    def means(self) -> list[float]:
        return [0.0] * len(self.inputs)

    @property
    def stds(self) -> list[float]:
        return [1.0] * len(self.inputs)

    def encode(self, where: str, column: Column) -> np.ndarray:
        texts = as_texts(column)
        places = {category: place for place, category in enumerate(self.categories)}
        other = len(self.categories)
        table = np.array([places.get(name, other) for name in texts.names] + [other])
        chosen = table[texts.codes]  # a gap, −1, is the last
        inputs: np.ndarray = np.eye(other + 1)[chosen][:, : len(self.inputs)]
        return inputs


class Encoding(Fixed):
    """All that is needed to turn rows into samples, anywhere."""

    columns: tuple[Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")], ...]
    label: Name
    # Mean and standard deviation of the label, where it is a number; None: it is a class.
    target: tuple[float, Annotated[float, Field(gt=0)]] | None = None

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = self.model_dump(mode="json")
        return plain

    @classmethod
    def from_json(cls, raw: Json) -> Encoding:
        """Of what `to_json` wrote."""
        return cls.model_validate_json(json.dumps(raw))

    @property
    def inputs(self) -> list[str]:
        """What each number of a sample is called."""
        names: list[str] = []
        for column in self.columns:
            names += column.inputs
        return names

    @property
    def mean(self) -> tuple[float, ...]:
        values: list[float] = []
        for column in self.columns:
            values += column.means
        return tuple(values)

    @property
    def std(self) -> tuple[float, ...]:
        values: list[float] = []
        for column in self.columns:
            values += column.stds
        return tuple(values)

    def encode(self, table: Table) -> np.ndarray:
        """[n, inputs], float32. Columns that it does not know are left out."""
        parts = []
        for column in self.columns:
            if column.name not in table.columns:
                raise self._lacking(table, column.name)
            parts.append(column.encode(table.where, table.columns[column.name]))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _lacking(self, table: Table, name: str) -> FedloomError:
        rule = f"{table.where} must have the column {name}"
        near = nearest(name, list(table.columns))
        if near is None:
            return FedloomError(rule, "it does not", "add it; cells may be empty")
        return FedloomError(rule, f"it does not, and has {near}", f"rename {near} if that is it")

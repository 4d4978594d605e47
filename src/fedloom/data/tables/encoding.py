"""The encoding of a table: how the columns that a federation agreed on become a network's inputs.

A numeric column becomes one input in its own units; the model itself subtracts the federation's
mean and divides by its standard deviation. A missing value is replaced by the mean. If any value of
the column is missing anywhere, a second input is 1 in such rows and 0 in others.

A categorical column is one-hot encoded: one input per category, in sorted order. If any value is
missing anywhere, the last input stands for that. A category that no site had counts as missing. If
nothing was missing, all inputs of the column are 0 for it.
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
    """A frozen record that is read strictly: unknown fields and NaN are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class NumberColumn(Fixed):
    """How a numeric column is encoded."""

    kind: Literal["number"] = "number"
    name: Name
    mean: float  # over all values in the federation
    std: float = Field(gt=0)
    tells_missing: bool  # whether a second input says where a value is missing

    @property
    def inputs(self) -> list[str]:
        """The names of its inputs."""
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
        """Returns the column's inputs as [n, inputs]."""
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
    """How a categorical column is one-hot encoded."""

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
        missing = len(self.categories)
        place_of_code = [places.get(name, missing) for name in texts.names]
        place_of_code.append(missing)  # a missing value has the code −1, which is the last
        chosen = np.array(place_of_code)[texts.codes]
        inputs: np.ndarray = np.eye(missing + 1)[chosen][:, : len(self.inputs)]
        return inputs


class Encoding(Fixed):
    """All that is needed to turn the rows of a table into samples, at any site."""

    columns: tuple[Annotated[NumberColumn | CategoryColumn, Field(discriminator="kind")], ...]
    label: Name
    # Mean and standard deviation of a numeric label; None: labels are classes.
    target: tuple[float, Annotated[float, Field(gt=0)]] | None = None

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = self.model_dump(mode="json")
        return plain

    @classmethod
    def from_json(cls, raw: Json) -> Encoding:
        """Reads what `to_json` wrote."""
        return cls.model_validate_json(json.dumps(raw))

    @property
    def inputs(self) -> list[str]:
        """The names of all inputs of a sample."""
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
        """Returns samples as [n, inputs], float32. Columns that it does not know are left out."""
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

"""The tables that come with scikit-learn: breast-cancer, wine and diabetes.

Their files are read as `sklearn.datasets` reads them, but without importing the package.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from fedloom.data.readers.scikit_files import scikit_file
from fedloom.data.tables.table import Column, Numbers, Table, Texts, as_texts, table_of
from fedloom.errors import FedloomError

CELL_FEATURES = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
WINE_FEATURES = (
    "alcohol",
    "malic_acid",
    "ash",
    "alcalinity_of_ash",
    "magnesium",
    "total_phenols",
    "flavanoids",
    "nonflavanoid_phenols",
    "proanthocyanins",
    "color_intensity",
    "hue",
    "od280/od315_of_diluted_wines",
    "proline",
)
DIABETES_FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def breast_cancer(directory: Path | None = None) -> Table:
    """569 tumours, 30 measurements of their cells, malignant or benign; comes with scikit-learn."""
    features = []
    for statistic in ("mean {}", "{} error", "worst {}"):
        features += [statistic.format(feature) for feature in CELL_FEATURES]
    return classes_table("breast-cancer", "breast_cancer.csv", features, ("malignant", "benign"))


def wine(directory: Path | None = None) -> Table:
    """178 wines of three growers, 13 chemical measurements; comes with scikit-learn."""
    growers = ("class_0", "class_1", "class_2")
    return classes_table("wine", "wine_data.csv", list(WINE_FEATURES), growers)


def diabetes(directory: Path | None = None) -> Table:
    """442 patients, 10 measurements, disease progression in a year; comes with scikit-learn."""
    with gzip.open(file_of("diabetes_data_raw.csv.gz"), "rt", encoding="utf-8") as text:
        measures = np.loadtxt(text)
    with gzip.open(file_of("diabetes_target.csv.gz"), "rt", encoding="utf-8") as text:
        progression = np.loadtxt(text)
    columns: dict[str, Column] = {}
    for name, values in zip(DIABETES_FEATURES, measures.T, strict=True):
        columns[name] = Numbers(values)
    columns["sex"] = as_texts(columns["sex"])  # 1 and 2 are codes, not amounts
    columns["label"] = Numbers(progression)
    return table_of("diabetes", columns, "regression")


def classes_table(name: str, file: str, features: list[str], classes: tuple[str, ...]) -> Table:
    """Reads a file whose first line is not a header, and whose last column is the class."""
    rows = np.loadtxt(file_of(file), delimiter=",", skiprows=1)
    columns: dict[str, Column] = {}
    for feature, values in zip(features, rows.T, strict=False):  # the class has no feature
        columns[feature] = Numbers(values)
    columns["label"] = Texts(rows[:, -1].astype(np.int32), classes)
    return table_of(name, columns)


def file_of(name: str) -> Path:
    file = scikit_file(name)
    if file is None:
        rule = f"scikit-learn must have its file {name}"
        raise FedloomError(rule, "it is not there", "install scikit-learn again")
    return file

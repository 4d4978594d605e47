import numpy as np
import pytest

from fedloom.data.tables.encoding import CategoryColumn, Encoding, NumberColumn
from fedloom.data.tables.table import Numbers, table_of, texts_of
from fedloom.errors import FedloomError

AGE = NumberColumn(name="age", mean=40.0, std=10.0, tells_missing=True)
DOSE = NumberColumn(name="dose", mean=2.0, std=1.0, tells_missing=False)
WARD = CategoryColumn(name="ward", categories=("east", "west"), tells_missing=True)
SEX = CategoryColumn(name="sex", categories=("f", "m"), tells_missing=False)
ALL = Encoding(columns=(AGE, DOSE, WARD, SEX), label="label")


def table(**columns):
    return table_of("new.csv", columns)


def rows():
    return table(
        age=Numbers(np.array([30, np.nan])),
        dose=Numbers(np.array([np.nan, 5])),
        ward=texts_of(["west", ""]),
        sex=texts_of(["f", "other"]),
    )


def test_each_number_of_a_sample():
    assert ALL.inputs == [
        "age",
        "age is missing",
        "dose",
        "ward is east",
        "ward is west",
        "ward is missing",
        "sex is f",
        "sex is m",
    ]
    assert ALL.encode(rows()).tolist() == [[30, 0, 2, 0, 1, 0, 1, 0], [40, 1, 5, 0, 0, 1, 0, 0]]
    assert ALL.mean == (40, 0, 2, 0, 0, 0, 0, 0)
    assert ALL.std == (10, 1, 1, 1, 1, 1, 1, 1)


def test_an_unknown_category_counts_as_missing():
    only = Encoding(columns=(WARD,), label="label")
    assert only.encode(table(ward=texts_of(["north", "east"]))).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_numbers_may_be_categories():
    grade = CategoryColumn(name="grade", categories=("1", "2"), tells_missing=False)
    only = Encoding(columns=(grade,), label="label")
    assert only.encode(table(grade=Numbers(np.array([2.0, 1.0])))).tolist() == [[0, 1], [1, 0]]


def test_a_missing_column_is_named_with_its_nearest():
    only = Encoding(columns=(AGE,), label="label")
    with pytest.raises(
        FedloomError, match=r"new.csv must have the column age, but it does not, and has Age"
    ):
        only.encode(table(Age=Numbers(np.ones(2))))
    with pytest.raises(FedloomError, match=r"but it does not; add it"):
        only.encode(table(x=Numbers(np.ones(2))))


def test_text_where_numbers_were_agreed_on_is_refused():
    with pytest.raises(
        FedloomError,
        match=r"the column age of new.csv must be numbers, as it was agreed on, but it has 'old'",
    ):
        Encoding(columns=(AGE,), label="label").encode(table(age=texts_of(["old"])))


def test_it_survives_json():
    assert Encoding.model_validate_json(ALL.model_dump_json()) == ALL

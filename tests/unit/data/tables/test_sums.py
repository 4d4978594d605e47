"""What a federation makes of its sites' sums is what pooled rows would have given."""

import numpy as np
import pytest

from fedloom.data.tables.sums import (
    CategorySums,
    LabelSums,
    NumberSums,
    TableSums,
    added,
    agreement,
    moments,
    sums_of_column,
    sums_of_label,
    sums_of_numbers,
)
from fedloom.data.tables.table import Numbers, Texts, as_texts, number_in, texts_of
from fedloom.errors import FedloomError

CLASSES = LabelSums(numbers=None, is_whole=False, classes=("no", "yes"))


def site(**columns):
    return TableSums(label="label", of_label=CLASSES, columns=columns)


def numbers(*values):
    return sums_of_numbers(Numbers(np.array(values, float)))


def test_sums_of_a_column_with_gaps():
    assert numbers(1, 2, np.nan, 4) == NumberSums(count=3, total=7, squares=21, missing=1)


def test_mean_and_std_are_those_of_the_pooled_rows():
    draw = np.random.default_rng(0)
    sites = [draw.normal(50, 7, size) for size in (3, 400, 11, 86)]
    sites[1][5] = np.nan
    pooled = np.concatenate(sites)
    overall = moments(added([sums_of_numbers(Numbers(values)) for values in sites]))
    assert overall.mean == pytest.approx(np.nanmean(pooled), rel=1e-9)
    assert overall.std == pytest.approx(np.nanstd(pooled), rel=1e-9)


def test_the_order_of_the_sites_changes_no_bit():
    draw = np.random.default_rng(1)
    sums = [sums_of_numbers(Numbers(draw.normal(1e6, 3, 50))) for _ in range(9)]
    assert moments(added(sums)) == moments(added(sums[::-1]))


def test_constant_and_empty_columns_are_left_out_and_told():
    settled = agreement(
        {
            "a": site(
                age=numbers(1, 3),
                flat=numbers(5, 5),
                one=CategorySums(categories=("x",), missing=0),
                no=numbers(),
            ),
            "b": site(
                age=numbers(5),
                flat=numbers(5),
                one=CategorySums(categories=("x",), missing=0),
                no=numbers(np.nan),
            ),
        },
        "auto",
    )
    assert [column.name for column in settled.encoding.columns] == ["age"]
    assert settled.notices == (
        "the columns flat, one have the same value in every row: left out",
        "the column no has no value in any row: left out",
    )


def test_one_value_or_none_says_something():
    settled = agreement({"a": site(mark=numbers(1, np.nan)), "b": site(mark=numbers(1, 1))}, "auto")
    (mark,) = settled.encoding.columns
    assert (mark.mean, mark.std, mark.tells_missing) == (1, 1, True)


def test_a_column_that_hardly_varies_is_constant():
    with pytest.raises(FedloomError, match="none is left"):
        agreement({"a": site(big=numbers(1e9, 1e9 + 1))}, "auto")
    assert agreement({"a": site(big=numbers(1e9, 1e9 + 1e5))}, "auto").encoding.columns


def test_categories_of_all_sites_in_sorted_order():
    ward = {
        "a": site(ward=CategorySums(categories=("west", "east"), missing=0)),
        "b": site(ward=CategorySums(categories=("north",), missing=2)),
    }
    (column,) = agreement(ward, "auto").encoding.columns
    assert column.categories == ("east", "north", "west") and column.tells_missing
    grades = {"a": site(grade=CategorySums(categories=("10", "9"), missing=0))}
    assert agreement(grades, "auto").encoding.columns[0].categories == ("9", "10")


def test_a_column_without_values_at_one_site_is_what_the_others_have():
    ward = {
        "a": site(ward=numbers(np.nan)),
        "b": site(ward=CategorySums(categories=("x", "y"), missing=0)),
    }
    (column,) = agreement(ward, "auto").encoding.columns
    assert column.categories == ("x", "y") and column.tells_missing


def test_numbers_at_one_site_and_text_at_another_are_refused():
    mixed = {
        "a": site(dose=numbers(1, 2)),
        "b": site(dose=CategorySums(categories=("high",), missing=0)),
    }
    with pytest.raises(FedloomError, match=r"a has numbers and b has 'high'; .*--categorical dose"):
        agreement(mixed, "auto")


def test_sites_must_have_the_same_columns():
    with pytest.raises(
        FedloomError, match="a has age, and b does not; rename Age if it is the same column"
    ):
        agreement({"a": site(age=numbers(1, 2)), "b": site(Age=numbers(1, 2))}, "auto")
    with pytest.raises(
        FedloomError,
        match="b has dose, and a does not; add it, or leave it out everywhere with --ignore dose",
    ):
        agreement(
            {"a": site(age=numbers(1, 2)), "b": site(age=numbers(1, 2), dose=numbers(1))}, "auto"
        )


def test_too_many_categories_are_neither_numbers_nor_categories():
    names = tuple(f"patient {number}" for number in range(101))
    column = Texts(np.arange(101, dtype=np.int32), names)
    with pytest.raises(
        FedloomError,
        match="101 different texts, such as 'patient 0'; leave it out with --ignore notes",
    ):
        sums_of_column("t.csv", "notes", column)


def label(*values, task="auto"):
    return sums_of_label(Numbers(np.array(values, float)), task)


def with_label(sums):
    return TableSums(label="label", of_label=sums, columns={"age": numbers(1, 2)})


def test_a_label_with_a_fraction_is_a_number_to_predict():
    settled = agreement({"a": with_label(label(1, 2)), "b": with_label(label(1.5, 4.5))}, "auto")
    assert settled.kind == "regression" and settled.labels == ("label",)
    mean, std = settled.encoding.target
    assert mean == pytest.approx(np.mean([1, 2, 1.5, 4.5])) and std == pytest.approx(
        np.std([1, 2, 1.5, 4.5])
    )


def test_few_whole_numbers_are_classes():
    settled = agreement({"a": with_label(label(2, 1)), "b": with_label(label(10, 1))}, "auto")
    assert settled.kind == "table" and settled.labels == ("1", "2", "10")
    assert "b lacks 2" in settled.notices[-1]


def test_many_whole_numbers_must_be_told_apart_by_a_person():
    sites = {"a": with_label(label(*range(21)))}
    with pytest.raises(FedloomError, match="give --task regression or --task classification"):
        agreement(sites, "auto")
    assert agreement(sites, "regression").kind == "regression"
    sites = {"a": with_label(label(*range(21), task="classification"))}
    assert len(agreement(sites, "classification").labels) == 21


def test_a_regression_tells_no_values_of_labels():
    assert label(1, 2, task="regression").classes is None
    assert label(1.5, 2).classes is None


def test_a_label_must_vary_and_be_numbers_for_regression():
    with pytest.raises(FedloomError, match="the same value in every row"):
        agreement({"a": with_label(label(3, 3))}, "regression")
    with pytest.raises(FedloomError, match="a has text there"):
        agreement({"a": with_label(CLASSES)}, "regression")


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "null", "?"])
def test_what_stands_for_nothing(cell):
    assert np.isnan(number_in(cell))
    assert texts_of([cell]).codes.tolist() == [-1]


@pytest.mark.parametrize("cell", ["007", "-07", "1_000", "1,5", "x", "none"])
def test_what_is_text(cell):
    assert number_in(cell) is None


@pytest.mark.parametrize(
    ("cell", "value"), [("0", 0), ("-0.5", -0.5), ("1e3", 1000), (" 7 ", 7), ("+2", 2)]
)
def test_what_is_a_number(cell, value):
    assert number_in(cell) == value


def test_numbers_as_texts():
    texts = as_texts(Numbers(np.array([2.0, np.nan, 10.5, 2.0])))
    assert texts.names == ("2", "10.5") and texts.codes.tolist() == [0, -1, 1, 0]

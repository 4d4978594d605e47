"""What a site remembers of the surveys that it answered."""

import time

import numpy as np
import pytest

from fedloom.data.tables.table import Numbers, table_of, texts_of

pytest.importorskip("flwr")


@pytest.fixture
def site(tmp_path, monkeypatch):
    from asking import AskedSite

    from fedloom.deploy import site

    monkeypatch.setattr(site, "end_without_parent", lambda: None)
    asked = AskedSite(tmp_path)
    asked.data = tmp_path / "patients-4711.csv"
    write_table(asked, range(60))
    return asked


def write_table(site, numbers, changed=()):
    lines = ["age,ward,label"]
    for number in numbers:
        age = 30 + number + 0.5 * (number in changed)
        lines.append(f"{age},{'east' if number % 3 else 'west'},{'sick' if number % 2 else 'well'}")
    site.data.write_text("\n".join(lines) + "\n")


def refused(answer, *words):
    assert answer.code == "refused", vars(answer)
    for word in words:
        assert word in answer.text


def test_sums_before_and_after_one_more_row_do_not_leave(site):
    """Their difference is this row."""
    first = site.survey().facts
    assert first["table"]["columns"]["age"]["count"] == 60
    assert site.survey().facts == first
    write_table(site, range(61))
    rule = "a table must change by at least 20 rows before sums of its columns leave again"
    refused(site.survey(), rule, "1 rows came, went or changed since they left", "ask the site")
    write_table(site, range(59))
    refused(site.survey(), rule)
    write_table(site, range(60))
    assert site.survey().facts == first
    write_table(site, range(80))
    assert site.survey().facts["samples"] == 80
    write_table(site, range(10, 81))
    refused(site.survey(), "11 rows came")


def add_column(site, name, values):
    lines = site.data.read_text().splitlines()
    rows = [f"{name},{lines[0]}"]
    for row, line in enumerate(lines[1:]):
        rows.append(f"{values.get(row, '')},{line}")
    site.data.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("value", ["4711.5", "a-rare-disease"])
def test_sums_of_a_column_with_few_values_do_not_leave(site, value):
    """The sum of one value is this value."""
    add_column(site, "rare", {17: value})
    answer = site.survey()
    refused(answer, "a column must have at least 20 values here, or none", "--ignore it")
    assert value not in answer.text and "rare" not in answer.text
    assert "the column rare has 1 values" in site.lines()[-1]["reason"]
    columns = site.survey({"ignore": ["rare"]}).facts["table"]["columns"]
    assert set(columns) == {"age", "ward"}


def test_a_column_with_enough_values_or_none_leaves(site):
    add_column(site, "known", dict.fromkeys(range(20), 1.5))
    add_column(site, "empty", {})
    columns = site.survey().facts["table"]["columns"]
    assert (columns["known"]["count"], columns["empty"]["count"]) == (20, 0)


def test_numbers_that_differ_in_nearly_every_row_are_no_classes(site):
    """They could be patients' numbers."""
    answer = site.survey({"label": "age", "task": "classification"})
    refused(answer, "a table's label must not differ in nearly every row")


def test_the_same_survey_is_answered_only_so_often(site):
    site.set(evaluations=2)
    codes = [site.survey().code for _ in range(4)]
    assert codes == [None, None, None, "refused"]
    refused(site.survey(), "at most 2 answers to surveys", "ask the site")
    assert site.survey({"label": "ward"}).code is None  # another one


@pytest.mark.parametrize("reader", ["site_table", "site_source"])
def test_reading_takes_no_longer_than_the_policy_allows(site, monkeypatch, reader):
    """What interrupts a reader is no Exception: --skip-bad would leave a good file out."""
    from fedloom.deploy import site as answering

    def slow(*arguments):
        try:
            time.sleep(30)
        except Exception:
            pytest.fail("the reader takes it for a bad file")

    site.set(seconds=0.2)
    monkeypatch.setattr(answering, reader, slow)
    answer = site.survey
    if reader == "site_source":
        answer = site.ask
    refused(answer(), "work on an order must take at most 0.2 s here")


def test_images_are_resized_to_only_so_many_sizes(tmp_path, monkeypatch):
    """Every size is kept on the site's disk."""
    from asking import AskedSite

    from fedloom.deploy import site

    monkeypatch.setattr(site, "end_without_parent", lambda: None)
    asked = AskedSite(tmp_path, policy={"sizes": 2})
    sizes = [{"resize": side, "fit": "stretch"} for side in (8, 9, 8, 10)]
    codes = [asked.survey(size=size).code for size in sizes]
    assert codes == [None, None, None, "refused"]
    refused(asked.survey(size=sizes[3]), "resized to at most 2 different sizes here")
    refused(asked.ask(terms={"size": sizes[3]}), "resized to at most 2 different sizes here")


def test_rows_that_change_are_counted_in_both_tables(site):
    assert site.survey().code is None
    write_table(site, range(60), changed=range(9))
    refused(site.survey(), "18 rows came, went or changed")
    write_table(site, range(60), changed=range(10))
    assert site.survey().code is None


def test_another_order_of_the_rows_is_no_other_table(site):
    assert site.survey().code is None
    write_table(site, reversed(range(60)))
    assert site.survey().code is None


def test_another_question_is_about_the_same_table(site):
    """Columns that two questions share have the same sums in both answers."""
    assert site.survey().code is None
    write_table(site, range(61))
    refused(site.survey(table={"label": "ward"}), "1 rows came")


def test_surveys_are_counted(site):
    site.set(evaluations=2)
    questions = [{"label": "label"}, {"label": "ward"}, {"label": "age"}]
    assert [site.survey(table=question).code for question in questions[:2]] == [None, None]
    refused(site.survey(table=questions[2]), "at most 2 different surveys")
    assert site.survey(table=questions[0]).code is None


def test_a_damaged_memory_of_surveys_is_not_forgotten(site):
    assert site.survey().code is None
    write_table(site, range(80))
    (marks,) = (site.kit / "state" / "surveys").glob("*.npy")
    marks.write_bytes(b"damaged")
    answer = site.survey()
    assert (answer.code, "surveys" in answer.text) == ("refused", False)
    assert ".npy must be as the site wrote it" in site.lines()[-1]["reason"]
    (site.kit / "state" / "surveys" / "answered.json").write_text("{")
    assert site.survey().code == "refused"
    assert "answered.json must be as the site wrote it" in site.lines()[-1]["reason"]


def test_marks_of_rows():
    from fedloom.deploy.surveys import marks_of, rows_between

    def marks(ages, wards):
        return marks_of(table_of("it", {"age": Numbers(np.array(ages)), "ward": texts_of(wards)}))

    usual = marks([1.0, 2.0, np.nan, 0.0], ["a", "b", None, "a"])
    assert len(set(usual.tolist())) == 4
    again = marks([-0.0, np.nan, 2.0, 1.0], ["a", "NA", "b", "a"])
    assert rows_between(usual, again) == 0
    assert rows_between(usual, marks([1.0, 1.0], ["a", "a"])) == 4
    assert rows_between(marks([1.0, 1.0], ["a", "a"]), marks([1.0], ["a"])) == 1
    draw = np.random.default_rng(0)
    many = Numbers(draw.integers(1000, size=100_000).astype(float))
    twin = Numbers(draw.integers(1000, size=100_000).astype(float))
    pairs = set(zip(many.values.tolist(), twin.values.tolist(), strict=True))
    assert len(np.unique(marks_of(table_of("it", {"a": many, "b": twin})))) == len(pairs)


# Orders for a table


def encoding_of(column, label="label", categories=()):
    """How a server has one column of numbers encoded, and the wards as these categories."""
    number = {"kind": "number", "name": column, "mean": 0.0, "std": 1.0, "tells_missing": False}
    columns = [number]
    if categories:
        wards = {"kind": "category", "name": "ward", "categories": categories}
        columns.append({**wards, "tells_missing": False})
    return {"columns": columns, "label": label, "target": None}


def ask_of_table(site, kind, encoding, **named):
    inputs = 1 + sum(len(column.get("categories", ())) for column in encoding["columns"])
    site.data_kind = "table"
    task = {"shape": (inputs,), "labels": ("sick", "well"), "mean": (0.0,), "std": (1.0,)}
    options = {"width": 1.0}
    return site.ask(kind, terms={"table": encoding}, options=options, **{**task, **named})


def test_an_order_does_not_name_the_values_of_a_column_that_a_survey_keeps(site):
    """A server can name any column as the label, and a description names the classes."""
    write_table(site, range(300))
    add_column(site, "town", {row: f"town-{row % 140}" for row in range(300)})
    refused(site.survey({"label": "town"}), "at most 100 classes here, but this column has more")
    answer = ask_of_table(site, "describe", encoding_of("age", "town"), tensors={})
    refused(answer, "at most 100 classes here, but this column has more")
    assert ask_of_table(site, "describe", encoding_of("age"), tensors={}).code is None


def test_an_order_does_not_name_values_that_the_policy_keeps(site):
    site.set(fields=["shape", "labels", "samples", "loss"])
    for column in ("ward", "label"):
        answer = ask_of_table(site, "describe", encoding_of("age", column), tensors={})
        refused(answer, "'columns' is not among its fields")


def test_an_order_with_another_encoding_is_no_repetition(site):
    """It would train again, and count as the training that it repeats."""
    add_column(site, "weight", {row: 40.0 + row for row in range(60)})
    site.set(rounds=1)
    first = ask_of_table(site, "train", encoding_of("age"))
    other = ask_of_table(site, "train", encoding_of("weight"))
    refused(other, "must encode a table's columns as its first order did", "start a new run")
    again = ask_of_table(site, "train", encoding_of("age"))
    assert first.code is None and again.raw == first.raw


def test_a_table_is_encoded_within_the_memory_of_the_policy(site):
    """The server chooses how many inputs a row has."""
    site.set(memory="200M")
    categories = [f"{number:06d}" for number in range(8_000)]
    answer = ask_of_table(site, "describe", encoding_of("age", categories=categories), tensors={})
    assert answer.code == "memory", vars(answer)
    assert ask_of_table(site, "describe", encoding_of("age"), tensors={}).code is None


def test_terms_count_as_bytes_of_an_order(site):
    site.set(megabytes=0.1)
    categories = [f"{number:06d}" for number in range(20_000)]
    answer = ask_of_table(site, "describe", encoding_of("age", categories=categories), tensors={})
    refused(answer, "an order must have at most 0.1 MB here")

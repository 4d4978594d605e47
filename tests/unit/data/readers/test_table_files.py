"""Tables from files: what is read, and what is refused before anything is trained."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fedloom.data.readers import csv_table
from fedloom.data.readers.csv_table import read_csv_table
from fedloom.data.sources import open_source
from fedloom.data.tables.rules import TableRules
from fedloom.errors import FedloomError

PATIENTS = """age,sex,ward,client,label
30,m,west,a,ill
40,f,,a,well
,m,east,b,ill
50,f,west,b,well
"""


def saved(folder, text, name="patients.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def refusal(name, rules=TableRules()):  # noqa: B008 - frozen
    with pytest.raises(FedloomError) as caught:
        open_source(name, tables=rules)
    assert caught.value.code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def test_numbers_categories_gaps_and_clients(tmp_path):
    source = open_source(saved(tmp_path, PATIENTS))
    assert (source.name, source.kind, source.labels) == ("patients", "table", ("ill", "well"))
    assert source.table.encoding.inputs == [
        "age",
        "age is missing",
        "sex is f",
        "sex is m",
        "ward is east",
        "ward is west",
        "ward is missing",
    ]
    assert source.x.dtype == np.float32
    assert source.x.tolist() == [
        [30, 0, 0, 1, 0, 1, 0],
        [40, 0, 1, 0, 0, 0, 1],
        [40, 1, 0, 1, 1, 0, 0],
        [50, 0, 1, 0, 0, 1, 0],
    ]
    assert source.y.tolist() == [0, 1, 0, 1]
    assert (source.grouping, source.group_names, source.groups.tolist()) == (
        "client",
        ("a", "b"),
        [0, 0, 1, 1],
    )
    assert source.mean[0] == 40 and source.std[0] == pytest.approx(np.std([30, 40, 50]))
    assert set(source.table.sums) == {"a", "b"}


def test_rows_stay_in_the_order_of_the_file(tmp_path):
    source = open_source(saved(tmp_path, "x,client,label\n1,b,n\n2,a,y\n3,b,y\n4,a,n\n"))
    assert source.x[:, 0].tolist() == [1, 2, 3, 4]
    assert source.y.tolist() == [0, 1, 1, 0] and source.groups.tolist() == [1, 0, 1, 0]


def test_other_delimiters_quotes_and_a_label_by_another_name(tmp_path):
    path = saved(tmp_path, '\ufeff"a b";Outcome\n1;"x"\n\n2;y\n')
    source = open_source(path, tables=TableRules(label="outcome"))
    assert source.table.encoding.inputs == ["a b"] and source.labels == ("x", "y")


def test_columns_may_be_ignored_or_be_categories(tmp_path):
    path = saved(tmp_path, "id,zip,label\nx1,9,a\nx2,10,b\nx3,9,a\n")
    source = open_source(path, tables=TableRules(ignore=("id",), categorical=("zip",)))
    assert source.table.encoding.inputs == ["zip is 9", "zip is 10"]


def test_many_rows_are_read_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "CHUNK", 7)
    lines = [f"{number},{'abc'[number % 3]},{number % 2}" for number in range(50)]
    table = read_csv_table(Path(saved(tmp_path, "\n".join(["x,word,label", *lines]))))
    assert table.columns["x"].values.tolist() == list(range(50))
    assert [table.columns["word"].names[code] for code in table.columns["word"].codes] == [
        "abc"[number % 3] for number in range(50)
    ]
    assert table.row_numbers[-1] == 51


def test_a_folder_of_sites(tmp_path):
    saved(tmp_path, "age,ward,label\n30,e,ill\n50,w,well\n", "north.csv")
    saved(tmp_path, "ward,age,label\nw,70,ill\n,80,ill\n", "south.csv")
    source = open_source(str(tmp_path))
    assert (source.grouping, source.group_names, source.groups.tolist()) == (
        "site",
        ("north", "south"),
        [0, 0, 1, 1],
    )
    assert source.x[:, 0].tolist() == [30, 50, 70, 80]
    assert source.mean[0] == np.mean([30, 50, 70, 80])
    assert any("south lacks well" in notice for notice in source.notices)


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "age": [30.0, None, 50.0],
        "count": [1, 2, 3],
        "smokes": [True, False, None],
        "ward": ["west", None, "east"],
        "when": arrow.array([1, 2, 3], arrow.timestamp("s")),
        "label": ["ill", "well", "ill"],
    }
    path = tmp_path / "patients.parquet"
    parquet.write_table(arrow.table(columns), path)
    assert "the column when of" in refusal(str(path)) and "timestamp" in refusal(str(path))
    source = open_source(str(path), tables=TableRules(ignore=("when",)))
    assert source.table.encoding.inputs[:3] == ["age", "age is missing", "count"]
    assert source.x[1, :3].tolist() == [40, 1, 2]
    path.write_bytes(b"PAR1nonsense")
    assert "must be a parquet file" in refusal(str(path))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'fedloom[parquet]'" in refusal(saved(tmp_path, "", "a.parquet"))


BAD = {
    "empty": ("", "must begin with the names of its columns, but it is empty"),
    "header only": ("age,label\n", "must have rows, but it has a header only"),
    "ragged": ("age,label\n1,a\n2\n", "every row of", "row 3 has 1"),
    "twice": ("age,age,label\n1,2,a\n", "age occurs 2 times"),
    "no name": ("age,,label\n1,2,a\n", "column 2 has none"),
    "no label": ("age,labl\n1,a\n2,b\n", "must have the label column label", "try --label labl"),
    "label elsewhere": ("age,Target\n1,a\n2,b\n", "try --label Target"),
    "gaps in labels": ("age,label\n1,a\n2,\n3,?\n", "2 have none (rows 3, 4)"),
    "gaps in clients": (
        "age,client,label\n1,,a\n2,x,b\n",
        "must have a value in the column client",
    ),
    "infinite": ("age,label\n1,a\ninf,b\n", "must be finite", "row 3 has inf in the column age"),
    "too large": ("age,label\n1,a\n1e39,b\n", "row 3 has 1e+39"),
    "one class": ("age,label\n1,a\n2,a\n", "must have 2 to"),
    "nothing left": ("age,label\n1,a\n1,b\n", "none is left; the column age has the same value"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, name):
    text, *parts = BAD[name]
    message = refusal(saved(tmp_path, text))
    for part in parts:
        assert part in message


def test_free_text_is_neither(tmp_path):
    rows = [f"note {number},{number % 2}" for number in range(200)]
    message = refusal(saved(tmp_path, "\n".join(["notes,label", *rows])))
    assert "200 different texts" in message and "--ignore notes" in message


def test_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age,label\n1,\xff\xfe\n")
    assert "must be a CSV in UTF-8" in refusal(str(tmp_path / "a.csv"))


def test_options_of_tables_are_for_tables():
    assert "must be for a table, but --data digits is image" in refusal(
        "digits", TableRules(label="x")
    )


def test_unknown_columns_in_options(tmp_path):
    path = saved(tmp_path, PATIENTS)
    assert "it has no agee; did you mean age" in refusal(path, TableRules(ignore=("agee",)))


def test_a_file_that_is_not_there(tmp_path):
    assert "must be a file or a folder" in refusal("nothing.csv")
    assert "must be a file or a folder" in refusal(str(tmp_path / "nothing.parquet"))

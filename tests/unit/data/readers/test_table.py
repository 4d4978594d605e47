from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedloom.data.readers import speech
from fedloom.data.readers.table import Row, read_rows
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError


@pytest.fixture(autouse=True)
def files(tmp_path) -> None:
    (tmp_path / "pics").mkdir()
    for number in range(4):
        Image.new("L", (5, 4), number).save(tmp_path / f"pics/{number}.png")


def table(folder: Path, *lines: str, name: str = "list.csv") -> str:
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return str(folder / name)


def refusal(name: str) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(name)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_files_and_labels(tmp_path):
    path = table(
        tmp_path,
        "\ufefffile, label",
        "pics/2.png,dog",
        "",
        f"{tmp_path}/pics/1.png , cat",
        "pics/0.png,dog",
    )
    source = open_source(path)
    assert (source.name, source.labels, source.y.tolist()) == ("list", ("cat", "dog"), [1, 0, 1])
    assert source.x[:, 0, 0, 0].tolist() == [2, 1, 0]
    assert source.groups is None


def test_clients(tmp_path):
    path = table(
        tmp_path, "client,label,file", "10,a,pics/0.png", "9,b,pics/1.png", "10,b,pics/2.png"
    )
    source = open_source(path)
    assert (source.grouping, source.group_names) == ("client", ("9", "10"))
    assert source.groups is not None
    assert source.groups.tolist() == [1, 0, 1]
    assert read_rows(Path(path))[1] == Row(tmp_path / "pics/1.png", "b", "9")


def test_recordings_go_to_the_reader_of_speech(tmp_path, monkeypatch):
    (tmp_path / "a.wav").touch()
    (tmp_path / "b.WAV").touch()
    seen = []

    def from_table(rows, skip_bad):
        seen.extend(rows)
        assert skip_bad is False
        return Source("any", np.zeros((2, 1, 40, 51), np.float32), np.array([0, 1]), kind="speech")

    monkeypatch.setattr(speech, "from_table", from_table)
    source = open_source(table(tmp_path, "file,label", "a.wav,yes", "b.WAV,no"))
    assert (source.name, source.kind) == ("list", "speech")
    assert seen == [Row(tmp_path / "a.wav", "yes", None), Row(tmp_path / "b.WAV", "no", None)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["pics/0.png,a", "pics/1.png,b"], "a list of files begins with the header file,label"),
        (
            ["file,class", "pics/0.png,a"],
            "columns file,label or file,label,client, but its header is file,class",
        ),
        (["file,label,weight", "pics/0.png,a,1"], "its header is file,label,weight"),
        (["file,label,label", "pics/0.png,a,1"], "its header is file,label,label"),
        (["file,label"], "it has a header only"),
        (["file,label", "pics/0.png"], "row 2 of"),
        (["file,label", "pics/0.png,a,b"], "row 2 of"),
        (["file,label,client", "pics/0.png,a,x", "pics/1.png,a,"], "row 3 of"),
        (["file,label", "pics/0.png,a", "pics/9.png,a"], "there is no"),
        (["file,label", "pics/0.png,a", "pics/../pics/0.png,b"], "is in rows 2 and 3"),
        (["file,label", "pics,a"], "must name a file"),
        (["file,label", "pics/0.png,a", "list.csv,b"], "or all be .wav, but there is"),
        (["file,label", "pics/0.png,a", "pics/1.png,a"], "2 to 65536 classes, but got 1"),
        (['file,label\n"' + "x" * 200_000], "it cannot be read (field larger than"),
    ],
)
def test_bad_tables(tmp_path, lines, expected):
    path = table(tmp_path, *lines)
    text = refusal(path)
    assert expected in text
    assert path in text


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "list.csv").write_bytes(b"\x80\x04\x95file,label")
    assert "must be a CSV in UTF-8" in refusal(str(tmp_path / "list.csv"))

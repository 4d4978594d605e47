"""`fedloom data check`, on folders that are whole, damaged, foreign and real."""

import gzip
import hashlib
import json
import lzma
import shutil
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from fedloom.cli import main
from fedloom.data.fetching import catalogue
from fedloom.data.fetching.catalogue import CATALOGUE, Checksum, Content, DataSet, Remote
from fedloom.data.fetching.check import content_finding
from fedloom.data.fetching.digests import read_record, write_record
from fedloom.errors import FedloomError

REAL = Path(__file__).parents[5] / "shared/data"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the real data beside the project")
CONTENT = b"content" * 50


def one(name, content):
    checksum = Checksum("md5", hashlib.md5(content).hexdigest(), "its keeper")
    return DataSet(
        name, "one file", name, "here", "free", (), (Content("file", len(content), checksum),)
    )


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A folder with the data set `this`.

    `that` has a file of the same name, as MNIST and Fashion-MNIST have.
    """
    sets = {"this": one("this", CONTENT), "that": one("that", b"another")}
    monkeypatch.setattr(catalogue, "CATALOGUE", MappingProxyType(sets))
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "this").mkdir()
    (tmp_path / "this/file").write_bytes(CONTENT)
    return tmp_path


def checked(capsys, *words):
    code = main(["data", "check", *map(str, words), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["good"] is (code == 0)
    return code, report["sets"]


@pytest.mark.parametrize("words", [["this"], ["{}"], ["{}/this"], ["this", "--data-dir", "{}"]])
def test_by_name_by_the_data_folder_or_by_its_own_folder(place, capsys, words):
    code, (report,) = checked(capsys, *(word.format(place) for word in words))
    assert code == 0 and report["name"] == "this" and report["folder"] == str(place / "this")
    assert report["files"] == [{"file": "file", "state": "ok", "text": "md5 as in its keeper"}]


@pytest.mark.parametrize(("content", "name"), [(CONTENT, "this"), (b"another", "that")])
def test_of_two_sets_with_the_same_file_names_the_contents_decide(place, capsys, content, name):
    (place / "somewhere").mkdir()
    (place / "somewhere/file").write_bytes(content)
    code, (report,) = checked(capsys, place / "somewhere")
    assert code == 0 and report["name"] == name


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_file_is_known_by_its_content(place, capsys, ending, pack):
    (place / "this/file").unlink()
    (place / f"this/file{ending}").write_bytes(pack(CONTENT))
    assert checked(capsys, "this")[0] == 0
    (place / f"this/file{ending}").write_bytes(pack(CONTENT)[:-9])
    code, (report,) = checked(capsys, "this")
    assert code == 1 and "cannot be read to its end" in report["files"][0]["text"]


@pytest.mark.parametrize(
    ("content", "state", "why"),
    [
        (None, "missing", "not there"),
        (CONTENT[:-1], "damaged", "has 349 bytes, must have 350"),
        (CONTENT + b"x", "damaged", "has more than 350 bytes, must have 350"),
        (CONTENT[::-1], "damaged", "its md5 is not"),
    ],
)
def test_what_is_wrong_is_told(place, capsys, content, state, why):
    (place / "this/file").unlink()
    if content is not None:
        (place / "this/file").write_bytes(content)
    code, (report,) = checked(capsys, "this")
    assert code == 1 and report["files"][0]["state"] == state and why in report["files"][0]["text"]
    assert main(["data", "check", "this"]) == 1
    assert "`fedloom data get this --data-dir" in capsys.readouterr().out


def test_recorded_files_are_compared_with_the_record(place, capsys):
    folder = place / "this"
    (folder / "more").write_bytes(b"more")
    write_record(folder, {"file": "0" * 64, "more": hashlib.sha256(b"more").hexdigest()})
    code, (report,) = checked(capsys, "this")
    assert (
        code == 0
        and report["files"][1]["state"] == "recorded"
        and report["files"][1]["file"] == "1 more file"
    )
    (folder / "more").write_bytes(b"less")
    assert checked(capsys, "this")[1][0]["files"][1]["text"] == "has changed since it was recorded"
    (folder / "more").unlink()
    assert checked(capsys, "this")[1][0]["files"][1]["state"] == "missing"


@pytest.mark.parametrize(
    "line", ["nonsense", f"{'0' * 64}  ../out", f"{'0' * 64}  this/../../out", "0  this/a"]
)
def test_a_spoilt_record_is_refused_by_line(place, line):
    (place / "this.sha256").write_text(f"{'0' * 64}  this/a\n{line}\n")
    with pytest.raises(
        FedloomError, match=r"line 2 of .*this\.sha256 must be a SHA-256, two spaces and a file of"
    ):
        read_record(place / "this")


def test_leftovers_are_named_and_harmless(monkeypatch, tmp_path, capsys):
    remote = CATALOGUE["cifar10"].remotes[0].name
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name in (remote, f"{remote}.part"):
        (tmp_path / name).write_bytes(b"")
    _, (report,) = checked(capsys, "cifar10", "--data-dir", tmp_path)
    assert report["leftovers"] == [str(tmp_path / remote), str(tmp_path / f"{remote}.part")]


def test_a_foreign_folder_is_told_what_can_be_checked(tmp_path, capsys):
    assert main(["data", "check", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert (
        "must hold files of mnist, fashion-mnist," in err
        and "your own data is checked when it is read" in err
    )
    assert main(["data", "check", str(tmp_path / "nothing")]) == 2
    assert "must be a folder or a known data set, but there is none" in capsys.readouterr().err


def test_every_set_of_the_catalogue_says_where_its_checksums_come_from():
    sizes = {"md5": 32, "sha1": 40, "sha256": 64}
    for dataset in CATALOGUE.values():
        checksums = [content.checksum for content in dataset.contents]
        for remote in dataset.remotes:
            assert all(url.startswith("http") for url in remote.urls)
            checksums += remote.checksums
        assert checksums
        for checksum in checksums:
            assert checksum.source and len(checksum.digest) == sizes[checksum.algorithm]
        assert dataset.licence and dataset.home and (dataset.contents or dataset.counts)
        assert dataset.archive is None or len(dataset.remotes) == 1


@real
def test_the_published_checksums_are_those_of_real_files(tmp_path, capsys):
    """A part of CIFAR-10 and of CIFAR-100, and all of tinyshakespeare."""
    (tmp_path / "shakespeare").mkdir()
    shutil.copy(REAL / "shakespeare/tinyshakespeare_input.txt", tmp_path / "shakespeare/input.txt")
    assert checked(capsys, tmp_path)[0] == 0
    assert checked(capsys, REAL / "cifar-100-binary")[1][0]["files"][1]["state"] == "ok"
    batch = CATALOGUE["cifar10"].contents[0]
    assert content_finding(batch, REAL / "cifar-10-batches-bin").state == "ok"


def test_a_file_that_no_content_covers_must_be_there_too(place, monkeypatch, capsys):
    sets = {}
    for name, sums in (
        ("bare", ()),
        ("sure", (Checksum("md5", hashlib.md5(b"x").hexdigest(), "its keeper"),)),
    ):
        sets[name] = replace(
            one(name, CONTENT), folder="this", remotes=(Remote("extra", ("http://no",), 1, sums),)
        )
    monkeypatch.setattr(catalogue, "CATALOGUE", MappingProxyType(sets))
    assert checked(capsys, "bare")[1][0]["files"][1]["state"] == "missing"
    (place / "this/extra").write_bytes(b"x")
    assert checked(capsys, "bare")[1][0]["files"][1]["state"] == "unverified"
    assert checked(capsys, "sure")[1][0]["files"][1]["state"] == "ok"
    (place / "this/extra").write_bytes(b"y")
    assert checked(capsys, "sure")[1][0]["files"][1]["state"] == "damaged"

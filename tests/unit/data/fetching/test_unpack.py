"""An archive can only make plain files, in its folder, of about the size that its data set has."""

import gzip
import hashlib
import io
import tarfile

import pytest

from fedloom.data.fetching.catalogue import Archive
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.data.fetching.unpack import unpack
from fedloom.errors import FedloomError

EXPECTED = Archive("", 1000, 4)


def member(name, kind=tarfile.REGTYPE, content=b"", link=""):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content)
    info.linkname = link
    return info, io.BytesIO(content)


def packed(tmp_path, *members):
    path = tmp_path / "set.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, content)
    return path


def refused(tmp_path, *members, expected=EXPECTED):
    into = tmp_path / "into"
    with pytest.raises(FedloomError) as error:
        unpack(packed(tmp_path, *members), into, expected, DownloadScreen())
    assert {path.name for path in tmp_path.iterdir()} <= {"set.tar.gz", "into"}
    return str(error.value)


def test_files_and_folders_are_unpacked_and_hashed(tmp_path):
    path = packed(
        tmp_path,
        member("./", tarfile.DIRTYPE),
        member("./a/b.txt", content=b"one"),
        member("c", content=b"two"),
    )
    digests = unpack(path, tmp_path / "into", EXPECTED, DownloadScreen())
    assert (tmp_path / "into/a/b.txt").read_bytes() == b"one"
    assert (tmp_path / "into/c").read_bytes() == b"two"
    assert digests == {
        "a/b.txt": hashlib.sha256(b"one").hexdigest(),
        "c": hashlib.sha256(b"two").hexdigest(),
    }


def test_names_are_those_within_the_inner_folder(tmp_path):
    path = packed(tmp_path, member("set/a", content=b"one"), member("readme", content=b"two"))
    assert list(unpack(path, tmp_path / "into", Archive("set", 1000, 4), DownloadScreen())) == ["a"]


def test_modes_and_owners_of_the_archive_do_not_come_along(tmp_path):
    info, content = member("a", content=b"one")
    info.mode = 0o6777
    info.uid = 4321
    unpack(packed(tmp_path, (info, content)), tmp_path / "into", EXPECTED, DownloadScreen())
    stat = (tmp_path / "into/a").stat()
    assert stat.st_mode & 0o6111 == 0 and stat.st_uid != 4321


@pytest.mark.parametrize("name", ["../out", "a/../../out", "./.."])
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    assert f"{name!r} leads out of its folder" in refused(tmp_path, member(name, content=b"x"))


def test_an_absolute_name_is_refused(tmp_path):
    assert "'/tmp/out' is an absolute name" in refused(tmp_path, member("/tmp/out", content=b"x"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_is_refused_wherever_it_leads(tmp_path, kind):
    assert "'a' is a link to 'b'" in refused(
        tmp_path, member("b", content=b"x"), member("a", kind, link="b")
    )
    (tmp_path / "into").rename(tmp_path.parent / f"{tmp_path.name}-seen")
    assert "'a' is a link to '/etc/passwd'" in refused(
        tmp_path, member("a", kind, link="/etc/passwd")
    )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_device_is_refused(tmp_path, kind):
    assert "'dev' is a device or another special file" in refused(tmp_path, member("dev", kind))


def test_a_bomb_of_bytes_is_refused_before_it_is_written(tmp_path):
    message = refused(tmp_path, member("small", content=b"x"), member("bomb", content=bytes(3000)))
    assert "with 'bomb' it has 3001 bytes in 2 files, far more than its data set has" in message
    assert not (tmp_path / "into/bomb").exists()


def test_a_bomb_of_files_is_refused(tmp_path):
    message = refused(tmp_path, *(member(f"f{number}") for number in range(10)))
    assert "with 'f8' it has 0 bytes in 9 files" in message


def test_a_bomb_in_a_header_is_refused_without_filling_memory(tmp_path):
    path = tmp_path / "set.tar.gz"
    info = tarfile.TarInfo("name")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 50_000_000
    with gzip.open(path, "wb") as raw:
        raw.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(50_000_000))
    with pytest.raises(
        FedloomError, match=r"set\.tar\.gz must be safe to unpack, but it unpacks to far more bytes"
    ):
        unpack(path, tmp_path / "into", EXPECTED, DownloadScreen())


def test_a_bomb_after_the_end_is_refused(tmp_path):
    path = packed(tmp_path, member("a", content=b"x"))
    with gzip.open(path, "ab") as raw:
        raw.write(bytes(1_000_000))
    with pytest.raises(FedloomError, match="far more bytes"):
        unpack(path, tmp_path / "into", EXPECTED, DownloadScreen())


def test_a_file_that_is_in_it_twice_is_refused(tmp_path):
    assert "'a' occurs twice" in refused(
        tmp_path, member("a", content=b"x"), member("a", content=b"y")
    )


@pytest.mark.parametrize("cut", [0.3, 0.99])
def test_a_cut_archive_is_refused_by_name(tmp_path, cut):
    path = packed(tmp_path, member("a", content=bytes(range(250)) * 4))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(
        FedloomError, match=r"set\.tar\.gz must be a complete \.tar\.gz, but EOFError"
    ):
        unpack(path, tmp_path / "into", EXPECTED, DownloadScreen())


def test_what_is_no_archive_is_refused_by_name(tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(b"<html>")
    with pytest.raises(FedloomError, match=r"must be a complete \.tar\.gz, but BadGzipFile"):
        unpack(tmp_path / "set.tar.gz", tmp_path / "into", EXPECTED, DownloadScreen())

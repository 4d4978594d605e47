"""`fedloom data get` against a server on the loopback interface."""

import fcntl
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from fedloom.cli import main
from fedloom.data.fetching import catalogue, fetch, get
from fedloom.data.fetching.catalogue import Archive, Checksum, Content, Count, DataSet, Remote
from fedloom.data.fetching.check import inspect
from fedloom.data.fetching.fetch import Patience, Unfetched
from fedloom.data.fetching.get import obtain
from fedloom.data.fetching.places import availability, fetched, home
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.data.source import Source
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

HURRIED = Patience(stall=0.3, attempts=2, pause=0.001)
ONE = b"one" * 100
TWO = b"two" * 100


def digest(content, algorithm="sha256"):
    return Checksum(algorithm, hashlib.new(algorithm, content).hexdigest(), "its keeper")


def tar(**files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def plain(loopback):
    """Two files, of which the second is packed and has no published checksum."""
    packed = gzip.compress(TWO, mtime=0)
    loopback.files |= {"/one": ONE, "/two.gz": packed}
    return DataSet(
        "plain",
        "two files",
        "plain",
        "here",
        "free",
        (
            Remote("one", (f"{loopback.root}one",), len(ONE), (digest(ONE),)),
            Remote("two.gz", (f"{loopback.root}two.gz",), len(packed), ()),
        ),
        (Content("one", len(ONE), digest(ONE)),),
    )


@pytest.fixture
def packed(loopback):
    body = tar(inner__a=ONE, inner__b=TWO, readme=b"hello")
    loopback.files["/set.tar.gz"] = body
    return DataSet(
        "packed",
        "an archive",
        "packed-folder",
        "here",
        "free",
        (Remote("set.tar.gz", (f"{loopback.root}set.tar.gz",), len(body), (digest(body, "md5"),)),),
        (Content("a", len(ONE), digest(ONE)),),
        archive=Archive("inner", 700, 4),
    )


@pytest.fixture
def known(monkeypatch, plain, packed, tmp_path):
    """The command line knows these two only, and its home is a folder of the test."""
    sets = {one.name: one for one in (plain, packed)}
    monkeypatch.setattr(catalogue, "CATALOGUE", MappingProxyType(sets))
    monkeypatch.setattr(get, "Patience", lambda: HURRIED)
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def test_plain_files_come_with_a_record_of_their_checksums(plain, tmp_path):
    outcome = obtain(plain, tmp_path, DownloadScreen(), HURRIED)
    assert outcome.fetched and not outcome.report.bad
    assert (tmp_path / "plain/one").read_bytes() == ONE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "plain.sha256"]
    done = subprocess.run(
        ["sha256sum", "-c", "plain.sha256"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain/one: OK\nplain/two.gz: OK\n"


def test_an_archive_is_unpacked_whole_and_then_removed(packed, tmp_path):
    outcome = obtain(packed, tmp_path, DownloadScreen(), HURRIED)
    assert outcome.fetched and [one.state for one in outcome.report.findings] == ["ok", "recorded"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "packed-folder",
        "packed-folder.sha256",
    ]
    assert sorted(path.name for path in (tmp_path / "packed-folder").iterdir()) == ["a", "b"]


@pytest.mark.parametrize("which", ["plain", "packed"])
def test_what_is_there_and_right_is_left_alone(which, loopback, tmp_path, request):
    dataset = request.getfixturevalue(which)
    obtain(dataset, tmp_path, DownloadScreen(), HURRIED)
    loopback.requests.clear()
    outcome = obtain(dataset, tmp_path, DownloadScreen(), HURRIED)
    assert not outcome.fetched and loopback.requests == []


def test_only_what_is_missing_is_fetched(plain, loopback, tmp_path):
    obtain(plain, tmp_path, DownloadScreen(), HURRIED)
    (tmp_path / "plain/one").unlink()
    loopback.requests.clear()
    assert obtain(plain, tmp_path, DownloadScreen(), HURRIED).fetched
    assert len(loopback.requests) == 1 and (tmp_path / "plain/one").read_bytes() == ONE


def test_a_file_that_is_packed_otherwise_is_not_fetched_again(plain, loopback, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/one.gz").write_bytes(gzip.compress(ONE))
    obtain(plain, tmp_path, DownloadScreen(), HURRIED)
    assert len(loopback.requests) == 1


def test_files_brought_by_hand_need_no_server(plain, packed, loopback, tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/one").write_bytes(ONE)
    (tmp_path / "plain/two.gz").write_bytes(loopback.files["/two.gz"])
    (tmp_path / "set.tar.gz").write_bytes(loopback.files["/set.tar.gz"])
    for dataset in (plain, packed):
        assert not obtain(dataset, tmp_path, DownloadScreen(), HURRIED).report.bad
    assert loopback.requests == []
    assert (tmp_path / "set.tar.gz").exists()  # it is the user's


def test_a_wrong_file_brought_by_hand_is_refused_and_stays(packed, tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(b"something else")
    with pytest.raises(
        FedloomError,
        match=r"set\.tar\.gz must have the md5 \w{32} \(its keeper\), but it has \w{32}",
    ):
        obtain(packed, tmp_path, DownloadScreen(), HURRIED)
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz"]


def test_damaged_files_are_named_and_not_overwritten(plain, packed, loopback, tmp_path):
    for dataset, file in ((plain, "plain/one"), (packed, "packed-folder/b")):
        obtain(dataset, tmp_path, DownloadScreen(), HURRIED)
        (tmp_path / file).write_bytes(b"x" * 300)
        loopback.requests.clear()
        with pytest.raises(
            FedloomError,
            match=r"must be complete or absent, but \w+ is damaged: .*; remove .* then `fed",
        ):
            obtain(dataset, tmp_path, DownloadScreen(), HURRIED)
        assert loopback.requests == [] and (tmp_path / file).read_bytes() == b"x" * 300


def test_where_no_checksum_is_published_the_first_download_counts(
    plain, loopback, tmp_path, capsys
):
    class Heard(DownloadScreen):
        said = []

        def say(self, text):
            self.said.append(text)

    obtain(plain, tmp_path, Heard(), HURRIED)
    recorded = hashlib.sha256(loopback.files["/two.gz"]).hexdigest()
    assert f"two.gz: no checksum is published; its sha256 {recorded} is recorded" in " ".join(
        Heard.said
    )
    (tmp_path / "plain/two.gz").unlink()
    loopback.files["/two.gz"] = gzip.compress(TWO[::-1], mtime=0)
    changing = replace(plain, remotes=(plain.remotes[0], replace(plain.remotes[1], exact=False)))
    with pytest.raises(
        FedloomError, match=f"two.gz must have the sha256 {recorded}, as at the first download"
    ):
        obtain(changing, tmp_path, DownloadScreen(), HURRIED)


def test_an_archive_without_checksum_is_compared_with_the_first_one(packed, loopback, tmp_path):
    changing = replace(
        packed, remotes=(replace(packed.remotes[0], checksums=(), exact=False),), contents=()
    )
    obtain(changing, tmp_path, DownloadScreen(), HURRIED)
    for file in (tmp_path / "packed-folder").iterdir():
        file.unlink()
    loopback.files["/set.tar.gz"] = tar(inner__a=ONE, inner__b=ONE)
    with pytest.raises(
        FedloomError,
        match="b must be what it was at the first download, but it has changed or gone",
    ):
        obtain(changing, tmp_path, DownloadScreen(), HURRIED)
    assert list((tmp_path / "packed-folder").iterdir()) == []


def test_a_call_that_was_killed_while_unpacking_leaves_nothing_in_the_way(packed, tmp_path):
    killed = tmp_path / ".packed-folder.unpacking/inner"
    killed.mkdir(parents=True)
    (killed / "a").write_bytes(b"half")
    obtain(packed, tmp_path, DownloadScreen(), HURRIED)
    assert not killed.parent.exists() and (tmp_path / "packed-folder/a").read_bytes() == ONE


def test_an_unsafe_archive_leaves_no_folder(packed, loopback, tmp_path):
    body = tar(inner__a=ONE, **{"../out": b"x"})
    loopback.files["/set.tar.gz"] = body
    unsafe = replace(
        packed, remotes=(replace(packed.remotes[0], size=len(body), checksums=(digest(body),)),)
    )
    with pytest.raises(
        FedloomError, match=r"must be safe to unpack, but '\.\./out' leads out of its folder"
    ):
        obtain(unsafe, tmp_path, DownloadScreen(), HURRIED)
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar.gz"]


def test_an_archive_without_its_folder_is_refused(packed, tmp_path):
    with pytest.raises(
        FedloomError, match=r"set\.tar\.gz must hold the folder outer, but it does not"
    ):
        obtain(
            replace(packed, archive=Archive("outer", 700, 4)), tmp_path, DownloadScreen(), HURRIED
        )
    assert not (tmp_path / "packed-folder").exists()


def test_too_little_room_is_told_before_anything_is_fetched(packed, loopback, tmp_path):
    with pytest.raises(
        FedloomError, match=r"must have room for 1e\+09 GB, but .* are free; make room"
    ):
        obtain(
            replace(packed, archive=Archive("inner", 10**18, 4)),
            tmp_path,
            DownloadScreen(),
            HURRIED,
        )
    assert loopback.requests == []


def test_two_calls_do_not_share_a_folder(plain, loopback, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(
            FedloomError,
            match=r"`fedloom data get` must work alone in .* another one is working there; wait",
        ):
            obtain(plain, tmp_path, DownloadScreen(), HURRIED)
    finally:
        os.close(handle)
    assert loopback.requests == []


def test_a_folder_that_cannot_be_made_is_named(plain, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FedloomError, match=r"file/below must be writable, but not a directory"):
        obtain(plain, tmp_path / "file/below", DownloadScreen(), HURRIED)


def test_a_set_of_which_nothing_came_leaves_no_folder(plain, loopback, tmp_path):
    loopback.tricks.append({"status": 404})
    with pytest.raises(Unfetched):
        obtain(plain, tmp_path, DownloadScreen(), HURRIED)
    assert list(tmp_path.iterdir()) == []


def test_the_command_fetches_home_and_prints_one_object(known, capsys):
    assert main(["data", "get", "packed", "--json"]) == 0
    out, err = capsys.readouterr()
    outcome = json.loads(out)
    assert (outcome["status"], outcome["good"], outcome["folder"]) == (
        "fetched",
        True,
        str(known / "packed-folder"),
    )
    assert err == ""
    assert main(["data", "get", "packed"]) == 0
    out, err = capsys.readouterr()
    assert "packed is in" in out and "as published and as recorded" in out
    assert "--data-dir" not in out and "checking" in err
    assert main(["data", "get", "packed", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_progress_is_plain_lines_where_there_is_no_terminal(known, tmp_path, capsys):
    assert main(["data", "get", "plain", "--data-dir", str(tmp_path / "there")]) == 0
    out, err = capsys.readouterr()
    assert "one: 300 bytes of 300 bytes" in err
    assert f"plain matches the sha256 of its keeper and is now in {tmp_path / 'there/plain'}" in out
    assert f"--data plain --data-dir {tmp_path / 'there'}" in out


@pytest.mark.parametrize("flag", ["--dry-run", "--print"])
def test_a_dry_run_says_what_to_fetch_and_where_to_put_it(known, loopback, capsys, flag):
    assert main(["data", "get", "packed", flag]) == 0
    out = capsys.readouterr().out
    assert f"fetch  {loopback.root}set.tar.gz\n" in out
    assert f"to     {known / 'set.tar.gz'}" in out and "then   fedloom data get packed" in out
    assert main(["data", "get", "plain", flag, "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [file["put"] for file in files] == [
        str(known / "plain/one"),
        str(known / "plain/two.gz"),
    ]
    assert loopback.requests == [] and not known.exists()


def test_offline_it_says_what_to_fetch_and_exits_with_2(known, loopback, capsys, monkeypatch):
    monkeypatch.setattr("fedloom.data.fetching.fetch.Patience", lambda: HURRIED)
    loopback.close()
    assert main(["data", "get", "plain", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"fetch  {loopback.root}one\n" in err and f"to     {known / 'plain/one'}" in err
    assert "Connection refused; try again later" in err


def test_ctrl_c_says_how_to_go_on(known, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "transfer", interrupted)
    assert main(["data", "get", "plain"]) == 130
    assert (
        "what was downloaded is kept; `fedloom data get plain` continues from there"
        in capsys.readouterr().err
    )


def test_unknown_names_are_told(capsys):
    assert main(["data", "get", "minst"]) == 2
    assert "did you mean mnist?" in capsys.readouterr().err
    assert main(["data", "get", "digits"]) == 2
    assert "digits comes with scikit-learn; use --data digits" in capsys.readouterr().err


def test_home_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", "~/here")
    assert home() == Path.home() / "here"
    monkeypatch.delenv("FEDLOOM_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert get.home() == Path("/data/fedloom")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert home() == Path.home() / ".local/share/fedloom"


def test_a_source_opened_by_name_is_looked_for_at_home(tmp_path, monkeypatch):
    """A run finds what `get` fetched.

    --data-dir takes precedence, and an unfinished download is not data.
    """
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "x.part").write_bytes(b"")
    assert fetched("cifar10") is None and "data get cifar10" in availability("cifar10")
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(bytes([1]) + bytes(3072) + bytes([2]) + bytes(3072))
    source = open_source("cifar10")
    assert isinstance(source, Source) and len(source.y) == 12
    assert str(folder) in availability("cifar10")
    with pytest.raises(FedloomError, match="fedloom data get cifar10"):
        open_source("cifar10", tmp_path / "elsewhere")


def test_every_form_of_a_source_is_looked_for_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    (tmp_path / "speech-commands/yes").mkdir(parents=True)
    for name in (
        "speech-commands",
        "speech-commands:logmel",
        "speech-commands-12",
        "speech-commands-12:logmel",
    ):
        assert fetched(name) == tmp_path
    assert fetched("speech-commands-13") is None and availability("digits") == ""
    assert availability("cinic10:x") == "(`fedloom data get cinic10`)"


def test_counts_tell_a_tree_that_is_not_whole(tmp_path):
    tree = DataSet("tree", "a tree", "tree", "here", "free", (), counts=(Count("*/*.png", 2),))
    (tmp_path / "tree/a").mkdir(parents=True)
    (tmp_path / "tree/a/1.png").write_bytes(b"x")
    assert inspect(tree, tmp_path / "tree", DownloadScreen()).bad[0].text == "1 files, must be 2"
    (tmp_path / "tree/a/2.png").write_bytes(b"x")
    assert [one.state for one in inspect(tree, tmp_path / "tree", DownloadScreen()).findings] == [
        "unverified"
    ]


def test_the_group_draws_a_split_too(capsys):
    assert main(["data", "show", "digits", "--clients", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["data", "show", "digits", "--nonsense"]) == 2


def test_fetching_and_checking_need_neither_torch_nor_numpy(tmp_path):
    """So `fedloom data get --dry-run` answers at once."""
    code = (
        "import sys; from fedloom.cli import main; main(sys.argv[1:]); "
        "print({'torch', 'numpy'} & {*sys.modules})"
    )
    words = [
        sys.executable,
        "-c",
        code,
        "data",
        "get",
        "mnist",
        "--dry-run",
        "--data-dir",
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")

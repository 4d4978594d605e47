import errno
import os
import secrets

import pytest
import torch

from fedloom import files
from fedloom.federation.client import store
from fedloom.federation.client.store import ClientStore, LostState, age
from fedloom.federation.protocol.wire import state_chunks
from fedloom.types import State


def state(value):
    return State({"w": torch.tensor([float(value)])}, {"value": value})


@pytest.fixture
def shop(tmp_path):
    return ClientStore(tmp_path / "clients")


def written(shop, *versions):
    for value, version in enumerate(versions):
        shop.write(3, version, state(value), keep=versions)
    return shop


def test_a_version_returns_as_it_was_written(shop):
    shop.write(3, "1.0", state(7))
    read = shop.read(3, "1.0")
    assert (read.tensors["w"].item(), read.meta) == (7.0, {"value": 7})


def test_versions_sort_by_time_not_by_letters(shop):
    assert written(shop, "10.0", "9.2", "9.10", "2.0").versions(3) == ["2.0", "9.2", "9.10", "10.0"]
    assert [age("9.10"), age("10.0")] == [(9, 10), (10, 0)]


def test_a_client_without_a_state_has_no_versions(shop):
    assert shop.versions(3) == []


def test_clients_do_not_see_each_other(shop):
    shop.write(3, "1.0", state(1))
    shop.write(33, "1.0", state(2))
    assert (shop.read(3, "1.0").meta["value"], shop.read(33, "1.0").meta["value"]) == (1, 2)
    shop.write(3, "2.0", state(3))
    assert (shop.versions(3), shop.versions(33)) == (["2.0"], ["1.0"])


def test_writing_again_replaces(shop):
    shop.write(3, "1.0", state(1))
    shop.write(3, "1.0", state(2))
    assert shop.read(3, "1.0").meta == {"value": 2} and shop.versions(3) == ["1.0"]


def test_older_versions_go_unless_kept(shop):
    written(shop, "1.0", "2.0", "3.0", "3.1").write(3, "4.0", state(9), keep=("2.0", "3.1"))
    assert shop.versions(3) == ["2.0", "3.1", "4.0"]


def test_newer_versions_never_go(shop):
    written(shop, "1.0", "3.0", "2.1").write(3, "2.0", state(9))
    assert shop.versions(3) == ["2.0", "2.1", "3.0"]


def test_keeping_what_is_not_there_is_no_error(shop):
    shop.write(3, "2.0", state(1), keep=("1.0",))
    assert shop.versions(3) == ["2.0"]


def test_an_absent_version_is_named(shop):
    with pytest.raises(LostState, match=r"^client 3 no longer has version 4\.1 of its state$"):
        written(shop, "1.0").read(3, "4.1")


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: b"{" * 99]
)
def test_a_damaged_version_is_lost(shop, tmp_path, damage):
    path = tmp_path / "clients" / "3" / "1.0.state"
    written(shop, "1.0")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LostState):
        shop.read(3, "1.0")


def test_any_flipped_bit_of_a_state_is_noticed(shop, tmp_path):
    path = tmp_path / "clients" / "3" / "1.0.state"
    whole = written(shop, "1.0") and path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(
            LostState, match=r"^version 1\.0 of the state of client 3 cannot be read"
        ):
            shop.read(3, "1.0")


def test_a_state_without_a_checksum_is_read_as_before(shop, tmp_path):
    path = tmp_path / "clients" / "3" / "1.0.state"
    written(shop, "1.0")
    path.write_bytes(b"".join(state_chunks(state(1))))
    assert shop.read(3, "1.0").tensors["w"].tolist() == state(1).tensors["w"].tolist()


def test_versions_of_later_rounds_are_cut_off(shop):
    for version in ("1.0", "2.0", "2.1", "3.0", "10.0"):
        shop.write(3, version, state(1), keep=("1.0", "2.0", "2.1", "3.0"))
    shop.write(4, "3.0", state(1))
    shop.cut_after(2)
    assert (shop.versions(3), shop.versions(4)) == (["1.0", "2.0", "2.1"], [])


@pytest.mark.parametrize("version", ["../1.0", "/tmp/1.0", "1", "1.0.0", "", "a.b"])
def test_a_version_is_never_a_path(shop, tmp_path, version):
    for use in (lambda: shop.read(3, version), lambda: shop.write(3, version, state(1))):
        with pytest.raises(ValueError, match=r"invalid literal|unpack"):
            use()
    assert list(tmp_path.rglob("*.state")) == []


def test_leftovers_of_a_killed_process_are_removed(shop, tmp_path):
    folder = tmp_path / "clients" / "3"
    folder.mkdir(parents=True)
    (folder / ".1.0.state.99999.tmp").write_bytes(b"half")
    shop.write(3, "2.0", state(1))
    assert os.listdir(folder) == ["2.0.state"]


def test_a_full_disk_keeps_every_version(shop, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    written(shop, "1.0", "2.0")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        shop.write(3, "3.0", state(9))
    assert shop.versions(3) == ["1.0", "2.0"] and shop.read(3, "2.0").meta == {"value": 1}


def test_leftovers_do_not_keep_a_disk_full(tiny_disk):
    shop = ClientStore(tiny_disk)
    (tiny_disk / "3").mkdir()
    (tiny_disk / "3" / ".1.0.state.99999.tmp").write_bytes(bytes(50_000))
    shop.write(3, "1.0", State({"w": torch.zeros(5_000)}))
    assert shop.versions(3) == ["1.0"]


@pytest.mark.processes
def test_a_death_at_any_line_loses_no_version_that_is_kept(shop, deaths):
    written(shop, "1.0", "2.0")
    folder = shop.folder / "3"
    seen = []
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in deaths(lambda: shop.write(3, "3.0", state(9), keep=("2.0",)), store, files, least=15):
        seen.append(shop.versions(3))
        assert [shop.read(3, version).meta["value"] for version in seen[-1]][-2:] in (
            [0, 1],
            [1, 9],
        )
        (folder / "3.0.state").unlink(missing_ok=True)
        for path, content in before.items():
            path.write_bytes(content)
    assert [versions for i, versions in enumerate(seen) if versions not in seen[:i]] == [
        ["1.0", "2.0"], ["1.0", "2.0", "3.0"], ["2.0", "3.0"],
    ]  # fmt: skip


# The secret


def test_the_secret_is_random_and_stays(tmp_path):
    secret = ClientStore(tmp_path / "a").secret()
    assert len(secret) == 32 and ClientStore(tmp_path / "a").secret() == secret
    assert ClientStore(tmp_path / "b").secret() != secret
    assert os.listdir(tmp_path / "a") == ["secret"]


def test_of_two_processes_that_make_a_secret_one_wins(tmp_path, monkeypatch):
    mine = ClientStore(tmp_path)
    other = []

    def overtaken(size):
        monkeypatch.undo()
        monkeypatch.setattr(os, "getpid", lambda: 1)
        other.append(ClientStore(tmp_path).secret())
        monkeypatch.undo()
        return b"x" * size

    monkeypatch.setattr(secrets, "token_bytes", overtaken)
    assert mine.secret() == other[0] == ClientStore(tmp_path).secret()


@pytest.mark.processes
def test_a_death_at_any_line_leaves_a_whole_secret_or_none(tmp_path, deaths):
    shop = ClientStore(tmp_path / "site")
    for _ in deaths(shop.secret, store, files, least=10):
        path = tmp_path / "site" / "secret"
        assert not path.exists() or len(path.read_bytes()) == 32
        path.unlink(missing_ok=True)

import errno
import json
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedloom import files
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.wire import state_chunks
from fedloom.federation.server import archive as archiving
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Best, Checkpoint, TakenBack
from fedloom.files import write_whole
from fedloom.records.rows import MetricsRow
from fedloom.records.totals import Totals
from fedloom.types import ClientDescription, SampleCounts, State


def at(number, best=None, **changes):
    state = State({"w": torch.tensor([float(number)])}, {"clusters": [[1, 2], [3]]})
    return Checkpoint(round=number, state=state, best=best, **changes)


FULL = at(
    4, Best(2, 0.75), rows_checksum=123, norms={"train parameters": [0.5, 0.25]}, held=(2, 3),
    taken_back=(TakenBack(9, 3),), stage=1, versions={0: "3.0", 12: "4.1"},
    described={0: ClientDescription(SampleCounts(3, 2, 1), {"classes": 2})},
    totals=Totals(4, 1, 2, 3, 4, 5, 6.5, 7.25, 8, 9, 10, 11.5),
    charged=4.5, began=1.5, budget=8.25, last_cost=1.25,
    rows=17,
)  # fmt: skip


COUNTS = {
    0: ClientDescription(SampleCounts(3, 2, 1), {}, (2, -1, 5)),
    7: ClientDescription(SampleCounts(9, 0, 4), {}, (0, 0, 13)),
}


def test_counts_are_tables_beside_the_state(archive):
    """Not JSON: there may be 100,000 clients. The method's state knows nothing of them."""
    saved = at(1, described=COUNTS).to_state()
    assert saved.meta["described"] == {}
    assert saved.tensors["checkpoint/described.histograms"].tolist() == [[2, -1, 5], [0, 0, 13]]
    assert saved.tensors["checkpoint/described.samples"].dtype == torch.int64
    again = Checkpoint.from_state(saved)
    assert again.described == COUNTS and again.state.tensors.keys() == {"w"}


@pytest.mark.parametrize(
    "described",
    [
        {},
        {3: ClientDescription(SampleCounts(3, 2, 1), {})},  # the run did not ask for labels
        {**COUNTS, 1: ClientDescription(SampleCounts(3, 2, 1), {"classes": 2}, (1, 2, 3))},
        {**COUNTS, 1: ClientDescription(SampleCounts(3, 2, 1), {})},
        {**COUNTS, 1: ClientDescription(SampleCounts(3, 2, 1), {}, (10**30, 0, 0))},
        {1: ClientDescription(SampleCounts(3, 2, 1), {}), **COUNTS},
    ],
)
def test_descriptions_come_back(archive, described):
    archive.save(at(1, described=described), row_of(1))
    again = archive.load(1)
    assert again.described == described and again.state.tensors.keys() == {"w"}


def test_descriptions_of_an_earlier_version_are_json(archive):
    saved = at(1).to_state()
    described = {str(client): description.to_json() for client, description in COUNTS.items()}
    assert (
        Checkpoint.from_state(
            State(saved.tensors, {**saved.meta, "described": described})
        ).described
        == COUNTS
    )


def test_a_checkpoint_whose_tensors_are_elsewhere_has_its_own_descriptions(archive, monkeypatch):
    monkeypatch.setattr(archiving, "FEW", 0)
    now = Checkpoint()
    for number in (1, 2):
        now = archive.save(replace(at(number), rows=now.rows), row_of(number))
    now = archive.save(replace(now, round=3, described=COUNTS), row_of(3))
    assert now.elsewhere is not None
    again = Archive(archive.run_folder).load(3)
    assert again.described == COUNTS and again.state.tensors.keys() == {"w"}


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def save_all(archive, numbers, best=None):
    """One checkpoint after the other, as the loop does it."""
    now = Checkpoint()
    for number in numbers:
        now = archive.save(at(number, best, rows=now.rows), row_of(number))
    return now


def row_of(number):
    return MetricsRow("train", number, 0.0)


def rows(archive):
    return [json.loads(line)["round"] for line in archive.metrics.read_text().splitlines()]


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


# What is saved


def test_every_field_returns():
    assert Checkpoint.from_state(FULL.to_state()) == FULL
    assert Checkpoint.from_state(Checkpoint().to_state()) == Checkpoint()


def test_every_field_returns_from_disk(archive):
    archive.metrics.write_bytes(b"x" * 17)
    row = row_of(4).to_line()
    saved = archive.save(FULL, row_of(4))
    assert saved == replace(FULL, rows=17 + len(row), rows_checksum=zlib.crc32(row, 123))
    assert archive.load(4) == saved


def test_spent_is_what_the_stage_was_charged():
    assert FULL.spent == 3.0


def test_a_checkpoint_opens_with_safetensors(archive):
    save_all(archive, [1])
    assert safetensors.torch.load((archive.folder / "000001.state").read_bytes())["w"].tolist() == [
        1.0
    ]


def test_a_new_run_has_no_checkpoint(archive):
    assert archive.resumable() is None and archive.rounds() == []


# What is kept


def test_the_last_two_are_kept(archive):
    save_all(archive, range(1, 6))
    assert archive.rounds() == [4, 5]


@pytest.mark.parametrize(("best", "kept"), [(1, [1, 4, 5]), (4, [4, 5]), (5, [4, 5])])
def test_and_the_best(archive, best, kept):
    save_all(archive, range(1, 6), Best(best, 0.5))
    assert archive.rounds() == kept


def test_a_best_of_the_past_goes(archive):
    now = save_all(archive, range(1, 5), Best(1, 0.5))
    now = archive.save(at(5, Best(4, 0.6), rows=now.rows), row_of(5))
    assert archive.rounds() == [1, 4, 5]  # round 4 knew no better one
    archive.save(at(6, Best(4, 0.6), rows=now.rows), row_of(6))
    assert archive.rounds() == [4, 5, 6]


def test_rounds_sort_by_number_beyond_six_digits(archive):
    save_all(archive, [999_999, 1_000_000, 1_000_001])
    assert archive.rounds() == [1_000_000, 1_000_001] and archive.resumable().round == 1_000_001


# Damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-1],
        lambda raw: bytes(len(raw)),
        lambda raw: raw.replace(b'\\"budget\\"', b'\\"bodget\\"'),
        lambda raw: b"".join(state_chunks(State({}, {"round": 2}))),
    ],
    ids=["empty", "half", "a byte short", "zeros", "a field renamed", "another state"],
)
def test_a_damaged_newest_is_passed_over(archive, damage):
    save_all(archive, [1, 2])
    path = archive.folder / "000002.state"
    path.write_bytes(damage(path.read_bytes()))
    assert archive.resumable().round == 1
    assert archive.rounds() == [1] and (archive.folder / "000002.damaged").exists()
    assert archive.resumable().round == 1  # and again


def test_after_damage_the_run_goes_on(archive):
    save_all(archive, [1, 2])
    (archive.folder / "000002.state").write_bytes(b"")
    now = archive.resumable()
    archive.cut_metrics(now)
    assert rows(archive) == [1]
    archive.save(at(2, rows=now.rows), row_of(2))
    assert (rows(archive), archive.rounds(), archive.resumable().round) == ([1, 2], [1, 2], 2)


def test_any_flipped_bit_is_noticed(archive):
    """Also in the weights, where nothing but a checksum can tell."""
    save_all(archive, [1, 2])
    path = archive.folder / "000002.state"
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        assert archive.resumable().round == 1, f"a bit of byte {place} was flipped"
        path.write_bytes(whole)
    assert archive.resumable().round == 2


def test_a_checkpoint_without_a_checksum_is_read_as_before(archive):
    """Those of an earlier version have neither that nor what came later."""
    now = save_all(archive, [1])
    before = now.to_state()
    later = ("rows_checksum", "norms", "held", "taken_back")
    meta = {name: value for name, value in before.meta.items() if name not in later}
    write_whole(
        archive.folder / "000001.state", state_chunks(State(before.tensors, meta)), durable=True
    )
    assert archive.resumable() == replace(now, rows_checksum=None)
    saved = archive.save(at(2, rows=now.rows), row_of(2))
    assert saved.rows_checksum == zlib.crc32(archive.metrics.read_bytes())
    assert archive.resumable() == saved


def test_nothing_readable_is_nothing(archive):
    save_all(archive, [1, 2])
    for path in archive.folder.iterdir():
        path.write_bytes(b"")
    assert archive.resumable() is None and archive.rounds() == []


def test_leftovers_of_a_killed_process_are_removed(archive, tmp_path):
    save_all(archive, [1])
    (archive.folder / ".000002.state.99.tmp").write_bytes(b"half")
    assert Archive(tmp_path).resumable().round == 1
    assert os.listdir(archive.folder) == ["000001.state"]


# Metrics


def test_rows_beyond_the_checkpoint_are_cut_off(archive):
    now = save_all(archive, [1, 2])
    with archive.metrics.open("a") as file:
        file.write('row_of(3)\n{"rou')
    archive.cut_metrics(now)
    assert rows(archive) == [1, 2]
    archive.cut_metrics(Checkpoint())
    assert archive.metrics.read_bytes() == b""


def test_no_metrics_no_cut(archive):
    archive.cut_metrics(Checkpoint())
    assert not archive.metrics.exists()


def test_a_row_that_json_lacks_is_refused_and_leaves_nothing(archive):
    now = save_all(archive, [1])
    with pytest.raises(ValueError, match="Out of range"):
        archive.save(at(2, rows=now.rows), row_of(float("nan")))
    assert (rows(archive), archive.resumable().round) == ([1], 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:-1],
        lambda rows: rows[:-9] + bytes(9),
        lambda rows: rows.replace(b"2", b"7"),
        lambda rows: b"",
    ],
    ids=["shorter", "zeros", "another figure", "empty"],
)
@pytest.mark.parametrize("checked", [True, False])
def test_where_rows_are_gone_the_newest_checkpoint_that_has_them_is_used(archive, damage, checked):
    save_all(archive, [1, 2])
    if not checked:
        for number in archive.rounds():
            old = replace(archive.load(number), rows_checksum=None)
            write_whole(archive.path(number), state_chunks(old.to_state()), durable=True)
    rows_before = archive.metrics.read_bytes()
    damaged = damage(rows_before)
    archive.metrics.write_bytes(damaged)
    checkpoint = archive.resumable()
    if damaged == b"":
        assert checkpoint is None
    elif b"7" in damaged and not checked:
        assert checkpoint.round == 2  # nobody can know
    else:
        assert checkpoint.round == 1 and archive.rounds() == [1]
        archive.cut_metrics(checkpoint)
        assert rows(archive) == [1]


def test_a_file_is_never_made_longer(archive):
    now = save_all(archive, [1, 2])
    archive.metrics.write_bytes(b"{}\n")
    archive.cut_metrics(now)
    assert archive.metrics.read_bytes() == b"{}\n"
    with pytest.raises(RunStopped, match="somebody changed it"):
        archive.save(at(3, rows=now.rows), row_of(3))
    assert archive.metrics.read_bytes() == b"{}\n"


def test_a_disk_that_cannot_be_read_at_the_moment_is_no_damage(archive, monkeypatch):
    save_all(archive, [1, 2])

    def refusing(path):
        raise PermissionError(errno.EACCES, "not now")

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(PermissionError):
        archive.resumable()
    monkeypatch.undo()
    assert archive.rounds() == [1, 2] and archive.resumable().round == 2


def test_who_only_looks_changes_nothing(archive):
    """A finished run is exported, or another one begins with it."""
    save_all(archive, [1, 2])
    archive.path(2).write_bytes(b"")
    assert archive.final().round == 1
    assert sorted(os.listdir(archive.folder)) == ["000001.state", "000002.state"]


def test_a_checkpoint_whose_best_is_damaged_is_passed_over(archive):
    now = save_all(archive, [1, 2])
    now = archive.save(at(3, Best(1, 0.5), rows=now.rows), row_of(3))
    archive.save(at(4, Best(1, 0.5), rows=now.rows), row_of(4))
    assert archive.rounds() == [1, 3, 4]
    archive.path(1).write_bytes(b"")
    assert archive.resumable() is None and archive.rounds() == []


def test_every_checkpoint_that_is_kept_has_its_best(archive):
    """Also the last one of the stage before: a new stage begins without a best."""
    now = save_all(archive, [1, 2, 3], Best(1, 0.5))
    assert archive.rounds() == [1, 2, 3]
    now = archive.save(at(4, rows=now.rows), row_of(4))
    assert archive.rounds() == [1, 3, 4] and archive.take_back(3).best == Best(1, 0.5)


# Taken back


def test_a_run_is_taken_back_to_its_beginning(archive):
    save_all(archive, [1, 2, 3])
    checkpoint = archive.take_back(0)
    assert (checkpoint.round, checkpoint.taken_back, archive.rounds(), rows(archive)) == (
        0,
        (TakenBack(3, 0),),
        [0],
        [],
    )
    assert archive.resumable().taken_back == (TakenBack(3, 0),)


def test_every_taking_back_is_remembered(archive):
    now = save_all(archive, [1, 2, 3])
    now = archive.take_back(2)
    for number in (3, 4):
        now = archive.save(at(number, rows=now.rows, taken_back=now.taken_back), row_of(number))
    assert archive.take_back(3).taken_back == (TakenBack(3, 2), TakenBack(4, 3))


def test_a_run_is_taken_back_to_a_checkpoint_that_is_kept(archive):
    save_all(archive, [1, 2, 3], Best(1, 0.5))
    checkpoint = archive.take_back(1)
    assert (checkpoint.round, checkpoint.taken_back) == (1, (TakenBack(3, 1),))
    assert (archive.rounds(), rows(archive), archive.resumable()) == ([1], [1], checkpoint)
    after = archive.save(at(2, rows=checkpoint.rows, taken_back=checkpoint.taken_back), row_of(2))
    assert archive.resumable().taken_back == after.taken_back == (TakenBack(3, 1),)


def test_taking_back_to_the_last_round_is_nothing_new(archive):
    now = save_all(archive, [1, 2])
    assert archive.take_back(2) == now and archive.rounds() == [1, 2]


def test_only_rounds_that_are_kept_can_be_come_back_to(archive):
    save_all(archive, [1, 2, 3])
    with pytest.raises(FedloomError, match="got 1, and the run has 2, 3"):
        archive.take_back(1)
    assert archive.rounds() == [2, 3] and rows(archive) == [1, 2, 3]


def test_nobody_is_taken_back_to_a_damaged_checkpoint(archive):
    save_all(archive, [1, 2])
    archive.path(1).write_bytes(b"")
    with pytest.raises(FedloomError, match="round 1 must be intact"):
        archive.take_back(1)
    assert archive.rounds() == [1, 2]


@pytest.mark.processes
def test_a_death_while_taking_back_loses_no_checkpoint_to_come_back_to(tmp_path, deaths):
    archive = Archive(tmp_path)
    save_all(archive, [1, 2, 3], Best(1, 0.5))
    before = {path: path.read_bytes() for path in (*archive.folder.iterdir(), archive.metrics)}
    seen = []
    for _ in deaths(lambda: archive.take_back(1), archiving, files, least=15):
        resumed = Archive(tmp_path).resumable()
        seen.append(resumed.round)
        assert resumed.round > 1 or resumed.taken_back == (TakenBack(3, 1),)
        for path, content in before.items():
            path.write_bytes(content)
    assert set(seen) == {3, 2, 1}


# What is held


def test_checkpoints_that_are_held_stay(archive):
    now = save_all(archive, [1, 2])
    for number in (3, 4, 5):
        now = archive.save(at(number, rows=now.rows, held=(1, 2)), row_of(number))
    assert archive.rounds() == [1, 2, 4, 5]
    archive.save(at(6, rows=now.rows), row_of(6))
    assert archive.rounds() == [5, 6]


def test_at_the_end_nothing_surplus_is_left(archive):
    now = save_all(archive, [1, 2, 3])
    archive.path(3).write_bytes(b"")
    archive.resumable()
    now = archive.save(at(3, rows=archive.load(2).rows), row_of(3))
    write_whole(archive.path(1), state_chunks(at(1).to_state()), durable=False)
    (archive.folder / ".000009.state.99.tmp").write_bytes(b"half")
    archive.tidy(now)
    assert sorted(os.listdir(archive.folder)) == ["000002.state", "000003.state"]


# A small checkpoint is written over the file of one that is no longer needed


def test_a_small_checkpoint_takes_the_file_of_an_earlier_one(archive):
    now = save_all(archive, [1, 2])
    file_of_first = archive.path(1).stat().st_ino
    longer = replace(at(3, rows=now.rows), versions=dict.fromkeys(range(100), "3.0"))
    now = archive.save(longer, row_of(3))
    assert sorted(os.listdir(archive.folder)) == [".spare.tmp", "000002.state", "000003.state"]
    file_of_second = archive.path(2).stat().st_ino
    now = archive.save(at(4, rows=now.rows), row_of(4))
    assert archive.path(4).stat().st_ino == file_of_first and archive.load(4) == now
    archive.save(at(5, rows=now.rows), row_of(5))
    assert archive.path(5).stat().st_ino == file_of_second and archive.resumable().round == 5


def test_what_a_longer_checkpoint_left_behind_is_cut_off(archive):
    now = archive.save(replace(at(1), versions=dict.fromkeys(range(100), "1.0")), row_of(1))
    for number in (2, 3, 4):
        now = archive.save(at(number, rows=now.rows), row_of(number))
    assert (
        archive.path(4).stat().st_size == archive.path(3).stat().st_size and archive.load(4) == now
    )


def test_the_file_of_a_large_one_is_deleted(archive, monkeypatch):
    monkeypatch.setattr(archiving, "FEW", 0)
    save_all(archive, [1, 2, 3])
    assert sorted(os.listdir(archive.folder)) == ["000002.state", "000003.state"]


def test_a_file_that_cannot_be_renamed_is_deleted(archive, monkeypatch):
    now = save_all(archive, [1, 2, 3])
    monkeypatch.setattr(archiving.os, "replace", full)
    archive.prune(replace(now, round=9))
    archive._drop(archive.path(2))
    assert archive.rounds() == [3]


def test_a_checkpoint_under_the_name_of_another_is_not_used(archive):
    """After a power cut a file that was written over may have its old name."""
    save_all(archive, [1, 2])
    archive.path(1).write_bytes(archive.path(2).read_bytes())
    with pytest.raises(WireError, match="it is the checkpoint of round 2"):
        archive.load(1)


# A full disk, and death


@pytest.mark.parametrize("where", ["the row", "the checkpoint", "its name"])
def test_a_failed_save_leaves_the_older_ones_and_can_be_repeated(archive, monkeypatch, where):
    now = save_all(archive, [1, 2])
    target = {
        "the row": (os, "fsync"),
        "the checkpoint": (archiving, "write_whole"),
        "its name": (os, "replace"),
    }
    monkeypatch.setattr(*target[where], full)
    with pytest.raises(OSError, match="No space"):
        archive.save(at(3, rows=now.rows), row_of(3))
    monkeypatch.undo()
    assert (archive.rounds(), archive.resumable()) == ([1, 2], now)
    assert sorted(os.listdir(archive.folder)) == ["000001.state", "000002.state"]
    saved = archive.save(at(3, rows=now.rows), row_of(3))
    assert (rows(archive), archive.rounds(), archive.resumable()) == ([1, 2, 3], [2, 3], saved)
    assert saved.rows == archive.metrics.stat().st_size


def test_a_really_full_disk(tiny_disk):
    archive = Archive(tiny_disk)
    now = save_all(archive, [1, 2])
    large = replace(at(3, rows=now.rows), state=State({"w": torch.zeros(10_000)}))
    (tiny_disk / "ballast").write_bytes(bytes(20_000))
    with pytest.raises(OSError, match="No space"):
        archive.save(large, row_of(3))
    assert archive.resumable() == now
    (tiny_disk / "ballast").unlink()
    archive.save(large, row_of(3))
    assert (rows(archive), archive.resumable().state.tensors["w"].shape) == ([1, 2, 3], (10_000,))


@pytest.mark.processes
@pytest.mark.parametrize("latest", [2, 3], ids=["a new file", "the file of an earlier one"])
def test_a_death_at_any_line_leaves_one_round_or_the_next(tmp_path, deaths, latest):
    archive = Archive(tmp_path)
    earlier = list(range(1, latest + 1))
    now = save_all(archive, earlier)
    before = {path: path.read_bytes() for path in (*archive.folder.iterdir(), archive.metrics)}
    seen = []
    after = at(latest + 1, rows=now.rows)
    for _ in deaths(lambda: archive.save(after, row_of(latest + 1)), archiving, files, least=25):
        again = Archive(tmp_path)
        resumed = again.resumable()
        again.cut_metrics(resumed)
        seen.append(resumed.round)
        assert rows(again) == [*earlier, latest + 1][: resumed.round]
        assert resumed.state.tensors["w"].item() == resumed.round
        archive.path(latest + 1).unlink(missing_ok=True)
        for path, content in before.items():
            path.write_bytes(content)
    assert seen == sorted(seen) and set(seen) == {latest, latest + 1}


def test_a_checkpoint_is_written_durably(archive, monkeypatch):
    durable = []
    monkeypatch.setattr(
        archiving,
        "write_whole",
        lambda *a, **k: (durable.append(k["durable"]), write_whole(*a, **k))[1],
    )
    save_all(archive, [1])
    assert durable == [True]


# Tensors that did not change

MEGABYTE = 1 << 20


def supernet(value):
    return {"net.w": torch.full((MEGABYTE,), float(value)), "net.n": torch.tensor(value)}


def searching(archive, now, number, tensors, **changes):
    """A round that leaves these tensors, and a list of scores of its own."""
    meta = {"scores": list(range(number))}
    return archive.save(
        Checkpoint(round=number, state=State(tensors, meta), rows=now.rows, **changes),
        row_of(number),
    )


def trained_and_searched(archive, until=5):
    """Two rounds that train four megabytes, then rounds that do not.

    Returns the last tensors and the last checkpoint.
    """
    now = Checkpoint()
    for number in (1, 2):
        tensors = supernet(number)
        now = searching(archive, now, number, tensors)
    for number in range(3, until + 1):
        now = searching(archive, now, number, tensors)
    return tensors, now


def size(archive, number):
    return archive.path(number).stat().st_size


def same(found, number, value):
    assert (found.round, found.state.meta) == (number, {"scores": list(range(number))})
    assert found.state.tensors.keys() == supernet(value).keys()
    assert all(
        torch.equal(found.state.tensors[name], tensor) for name, tensor in supernet(value).items()
    )


def test_tensors_that_did_not_change_are_not_written_again(archive):
    _, now = trained_and_searched(archive)
    assert archive.rounds() == [1, 2, 4, 5]
    assert [size(archive, number) > 4 * MEGABYTE for number in (1, 2, 4, 5)] == [
        True,
        True,
        False,
        False,
    ]
    assert max(size(archive, 4), size(archive, 5)) < 4096
    for number in (4, 5):
        same(archive.load(number), number, 2)
        assert archive.load(number).elsewhere.round == 2
    now = searching(archive, now, 6, supernet(3))
    assert archive.rounds() == [1, 2, 5, 6] and size(archive, 6) > 4 * MEGABYTE
    searching(archive, now, 7, supernet(4))
    assert archive.rounds() == [6, 7]


def test_nor_are_they_after_a_resume(archive, tmp_path):
    trained_and_searched(archive)
    again = Archive(tmp_path)
    now = again.resumable()
    for number in (6, 7):
        now = searching(again, now, number, now.state.tensors)
        assert size(again, number) < 4096
    assert again.rounds() == [1, 2, 6, 7]
    same(Archive(tmp_path).load(7), 7, 2)


def test_a_part_of_the_tensors_is_enough(archive):
    tensors, now = trained_and_searched(archive, until=3)
    searching(archive, now, 4, {"net.w": tensors["net.w"]})
    assert size(archive, 4) < 4096 and list(archive.load(4).state.tensors) == ["net.w"]


@pytest.mark.parametrize("change", ["in place", "another name", "one more", "an equal copy"])
def test_tensors_that_are_others_are_written(archive, change):
    tensors, now = trained_and_searched(archive, until=3)
    if change == "in place":
        tensors["net.w"][7] += 1
    elif change == "another name":
        tensors = {"net.v": tensors["net.w"], "net.n": tensors["net.n"]}
    elif change == "one more":
        tensors = {**tensors, "alpha": torch.zeros(3)}
    else:
        tensors = supernet(2)
    searching(archive, now, 4, tensors)
    assert size(archive, 4) > 4 * MEGABYTE
    loaded = archive.load(4).state.tensors
    assert loaded.keys() == tensors.keys() and all(
        torch.equal(loaded[name], tensors[name]) for name in tensors
    )


def test_few_tensors_are_written_with_every_checkpoint(archive):
    tensors = {"w": torch.zeros(archiving.FEW // 4)}
    now = Checkpoint()
    for number in (1, 2, 3, 4):
        now = searching(archive, now, number, tensors)
        assert archive.load(number).elsewhere is None
    assert archive.rounds() == [3, 4]
    many = {**tensors, "b": torch.zeros(1)}
    for number in (5, 6, 7):
        now = searching(archive, now, number, many)
    assert archive.load(7).elsewhere is not None


def test_there_are_always_two_copies_of_the_tensors(archive):
    """The first checkpoint alone is none to rely on."""
    tensors = supernet(1)
    now = Checkpoint()
    for number in (1, 2, 3, 4):
        now = searching(archive, now, number, tensors)
    assert [archive.load(number).elsewhere is None for number in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert archive.load(4).elsewhere.round == 2


@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_where_the_tensors_are_damaged_the_run_goes_back_before_them(archive, tmp_path, damage):
    trained_and_searched(archive)
    path = archive.path(2)
    if damage == "gone":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
    checkpoint = Archive(tmp_path).resumable()
    same(checkpoint, 1, 1)
    assert Archive(tmp_path).rounds() == [1]


def test_any_flipped_bit_of_a_checkpoint_without_tensors_is_noticed(archive):
    trained_and_searched(archive)
    whole = archive.path(5).read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        archive.path(5).write_bytes(damaged)
        trouble = archive._trouble(5)
        assert trouble is not None, f"a bit of byte {place} was flipped"
    archive.path(5).write_bytes(whole)
    same(archive.resumable(), 5, 2)


def test_a_run_is_taken_back_to_a_checkpoint_without_tensors(archive, tmp_path):
    trained_and_searched(archive)
    archive.take_back(4)
    again = Archive(tmp_path)
    now = again.resumable()
    same(now, 4, 2)
    assert now.taken_back == (TakenBack(5, 4),) and again.rounds() == [1, 2, 4]
    searching(again, now, 5, now.state.tensors)
    same(Archive(tmp_path).load(5), 5, 2)


def test_in_the_end_the_reported_checkpoint_has_its_tensors(archive):
    _, now = trained_and_searched(archive)
    archive.tidy(now)
    assert safetensors.torch.load(archive.path(5).read_bytes())["net.n"].item() == 2
    same(archive.load(5), 5, 2)
    same(archive.load(4), 4, 2)
    assert archive.rounds() == [1, 2, 4, 5]


def test_the_best_round_is_the_reported_one(archive):
    tensors, now = trained_and_searched(archive, until=4)
    best = Best(4, 0.5)
    for number in (5, 6):
        now = searching(archive, now, number, tensors, best=best)
    archive.tidy(now)
    assert archive.rounds() == [1, 2, 4, 5, 6]
    assert [size(archive, number) > 4 * MEGABYTE for number in (4, 5, 6)] == [True, False, False]
    same(archive.final(), 4, 2)


@pytest.mark.processes
def test_a_death_at_any_line_loses_no_tensors(tmp_path, deaths, monkeypatch):
    monkeypatch.setattr(archiving, "FEW", 0)
    archive = Archive(tmp_path)
    now = Checkpoint()
    tensors = at(2).state.tensors
    for number in (1, 2, 3, 4):
        now = searching(archive, now, number, tensors)
    assert archive.load(4).elsewhere.round == 2
    before = {path: path.read_bytes() for path in (*archive.folder.iterdir(), archive.metrics)}
    seen = set()
    for _ in deaths(lambda: searching(archive, now, 5, tensors), archiving, files, least=15):
        resumed = Archive(tmp_path).resumable()
        assert resumed.state.tensors["w"].item() == 2.0 and resumed.elsewhere.round == 2
        seen.add(resumed.round)
        for path in archive.folder.iterdir():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
    assert seen == {4, 5}

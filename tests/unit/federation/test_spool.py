import json
import mmap
from dataclasses import replace

import pytest
import torch

from fedloom import files
from fedloom.federation.protocol.deaths import Death
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.parcels import MOST_HELD, Slot
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server import spool as spool_module
from fedloom.federation.server.spool import Place, Receipt, Spool, Spooled
from fedloom.files import checksum, map_file, write_whole
from fedloom.rng import rng
from fedloom.types import Reply


def receipt(client, number=1, hop=0, reason=None, **more):
    return Receipt(
        number, hop, client, reason, client % 2 == 0, 10 * client, client, None, 0.5, **more
    )


def with_reply(client):
    """Accepted, with a small reply in its line."""
    reply = Reply(client, {"w": torch.ones(3)}, 2.0)
    return replace(receipt(client), held=b"".join(reply_chunks(reply)))


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


def recorded(spool, *receipts):
    for each in receipts:
        spool.record(each)
    return spool


def replied(spool, *clients):
    """Replies on disk; their weights tell them apart."""
    for client in clients:
        reply = Reply(client, {"w": torch.full((3,), float(client))}, float(client))
        write_whole(spool.path(1, 0, client), reply_chunks(reply), durable=False)
    return Spooled(tuple(Place(client, spool.path(1, 0, client)) for client in sorted(clients)))


# The journal


def test_deaths_outlive_an_order_that_is_sent_again(spool):
    """And are kept once, however often the round is given up."""
    done = replace(receipt(1), deaths=(Death(-6),))
    dead = replace(receipt(2, reason="died"), deaths=(Death(-11), Death(7)))
    recorded(spool, done, dead, receipt(3, reason="late"))
    assert spool.receipts(1, 0)[2].deaths == (Death(-11), Death(7))
    spool.forget(1, 0, [2, 3])
    spool.forget(1, 0, [2, 3])
    assert spool.receipts(1, 0) == {1: done}
    assert [(row.client, row.deaths) for row in spool.forgotten(1)] == [(2, dead.deaths)]
    assert spool.forgotten(2) == []


def test_a_journal_from_before_deaths_were_noted(spool):
    line = json.loads(receipt(1).to_line().rpartition(b" ")[0])
    del line["deaths"]
    assert Receipt.from_line(json.dumps(line).encode()) == receipt(1)


def test_without_a_journal_nobody_has_answered(spool):
    assert spool.receipts(1, 0) == {}
    spool.repair(1)
    spool.clear()
    assert not spool.journal.exists()


def test_receipts_return_by_client_round_and_hop(spool):
    rows = [
        receipt(3),
        receipt(1),
        receipt(1, hop=1),
        receipt(1, number=2),
        receipt(2, hop=-1),
        receipt(4, reason="no"),
    ]
    recorded(spool, *rows)
    assert spool.receipts(1, 0) == {3: rows[0], 1: rows[1], 4: rows[5]}
    assert (spool.receipts(1, 1), spool.receipts(2, 0)) == ({1: rows[2]}, {1: rows[3]})
    assert (spool.receipts(1, -1), spool.receipts(1, -2)) == ({2: rows[4]}, {})


def test_any_reason_keeps_its_line(spool):
    reason = 'raised: "ValueError"\r\n\x85\u2028 é'
    assert recorded(spool, receipt(1, reason=reason), receipt(2)).receipts(1, 0)[1].reason == reason
    spool.forget(1, 0, [1])
    assert set(spool.receipts(1, 0)) == {2}


def test_a_line_torn_anywhere_never_happened(spool):
    whole = recorded(spool, with_reply(1), with_reply(2)).journal.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        spool.journal.write_bytes(whole[:end])
        assert set(spool.receipts(1, 0)) == {1}
        spool.repair(1)
        assert spool.journal.read_bytes() == whole[:first]


def test_what_follows_a_mended_line_can_be_read(spool):
    recorded(spool, with_reply(1))
    spool.journal.write_bytes(spool.journal.read_bytes() + b'{"round": 1, "ho')
    spool.repair(1)
    recorded(spool, with_reply(2))
    assert spool.receipts(1, 0) == {1: with_reply(1), 2: with_reply(2)}


def test_a_first_line_torn_leaves_nothing(spool):
    spool.journal.write_bytes(b'{"round"')
    spool.repair(1)
    assert spool.journal.read_bytes() == b"" and spool.receipts(1, 0) == {}


def test_mending_a_whole_journal_changes_nothing(spool):
    before = recorded(spool, with_reply(1), with_reply(2)).journal.read_bytes()
    spool.repair(1)
    assert spool.journal.read_bytes() == before


def test_the_refused_are_forgotten_and_the_accepted_stay(spool):
    recorded(spool, receipt(1), receipt(2, reason="late"), receipt(3, hop=-1), receipt(4, number=0))
    spool.forget(1, 0, [2])
    assert spool.receipts(1, 0) == {1: receipt(1)}
    assert spool.receipts(1, -1) == {3: receipt(3, hop=-1)}
    assert spool.receipts(0, 0) == {}  # of a round that is over


def test_refusals_of_earlier_hops_stay_when_a_later_one_fails(spool):
    recorded(
        spool,
        receipt(1, reason="late"),
        receipt(2),
        receipt(1, hop=1),
        receipt(2, hop=1, reason="late"),
    )
    spool.forget(1, 1, [2])
    assert (set(spool.receipts(1, 0)), set(spool.receipts(1, 1))) == ({1, 2}, {1})


def test_who_does_not_fit_the_run_is_described_again_only_before_the_first_hop_has_succeeded(spool):
    """Its orders would come in mid-round, but the second hop starts from a mean without it."""
    described = receipt(3, hop=-1, reason="other labels")
    recorded(spool, described, receipt(1), receipt(1, hop=1, reason="late"))
    spool.forget(1, 1, [1])
    assert spool.receipts(1, -1) == {3: described}
    assert (set(spool.receipts(1, 0)), set(spool.receipts(1, 1))) == ({1}, set())
    spool.forget(1, 0, [])
    assert spool.receipts(1, -1) == {}


def test_an_exchange_after_which_a_client_was_asked_again_is_no_answer(spool):
    attempt = receipt(1, reason="lost", asked_again=True)
    recorded(spool, attempt, receipt(2))
    assert (set(spool.receipts(1, 0)), spool.settled(1, 0).failed_attempts) == ({2}, [attempt])
    recorded(spool, receipt(1))
    spool.forget(1, 0, [])
    assert (spool.receipts(1, 0)[1], spool.settled(1, 0).failed_attempts) == (receipt(1), [attempt])
    assert spool.settled(1, 1).failed_attempts == spool.settled(2, 0).failed_attempts == []


def test_nobody_can_be_forgotten_before_anybody_was_asked(spool):
    spool.forget(1, 0, [])
    assert spool.receipts(1, 0) == {}


@pytest.mark.processes
def test_a_death_while_forgetting_loses_no_accepted_reply(spool, deaths):
    before = recorded(spool, receipt(1), receipt(2, reason="late"), receipt(3)).journal.read_bytes()
    for _ in deaths(lambda: spool.forget(1, 0, [2]), spool_module, files, least=10):
        assert {1, 3} <= set(spool.receipts(1, 0))
        spool.journal.write_bytes(before)
    assert set(spool.receipts(1, 0)) == {1, 3}


# The replies


def test_every_reply_has_a_path_of_its_own(spool):
    places = [(1, 0, 1), (1, 1, 0), (11, 0, 1), (1, 0, 11), (1, -1, 1), (1, -2, 1)]
    assert len({spool.path(*place) for place in places}) == len(places)


def test_clear_leaves_nothing_of_the_round(spool):
    replied(spool, 1, 2)
    recorded(spool, receipt(1)).clear()
    assert list(spool.folder.iterdir()) == [spool.journal] and spool.journal.read_bytes() == b""
    assert spool.receipts(1, 0) == {} and Spool(spool.folder).receipts(1, 0) == {}


def test_a_journal_that_was_cleared_goes_on_with_the_next_round(spool):
    recorded(spool, receipt(1), receipt(2)).clear()
    recorded(spool, receipt(1, number=2))
    assert spool.receipts(2, 0) == {1: receipt(1, number=2)}
    assert spool.journal.read_bytes() == receipt(1, number=2).to_line()


def test_after_the_last_round_nothing_is_left(spool):
    recorded(spool, receipt(1)).remove()
    assert not spool.folder.exists()


def test_a_new_spool_removes_what_a_kill_left_half_written_and_nothing_else(spool):
    replied(spool, 1)
    recorded(spool, receipt(1))
    (spool.folder / ".1.0.2.reply.99.tmp").write_bytes(b"half")
    Spool(spool.folder)
    assert sorted(path.name for path in spool.folder.iterdir()) == ["1.0.1.reply", "journal.jsonl"]


def test_spooled_replies_come_in_client_order_and_again(spool):
    spooled = replied(spool, 10, 2, 1)
    assert (
        [reply.client for reply in spooled]
        == [1, 2, 10]
        == [int(reply.weight) for reply in spooled]
    )
    assert next(iter(spooled)).tensors["w"].tolist() == [1.0, 1.0, 1.0]


def test_spooled_knows_its_clients(spool):
    spooled = replied(spool, 1, 2, 10)
    assert (
        len(spooled) == 3 and Reply(2) in spooled and Reply(3) not in spooled and 2 not in spooled
    )
    assert [reply.client for reply in spooled.of({10, 1, 7})] == [1, 10]
    assert not spooled.of({5})


def test_one_file_is_open_at_a_time(spool, monkeypatch):
    live = set()
    most = 0

    class Counted(mmap.mmap):
        def __new__(cls, *args, **kwargs):
            nonlocal most
            instance = super().__new__(cls, *args, **kwargs)
            live.add(id(instance))
            most = max(most, len(live))
            return instance

        def __del__(self):
            live.discard(id(self))

    monkeypatch.setattr(mmap, "mmap", Counted)
    monkeypatch.setattr(files, "SMALL", 0)  # so that even these are mapped
    total = 0.0
    for reply in replied(spool, *range(1, 9)):
        total += reply.tensors["w"].sum().item()
        del reply
    assert (total, most) == (108.0, 1)


def test_a_file_can_change_while_its_old_reply_is_in_use(spool):
    spooled = replied(spool, 1)
    (reply,) = spooled
    write_whole(spool.path(1, 0, 1), reply_chunks(Reply(1, {"w": torch.zeros(3)})), durable=False)
    assert reply.tensors["w"].tolist() == [1.0, 1.0, 1.0]


def test_a_view_of_a_reply_never_writes_to_its_file(spool):
    before = replied(spool, 1).places[0].content.read_bytes()
    (reply,) = replied(spool, 1)
    reply.tensors["w"].zero_()
    assert spool.path(1, 0, 1).read_bytes() == before


def test_an_empty_file_is_no_reply(spool):
    path = spool.path(1, 0, 1)
    path.write_bytes(b"")
    assert map_file(path) == b""
    with pytest.raises(WireError):
        list(Spooled((Place(1, path),)))


# Small replies


def test_a_small_reply_makes_no_file_and_a_large_one_does(spool):
    for size, held in ((0, True), (MOST_HELD, True), (MOST_HELD + 1, False)):
        slot = spool.slot(1, 0, size)
        raw = bytes(size % 251 for _ in range(size))
        slot.put([raw[:100], memoryview(raw)[100:]])
        assert (slot.held is not None, slot.path.exists()) == (held, not held)
        assert (slot.size(), slot.read_bytes()) == (size, raw)


def test_what_is_put_last_counts(spool):
    slot = spool.slot(1, 0, 0)
    large = b"x" * (MOST_HELD + 1)
    slot.put([b"small"])
    slot.put([large])
    assert slot.read_bytes() == large
    slot.put([b"small"])
    assert slot.read_bytes() == b"small"


def test_a_held_reply_returns_from_the_journal(spool):
    raw = b"".join(reply_chunks(Reply(1, {"w": torch.ones(3)}, 2.0)))
    row = Receipt(1, 0, 1, None, True, 10, len(raw), None, 0.5, {"loss": 0.25}, raw)
    returned = recorded(spool, row).receipts(1, 0)[1]
    assert returned == row
    (reply,) = Spooled((Place(1, spool.content(returned)),))
    assert reply.tensors["w"].tolist() == [1.0, 1.0, 1.0] and reply.weight == 2.0
    assert spool.content(receipt(2)) == spool.path(1, 0, 2)


def test_writing_to_a_held_reply_changes_nothing_for_the_next_reader():
    raw = b"".join(reply_chunks(Reply(1, {"w": torch.ones(3)})))
    spooled = Spooled((Place(1, raw),))
    next(iter(spooled)).tensors["w"].zero_()
    assert next(iter(spooled)).tensors["w"].tolist() == [1.0, 1.0, 1.0]


def test_a_record_that_does_not_fit_on_the_disk_can_be_mended(spool, monkeypatch):
    """The line is half written; the journal is closed, so that nothing of it appears later."""
    recorded(spool, with_reply(1))

    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(data[: len(data) // 2])

        def flush(self):
            self.file.flush()
            raise OSError("no space")

        def close(self):
            self.file.close()

    spool._file = Full(spool._file)
    with pytest.raises(OSError, match="no space"):
        spool.record(with_reply(2))
    spool.repair(1)
    recorded(spool, with_reply(3))
    assert set(spool.receipts(1, 0)) == {1, 3}


def test_a_slot_has_its_files_name(tmp_path):
    slot = Slot(str(tmp_path), "1.0.2.reply")
    assert slot.path == tmp_path / "1.0.2.reply" and slot.place == str(slot.path)


def test_a_journal_keeps_every_number_as_it_was(spool):
    """Even numbers that JSON encoders write differently: very large, very small, negative zero."""
    receipt = replace(
        with_reply(1),
        macs=1 << 70,
        seconds=1e-07,
        plain={"loss": 1e22, "zero": -0.0},
        norms={"all": 5e-324},
    )
    recorded(spool, receipt)
    read = spool.receipts(1, 0)[1]
    assert read == receipt and str(read.plain["zero"]) == "-0.0"


def nested(depth):
    facts = "inside"
    for _ in range(depth):
        facts = {"deeper": facts}
    return facts


@pytest.mark.parametrize("facts", ["\ud800", nested(300)], ids=["half a sign", "deep"])
def test_odd_facts_of_a_simulation_stand_in_the_journal_too(spool, facts):
    recorded(spool, replace(with_reply(1), facts=facts))
    assert spool.receipts(1, 0)[1].facts == facts


def test_a_journal_of_an_earlier_version_is_read(spool):
    row = {
        "round": 1,
        "hop": 0,
        "client": 2,
        "reason": None,
        "wrote": True,
        "down": 1,
        "up": 2,
        "macs": 3,
    }
    spool.journal.write_text(json.dumps({**row, "seconds": 0.5, "plain": {}}) + "\n")
    assert spool.receipts(1, 0)[2] == Receipt(1, 0, 2, None, True, 1, 2, 3, 0.5)


# Damage


def settled(spool, *clients, hop=0):
    """Accepted replies in files, as the journal notes them."""
    replied(spool, *clients)
    for client in clients:
        path = spool.path(1, 0, client)
        arrived = replace(
            receipt(client, hop=hop), up=path.stat().st_size, checksum=checksum(path.read_bytes())
        )
        spool.record(arrived)
    return spool


@pytest.mark.parametrize(
    "line",
    [
        b"",
        bytes(300),
        b"{",
        b"[]",
        b"null",
        b"5",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"round": 1}',
        b'{"round": "x"}',
    ],
    ids=[
        "empty",
        "zeros",
        "torn",
        "a list",
        "null",
        "a number",
        "no text",
        "deep",
        "too little",
        "no number",
    ],
)
def test_lines_after_an_unreadable_one_are_dropped_with_it(spool, line):
    whole = recorded(
        spool, receipt(1, reason="late"), receipt(2, reason="late")
    ).journal.read_bytes()
    first, second = whole.splitlines(keepends=True)
    spool.journal.write_bytes(first + line + b"\n" + second)
    assert set(spool.receipts(1, 0)) == {1}
    assert "(journal lines: 2, replies: 0)" in spool.repair(1)
    assert spool.journal.read_bytes() == first
    assert spool.repair(1) is None


def test_any_flipped_bit_of_the_journal_is_noticed(spool):
    reply = b"".join(reply_chunks(Reply(1, {"w": torch.ones(3)}, 2.0)))
    recorded(spool, replace(receipt(1), held=reply), receipt(2, reason="late"))
    whole = spool.journal.read_bytes()
    end = whole.index(b"\n")
    for place in range(end):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        spool.journal.write_bytes(damaged)
        assert 1 not in spool.receipts(1, 0), f"a bit of byte {place} was flipped"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01"),
        lambda path: path.write_bytes(path.read_bytes()[:-4]),
    ],
    ids=["gone", "empty", "zeros", "a flipped bit", "shorter"],
)
def test_a_reply_that_is_damaged_is_asked_for_again(spool, damage):
    settled(spool, 1, 2, 3)
    damage(spool.path(1, 0, 2))
    assert "(journal lines: 0, replies: 1)" in spool.repair(1)
    assert set(spool.receipts(1, 0)) == {1, 3}
    assert spool.repair(1) is None


def test_a_damaged_reply_of_an_earlier_version_is_noticed_if_it_is_no_message(spool):
    replied(spool, 1, 2)
    recorded(spool, receipt(1), receipt(2))
    spool.path(1, 0, 2).write_bytes(bytes(spool.path(1, 0, 2).stat().st_size))
    spool.repair(1)
    assert set(spool.receipts(1, 0)) == {1}


def test_in_a_round_of_several_hops_what_follows_a_lost_reply_is_dropped_too(spool):
    """Later hops began with a mean that included it. Clients can still repeat them."""
    settled(spool, 1, 2)
    recorded(spool, receipt(3, hop=-1, reason="other labels"), receipt(1, hop=1, reason="late"))
    spool.path(1, 0, 2).unlink()
    assert "2 orders are settled" in spool.repair(1)
    assert (set(spool.receipts(1, 0)), set(spool.receipts(1, 1)), set(spool.receipts(1, -1))) == (
        {1},
        set(),
        {3},
    )


def test_what_a_finished_round_left_is_no_damage(spool):
    """A kill came between the checkpoint of round 1 and the end of its spool."""
    recorded(spool, receipt(1), receipt(3, number=2, reason="late"))
    assert spool.repair(2) is None
    assert (spool.receipts(1, 0), set(spool.receipts(2, 0))) == ({}, {3})


def test_fuzzed_journals_never_raise(spool):
    settled(spool, 1, 2)
    recorded(
        spool,
        receipt(3, reason="late"),
        replace(receipt(4), held=b"no reply", norms={"train parameters": 0.5}),
    )
    whole = spool.journal.read_bytes()
    for number in range(1000):
        spool.journal.write_bytes(mutated(whole, rng(number, "journal")))
        spool.receipts(1, 0)
        spool.repair(1)
        assert spool.repair(1) is None


def test_nothing_is_left_after_the_last_round(spool):
    settled(spool, 1, 2)
    (spool.folder / ".1.0.2.reply.99.tmp").write_bytes(b"half")
    spool.remove()
    assert not spool.folder.exists()


def mutated(content, draws):
    """As disks, power cuts and people damage a file."""
    content = bytearray(content)
    for _ in range(int(draws.integers(1, 4))):
        place = int(draws.integers(len(content)))
        length = int(draws.integers(1, 40))
        what = int(draws.integers(5))
        if what == 0:
            content[place] ^= 1 << int(draws.integers(8))
        elif what == 1:
            content[place : place + length] = bytes(length)
        elif what == 2:
            del content[place : place + length]
        elif what == 3:
            content[place:place] = draws.bytes(length)
        else:
            words = [
                b"1e999",
                b"null",
                b'"',
                b"{",
                b"[[[[",
                b"-1",
                b"99999999999999999999",
                b"\n",
                b"NaN",
                b"true",
            ]
            content[place:place] = words[int(draws.integers(len(words)))]
    return bytes(content) or b"\n"

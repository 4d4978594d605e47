import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.readers.text import read_text, roles, spelled, windows
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

SHARED = Path(__file__).parents[5] / "shared/data"
PLAY = """First Citizen:
Before we go.

ALL:
Speak, speak.
Speak!

First Citizen:
You are all resolved.

"""


@pytest.fixture
def file(tmp_path):
    def write(content, name="some.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def spoken(source, row):
    """A sample as text again: its window and the symbol after it."""
    names = {"space": " ", "newline": "\n"}
    letters = [names.get(label, label) for label in source.labels]
    return "".join(letters[symbol] for symbol in source.x[row]), letters[source.y[row]]


def refusal(path, *more):
    with pytest.raises(FedloomError) as caught:
        open_source(str(path), *more)
    return str(caught.value)


# Windows


def test_a_text_by_hand(file):
    source = read_text(file("abcdefghij"), window=3)
    assert [spoken(source, row) for row in range(len(source.y))] == [
        ("abc", "d"),
        ("def", "g"),
        ("ghi", "j"),
    ]
    assert (source.kind, source.x.dtype, source.y.dtype, source.groups) == (
        "text",
        np.uint8,
        np.int64,
        None,
    )
    assert source.labels == tuple("abcdefghij")
    overlapping = read_text(file("abcdefghij"), window=3, stride=2)
    assert [spoken(overlapping, row)[0] for row in range(4)] == ["abc", "cde", "efg", "ghi"]


def test_overlapping_windows_of_one_text_take_no_memory(file):
    source = open_source(f"{file('abc' * 1000)}:80:1")
    assert source.x.shape == (2920, 80)
    assert source.x.strides == (1, 1)  # a view of the 3,000 symbols, also after every check
    assert source.digest == open_source(f"{file('abc' * 1000)}:80:1").digest


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 12))
def test_windows_lie_in_one_text_and_none_is_left_out(lengths, window, stride):
    lengths = [window + length for length in lengths]
    symbols = np.arange(sum(lengths))  # each symbol is its own place
    owner = np.repeat(np.arange(len(lengths)), lengths)
    x, y, counts = windows(symbols, lengths, window, stride)
    assert len(x) == len(y) == counts.sum()
    assert (
        np.diff(np.column_stack([x, y]), axis=1) == 1
    ).all()  # one symbol after the other, the label last
    assert (owner[x[:, 0]] == owner[y]).all() and (
        owner[y] == np.repeat(np.arange(len(lengths)), counts)
    ).all()
    for number, length in enumerate(lengths):
        firsts = x[owner[y] == number][:, 0] - sum(lengths[:number])
        assert firsts.tolist() == list(range(0, length - window, stride))


def test_more_symbols_than_a_byte_holds(file):
    text = "".join(chr(0x4E00 + number) for number in range(300)) * 2
    source = open_source(f"{file(text)}:10")
    assert source.x.dtype == np.int32
    assert spoken(source, 1) == (text[10:20], text[20])


def test_names_of_symbols():
    assert spelled("\n\t \u00a0ab\u0007é") == (
        "newline",
        "tab",
        "space",
        "U+00A0",
        "a",
        "b",
        "U+0007",
        "é",
    )


# Roles


def test_roles_by_hand(file):
    assert roles(PLAY) == {
        "First Citizen": "Before we go.\nYou are all resolved.\n",
        "ALL": "Speak, speak.\nSpeak!\n",
    }
    source = open_source(f"{file(PLAY)}:8")
    assert (source.group_names, source.grouping) == (("First Citizen", "ALL"), "role")
    assert source.groups.tolist() == [0] * 4 + [1] * 2
    assert spoken(source, 1) == ("e go.\nYo", "u")  # what a role says is one text
    assert spoken(source, 4) == ("Speak, s", "p")


def test_a_role_with_less_than_a_window_is_left_out(file):
    source = open_source(f"{file(PLAY)}:25")
    assert (source.group_names, source.groups.tolist()) == (("First Citizen",), [0])


@pytest.mark.parametrize(
    "text",
    [
        "Plain words.\n\nAnd more: of them.\n",
        "Only me:\nspeaking.\n\nOnly me:\nagain\n",
        "A:\n\nB:\n\n",
    ],
)
def test_what_is_no_play_is_one_text(text):
    assert roles(text) is None


def test_a_paragraph_without_a_name_goes_on_with_its_role():
    assert roles("A:\none\n\ntwo\n\nB:\nthree")["A"] == "one\ntwo\n"


def test_lines_may_end_as_on_windows_and_begin_with_a_mark(file):
    one = file(PLAY, "a.txt")
    other = file(b"\xef\xbb\xbf" + PLAY.replace("\n", "\r\n").encode(), "b.txt")
    assert open_source(f"{one}:8").digest == open_source(f"{other}:8").digest


# Finding it


@pytest.mark.parametrize(
    "place", ["input.txt", "shakespeare/tinyshakespeare_input.txt", "shakespeare/input.txt"]
)
def test_shakespeare_in_a_folder(tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(PLAY * 3)
    assert open_source("shakespeare:8", tmp_path).name == "shakespeare"
    assert open_source("shakespeare:8:1", tmp_path).x.shape[1] == 8
    assert len(open_source("shakespeare:8:1", tmp_path).y) > len(
        open_source("shakespeare:8", tmp_path).y
    )


def test_shakespeare_that_is_not_there(tmp_path):
    assert "must have its file, input.txt or tinyshakespeare_input.txt or" in refusal(
        "shakespeare", tmp_path
    )
    assert refusal("shakespeare", tmp_path).endswith("or `fedloom data get shakespeare`.")


@pytest.mark.parametrize("name", ["digits:40", "nothing:40", "none.txt:40"])
def test_a_window_behind_something_else(tmp_path, name):
    assert "with a window after its name must be a text file or a registered text" in refusal(
        name, tmp_path
    )


@pytest.mark.parametrize("name", ["none.txt", "none.json"])
def test_a_file_that_is_not_there(name):
    assert refusal(name).startswith(f"--data {name} must be a file or a folder, but there is none")


@pytest.mark.parametrize("sizes", [":0", ":8:0"])
def test_windows_of_nothing(file, sizes):
    assert "window and stride must be at least 1" in refusal(f"{file(PLAY)}{sizes}")


def test_a_stride_beyond_the_end_gives_a_window_a_role(file):
    assert [len(open_source(f"{file(PLAY)}:8:{stride}").y) for stride in (500, 10**30)] == [2, 2]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of real data is absent")
def test_tiny_shakespeare():
    source = open_source("shakespeare", SHARED)
    assert len(source.labels) == 65 and source.labels[:2] == ("newline", "space")
    assert source.x.shape == (12_695, 80) and (source.mean, source.std) == ((), ())
    assert len(source.group_names) == 256 and "ROMEO" in source.group_names
    window, after = spoken(source, 0)
    assert (window + after).startswith(
        "Before we proceed any further, hear me speak.\nYou are all resolved"
    )
    whole = (SHARED / "shakespeare/tinyshakespeare_input.txt").read_text()
    assert len(roles(whole)) == 299


# Bad input


class Bomb:
    def __reduce__(self):
        return Path("exploded").touch, ()


@pytest.mark.parametrize("name", ["bomb.txt", "bomb.json"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_never_opened(file, tmp_path, monkeypatch, name, protocol):
    monkeypatch.chdir(tmp_path)
    bomb = str(file(pickle.dumps(Bomb(), protocol), name))
    if (protocol, name) == (0, "bomb.txt"):  # printable characters, as good a text as any
        assert open_source(bomb).kind == "text"
    else:
        assert bomb in refusal(bomb)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b" \n\n ", "it is empty"),
        (b"\xff\xfea\x00b\x00", "byte 0 is not"),
        ("é".encode("latin-1") * 200, "byte 0 is not"),
        (b"a" * 500, "at least 2 different symbols, but it has 1"),
        (b"ab" * 40, "more than a window of 80 characters, but it has 80"),
        (PLAY.encode(), "more than a window of 80 characters in some role, but it has 36"),
        (b"abc\x00" * 100, "character 3 is NUL"),
    ],
)
def test_what_is_no_text(file, content, said):
    message = refusal(file(content))
    assert said in message and "some.txt" in message
    assert message.count("\n") == 0


def test_just_enough(file):
    assert open_source(str(file("ab" * 40 + "a"))).x.shape == (1, 80)

"""What a small file may hold, and why one is refused."""

import pytest

from fedloom.reading import MOST_BYTES, Unreadable, read_json, read_large_json, read_toml


def reason(read, path):
    with pytest.raises(Unreadable) as caught:
        read(path)
    return str(caught.value)


def test_what_is_plain_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_text('{"a": [1, -2.5, null, true, "ü"], "b": {"a": 18446744073709551615}}')
    assert read_json(path) == {"a": [1, -2.5, None, True, "ü"], "b": {"a": 2**64 - 1}}
    path.write_text('a = 1\n[b]\nc = "ü"\n')
    assert read_toml(path) == {"a": 1, "b": {"c": "ü"}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it does not parse (Expecting value"),
        (b"\xff{}", "it is not text in UTF-8 (byte 1)"),
        (b"{" * 100_000, "it does not parse"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[" * 60 + b"]" * 60, "it is nested too deeply"),
        (b'{"a": NaN}', "it has NaN, which is no number of JSON"),
        (b'{"a": -Infinity}', "it has -Infinity"),
        (b'{"a": {"b": 1e999}}', "`a.b` has inf, which is not finite"),
        (b'{"a": [18446744073709551616]}', "`a` has a whole number beyond 64 bits"),
        (b"9" * 5000, "it does not parse"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "it has the name 'c' twice"),
        (b'{"a": "x\\u0000"}', "`a` has a character that no text has"),
        (b'{"a\\ud800": 1}', "it has a character that no text has"),
    ],
    ids=repr,
)
def test_what_json_is_refused_for(content, why, tmp_path):
    (tmp_path / "file").write_bytes(content)
    assert why in reason(read_json, tmp_path / "file")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a = \n", "line 1"),
        (b"a = 1\na = 2\n", "it does not parse"),
        (b"a = inf\n", "`a` has inf, which is not finite"),
        (b"[a]\nb = nan\n", "`a.b` has nan"),
        (b"a = 99999999999999999999\n", "beyond 64 bits"),
        (b"a = " + b"[" * 5000, "it is nested too deeply"),
        (b'a = "\\u0000"\n', "no text has"),
        (b"a = 1\x00\n", "it does not parse"),
        (b"a = " + b"9" * 5000, "it does not parse"),
    ],
    ids=repr,
)
def test_what_toml_is_refused_for(content, why, tmp_path):
    (tmp_path / "file").write_bytes(content)
    assert why in reason(read_toml, tmp_path / "file")


def test_what_is_no_file(tmp_path):
    assert reason(read_json, tmp_path / "none") == "there is none"
    assert reason(read_json, tmp_path) == "it cannot be read (Is a directory)"
    assert reason(read_toml, tmp_path / "a\0b") == "that is no path"


def test_an_absurdly_large_file_is_not_even_read(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(1 << 40)  # which takes no room
    assert (
        reason(read_json, tmp_path / "file")
        == f"it has {1 << 40} bytes, and at most {MOST_BYTES} are expected"
    )


def test_a_file_that_grows_with_the_data(tmp_path):
    (tmp_path / "file").write_text("[" + "1," * (MOST_BYTES // 2) + "1]")
    assert len(read_large_json(tmp_path / "file")) == MOST_BYTES // 2 + 1
    assert "at most" in reason(read_json, tmp_path / "file")

import json
import os
from html import unescape

import pytest
from fabricated import client, counted, make_run, result, row

from fedloom.records.folder import RunFolder
from fedloom.report.page import run_page
from fedloom.report.story import Reader, is_running

WHOLE = result([client(0)])


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", [row(1), row(2)], classes=counted(3))


def append(folder, text):
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(text)


def rounds(reader):
    return [row.round for row in reader.read().rows]


def test_new_rounds_are_read_as_they_come(folder):
    reader = Reader(folder)
    assert rounds(reader) == [1, 2]
    append(
        folder, json.dumps(row(3)) + "\n" + json.dumps(row(4))[:20]
    )  # the last one is half written
    assert rounds(reader) == [1, 2, 3]
    append(folder, json.dumps(row(4))[20:] + "\n")
    assert rounds(reader) == [1, 2, 3, 4]
    assert all(row.ledger == () for row in reader.rows)


def test_old_rounds_are_not_read_again(folder):
    reader = Reader(folder)
    reader.read()
    first = reader.rows[0]
    append(folder, json.dumps(row(3)) + "\n")
    assert reader.read().rows[0] is first


def test_rounds_that_a_resume_cut_off_are_gone(folder):
    reader = Reader(folder)
    reader.read()
    folder.write_text("metrics.jsonl", json.dumps(row(1, 0.9)) + "\n")
    assert [entry.evaluation.value for entry in reader.read().rows] == [0.9]


def test_a_round_that_was_run_again_counts_once(folder):
    append(folder, json.dumps(row(2, 0.8)) + "\n")
    reader = Reader(folder)
    assert [entry.round for entry in reader.read().rows] == [
        1,
        2,
        2,
    ]  # written once, it cannot be told apart
    append(folder, json.dumps(row(2, 0.9)) + "\n")
    assert [entry.evaluation.value for entry in reader.read().rows] == [0.5, 0.9]


@pytest.mark.parametrize("line", ["nonsense", "[1]", "3", "{}", '{"round": 3}', "\x00"])
def test_damaged_lines_are_passed_by(folder, line):
    append(folder, line + "\n" + json.dumps(row(3)) + "\n")
    assert rounds(Reader(folder)) == [1, 2, 3]


@pytest.mark.parametrize("name", ["config.toml", "split.json", "classes.json", "metrics.jsonl"])
@pytest.mark.parametrize("text", [None, "", "{", "[]", "\x00\xff"])
def test_files_that_are_missing_or_damaged(folder, name, text):
    (folder.path / name).unlink()
    if text is not None:
        (folder.path / name).write_text(text)
    story = Reader(folder).read()
    parts = {"config.toml": story.config, "split.json": story.split, "classes.json": story.classes}
    if name in parts and not (
        name == "config.toml" and text == ""
    ):  # an empty configuration is all defaults
        assert parts[name] is None
    if name == "metrics.jsonl":
        assert story.rows == []


@pytest.mark.parametrize(
    "broken",
    [
        [],
        3,
        {},
        {"metric": "accuracy"},
        {**WHOLE, "metric": "beauty"},
        {**WHOLE, "metric": "perplexity"},
    ],
    ids=["list", "number", "empty", "little", "unknown metric", "another metric"],
)
def test_a_result_that_is_none(folder, broken):
    folder.write_json("result.json", WHOLE)
    assert Reader(folder).read().result.to_json() == WHOLE
    folder.write_json("result.json", broken)
    assert Reader(folder).read().result is None
    run_page(Reader(folder).read())


def test_what_did_not_change_is_read_once(folder):
    reader = Reader(folder)
    story = reader.read()
    assert reader.read().classes is story.classes and reader.read().config is story.config
    folder.write_json("classes.json", {**counted(3), "usual": 0.75})
    assert reader.read().classes.usual == 0.75


def test_who_works_in_a_folder(folder):
    assert not is_running(folder) and Reader(folder).read().standing == "stopped"
    with folder.lock():
        assert is_running(folder) and Reader(folder).read().standing == "running"
        other = RunFolder(folder.path.parent / "other")
        other.path.mkdir()
        (other.path / "run.lock").touch()
        assert not is_running(other)
    assert not is_running(folder)


def test_to_look_does_not_touch_anything(folder):
    before = {path: os.stat(path).st_mtime_ns for path in folder.path.rglob("*")}
    with folder.lock():
        before = {path: os.stat(path).st_mtime_ns for path in folder.path.rglob("*")}
        Reader(folder).read()
        assert {path: os.stat(path).st_mtime_ns for path in folder.path.rglob("*")} == before


def test_names_of_sites(tmp_path):
    folder = make_run(tmp_path / "run", [], config={"engine": {"federation": "fed"}})
    folder.write_json("sites.json", {"b": {}, "a": {}, "c": {}})
    story = Reader(folder).read()
    assert [story.client_name(k) for k in range(4)] == ["a", "b", "c", "client 3"]
    assert story.federated and story.classes is None


# Damage is told on the page


def damage_sentences(folder):
    """The sentences on damage, if the page has each of them."""
    story = Reader(folder).read()
    page = unescape(run_page(story))
    sentences = [damage.sentence for damage in story.damage]
    assert all(sentence in page for sentence in sentences)
    return sentences


def test_a_whole_run_has_no_damage(folder):
    folder.write_json("result.json", WHOLE)
    assert damage_sentences(folder) == []


@pytest.mark.parametrize("finished", [False, True])
def test_rows_that_are_left_out_are_counted(folder, finished):
    if finished:
        folder.write_json("result.json", WHOLE)
    reader = Reader(folder)
    append(folder, "{}\n" + json.dumps(row(3)) + "\n")
    one = (
        "metrics.jsonl is damaged: 1 row is left out of this page, "
        "the first is line 3: it lacks `stage`."
    )
    assert damage_sentences(folder) == [one] == [damage.sentence for damage in reader.read().damage]
    append(
        folder, "3\n\n" + json.dumps(row(4)) + "\n" + json.dumps(row(5))[:20]
    )  # the last is still being written
    three = one.replace("1 row is", "3 rows are")
    assert (
        damage_sentences(folder) == [three] == [damage.sentence for damage in reader.read().damage]
    )
    assert rounds(reader) == [1, 2, 3, 4]
    folder.write_text("metrics.jsonl", json.dumps(row(1)) + "\n")  # a resume cut them off
    assert damage_sentences(folder) == [] == reader.read().damage


def test_a_gain_that_is_damaged(folder):
    folder.write_json("result.json", WHOLE)
    reader = Reader(folder)
    assert reader.read().damage == []  # nobody measured it
    folder.write_json("gain.json", {"run": "x"})
    expected = (
        f"gain.json is damaged: it lacks `metric`. `fedloom gain {folder.path}` measures it again."
    )
    assert (
        damage_sentences(folder)
        == [expected]
        == [damage.sentence for damage in reader.read().damage]
    )
    (folder.path / "gain.json").unlink()
    assert reader.read().damage == []


def test_a_result_that_is_damaged(folder):
    folder.write_json("result.json", {})
    (sentence,) = damage_sentences(folder)
    assert sentence.startswith("result.json is damaged: `metric` should be one of ")
    assert sentence.endswith(f"`fedloom resume {folder.path}` makes it again.")
    page = run_page(Reader(folder).read())
    assert (
        "This run has no readable result, and no process is working on it." in page
        and "no result yet" not in page
    )


@pytest.mark.parametrize("name", ["config.toml", "split.json", "classes.json", "sites.json"])
def test_other_files_that_are_damaged(folder, name):
    folder.write_json("result.json", WHOLE)
    (folder.path / name).write_text("[1]")
    (sentence,) = damage_sentences(folder)
    assert sentence.startswith(f"{name} is damaged: ")


@pytest.mark.parametrize(
    "text", ["3", "[1]", "null", '"ab"', "{}", '{"a": 3}', '{"a": {"x": 1e999}}', '{"\\ud800": {}}']
)
def test_sites_that_are_none(tmp_path, text):
    folder = make_run(
        tmp_path / "run", [row(1)], [client(0)], config={"engine": {"federation": "fed"}}
    )
    folder.write_text("sites.json", text)
    (sentence,) = damage_sentences(folder)
    assert sentence.startswith("sites.json is damaged: ") and sentence.endswith(
        "Sites are shown by their numbers."
    )
    assert Reader(folder).read().client_name(0) == "client 0"

from dataclasses import replace

import pytest

from fedloom import methods
from fedloom.config.variants import labelled, without_folders
from fedloom.errors import FedloomError
from fedloom.runs import configure as configuring
from fedloom.runs.configure import configure, parse_variant, split_flags


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("fedavg", "fedavg", {}),
        ("fedavg:", "fedavg", {}),
        ("fedavg:lr=0.1", "fedavg", {"lr": "0.1"}),
        ("fedavg:lr=0.1,epochs=2", "fedavg", {"lr": "0.1", "epochs": "2"}),
        ("fedavg:network=my/net.py:Net", "fedavg", {"network": "my/net.py:Net"}),
        ("my/file.py:Name", "my/file.py:Name", {}),
        ("my/file.py:Name:lr=0.1", "my/file.py:Name", {"lr": "0.1"}),
        ("C.py:D.py:x=1", "C.py:D.py", {"x": "1"}),
        ("spider:lam=inf", "spider", {"lam": "inf"}),
    ],
)
def test_parse(text, name, options):
    assert parse_variant(text) == (name, options)


@pytest.mark.parametrize("text", ["", ":", ":lr=1"])
def test_no_name(text):
    with pytest.raises(
        FedloomError, match="a method must look like NAME or NAME:key=value, but got"
    ):
        parse_variant(text)


def test_a_bare_word_sets_the_short_option(monkeypatch):
    short = replace(methods.recipe("fedavg"), short="schedule")
    monkeypatch.setattr(configuring, "recipe", lambda name: short)
    assert parse_variant("fedavg:constant,lr=1") == ("fedavg", {"schedule": "constant", "lr": "1"})


def test_a_bare_word_without_a_short_option():
    with pytest.raises(
        FedloomError, match="a variant of fedavg must look like key=value, but got 'random'"
    ):
        parse_variant("fedavg:random")


def test_configure():
    tree = {"method": "of the file", "seed": 3, "options": {"lr": "1", "epochs": "2"}}
    config = configure("fedavg:lr=0.1", tree)
    assert (config.method, config.seed) == ("fedavg", 3)
    assert config.options == {"lr": "0.1", "epochs": "2"}  # a variant wins over options of all
    assert tree["options"] == {"lr": "1", "epochs": "2"}


def test_keywords_go_where_they_belong():
    tree = split_flags(
        "fedavg:lr=1", {"rounds": 3, "min_replies": 2, "seed": 4, "epochs": 2, "server_lr": 0.1}
    )
    assert tree == {
        "budget": {"rounds": 3},
        "engine": {"min_replies": 2},
        "seed": 4,
        "options": {"epochs": 2, "server_lr": 0.1},
    }


def test_unknown_keywords():
    with pytest.raises(
        FedloomError,
        match="a keyword of fedavg must be a known name, but got 'ruonds'; did you mean",
    ):
        split_flags("fedavg", {"ruonds": 3})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fedavg", "fedavg"),
        ("/home/me/mine.py:Mine", "mine.py:Mine"),
        ("fjord:widths=.25/1", "fjord:widths=.25/1"),
        ("fedavg:network=/home/me/net.py:Net,lr=0.1", "fedavg:network=net.py:Net,lr=0.1"),
    ],
)
def test_a_table_shows_files_without_their_folders(text, shown):
    assert without_folders(text) == shown


def test_a_label_is_what_tables_call_a_variant():
    variants = labelled(
        ["spider:lr=.1,cells=3@small", "fedavg", "here@there/file.py:Name:lr=1@mine-2"]
    )
    assert variants.methods == ("spider:lr=.1,cells=3", "fedavg", "here@there/file.py:Name:lr=1")
    assert sorted(variants.names.values()) == ["mine-2", "small"]
    assert variants.names["spider:lr=.1,cells=3"] == "small"
    assert any(
        name.startswith("/") and name.endswith("file.py:Name:lr=1") for name in variants.names
    )


@pytest.mark.parametrize(
    "texts", [("fedavg:lr=1@a", "fedavg:lr=2@a"), ("fedavg:lr=1@ditto", "ditto")]
)
def test_two_variants_with_one_name_are_refused(texts):
    with pytest.raises(
        FedloomError, match="two variants must not have one name in tables, but got"
    ):
        labelled(texts)

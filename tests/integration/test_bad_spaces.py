"""A space that cannot be searched is refused at the start of a run, in one sentence."""

import json
import re
from pathlib import Path

import pytest

from fedloom import cli, registry
from fedloom.errors import FedloomError
from fedloom.spaces import genotype

FAULTY = Path(__file__).parents[1] / "contract" / "faulty_spaces.py"
EXAMPLE = FAULTY.parents[2] / "docs" / "examples" / "chain.py"
SIZE = ["--cells", "1", "--depth", "3", "--channels", "2"]
FAULTS = [
    (
        "Empty",
        "every slot of search space faulty_spaces.py:Empty must have options, but slot layer.last "
        "has none",
    ),
    ("Slotless", "must have a slot to choose in, but it has none"),
    ("unread", "must lead from its input to its scores, but they are the same for every input"),
    (
        "dangling",
        "every slot .* must lead to the scores, but no option of slot layer.0 changes them",
    ),
    ("muted", "every slot .* must lead to the scores, but no option of slot layer.0 changes them"),
    (
        "ownerless",
        "must name its weights' owners, but layers.2.conv.* is said to be shared by all "
        "operations, and it is missing",
    ),
    (
        "swapped",
        "must name its weights' owners, but layers.1.conv1.* is said to be owned by conv3 in slot "
        "layer.1, and it still",
    ),
    ("lost", "must name its weights' owners, but the owner of .* is .*7.*, which is no operation"),
    ("raising", "must compute a mixture, but it raised ZeroDivisionError: nothing to divide by"),
    ("wide", "must give 3 scores for each of 4 samples, but it gives"),
    (
        "Foreign",
        "must return an architecture of that space, but slot layer.0 must choose among 0 skip, "
        "1 conv1, 2 conv3, but got",
    ),
    ("infinite", "must give finite scores, but some are infinite or NaN"),
    ("Demanding", "must accept its own parameters, but it raised AttributeError"),
    ("Plain", "must be a fedloom.spaces.supernet.Supernet, but it is Linear"),
    ("Textual", "must be for image data, but it is for text"),
    (
        "function",
        "must be a class that subclasses fedloom.spaces.Space, but it is <function with_network",
    ),
    ("Nowhere", "must be a known name, but got 'Nowhere'"),
    (
        "Unmade",
        "`configured` of search space faulty_spaces.py:Unmade must return a space, but it "
        "returned None",
    ),
    ("Schemeless", "`schema` .* must subclass fedloom.options.Options, but it is {'depth': 3}"),
    (
        "Clashing",
        "a parameter of search space .* must not be named like an option, but the method has an "
        "option cells",
    ),
    (
        "Kindless",
        "`kinds` of search space faulty_spaces.py:Kindless must be a tuple of names, but it is 5",
    ),
    ("Sizeless", "`usual` .* must be a fedloom.spaces.space.Size of whole numbers, but it is 8"),
    ("Countable", "`slots` .* must be a tuple of fedloom.spaces.space.Slot, but it is 5"),
    (
        "Worded",
        "`slots` .* must be a tuple of fedloom.spaces.space.Slot, but it is .'layer.0', "
        "'layer.1'.;",
    ),
    (
        "Lettered",
        "`slots` .* must be slots whose options are a tuple of names, but it is .*'conv3'",
    ),
    ("sevenfold", "`owner` .* must be a fedloom.spaces.space.OpId or None, but it is 7"),
    ("partly", "`owner` .* must be a fedloom.spaces.space.OpId or None, but it is 'stem'"),
    ("Imagining", "`sample` .* must be a fedloom.types.Arch, but it is .0, 1, 2."),
    ("Leaving", "must accept its own parameters, but it raised SystemExit: 7"),
    ("Scattered", "`together` .* must name every slot once, 0 to 2, but it names .0, 1, 2, 7."),
    ("Forgetful", "`together` .* must name every slot once, 0 to 2, but it names .1, 2."),
    ("Counted", "`rivals` .* must name slots from 0 to 2, but it names .3."),
    ("Nameless", "`parameters` .* must name the same space, but `named..... is another one"),
    ("Renamed", "`name` .* must be its family and its parameters, but it is 'chain'"),
    ("Priceless", "`cost` .* must be a fedloom.spaces.space.Cost of whole numbers, but it is None"),
    ("Costly", "must say what it costs, but it raised AttributeError"),
]


def small_run(images):
    data = ["--data", str(images), "--clients", "3", "--partition", "iid"]
    return [*data, "--rounds", "8", "--workers", "0"]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_a_run_does_not_begin(fault, sentence, images, tmp_path, capsys):
    method = "spider" if fault == "Empty" else "fednas"  # the check is the same for both
    words = small_run(images)
    out = tmp_path / "run"
    assert (
        cli.main(["run", method, "--space", f"{FAULTY}:{fault}", *SIZE, *words, "--out", str(out)])
        == 2
    )
    errors = capsys.readouterr().err
    assert re.fullmatch(r"fedloom: .* must .*, but .*; .*\.\n", errors), errors
    assert re.search(sentence, errors), errors
    assert not out.exists()


FEDORAS = [
    (
        "SizedEmpty",
        "every slot of search space faulty_spaces.py:SizedEmpty must have options, but slot "
        "layer.last",
    ),
    (
        "SizedUnread",
        "must lead from its input to its scores, but they are the same for every input",
    ),
    (
        "SizedRaising",
        "must compute a mixture, but it raised ZeroDivisionError: nothing to divide by",
    ),
    (
        "SizedSwapped",
        "must name its weights' owners, but layers.1.conv1.* is said to be owned by conv3 in slot "
        "layer.1",
    ),
    ("SizedTextual", "must be for image data, but it is for text"),
    (
        "SizedSizeless",
        "`usual` .* must be a fedloom.spaces.space.Size of whole numbers, but it is 8",
    ),
    (
        "Tableless",
        "`cost_table` .* must be a fedloom.spaces.cost_table.CostTable or None, but it is {}",
    ),
    (
        "ShortTable",
        r"must have a cost for each option, but its rows have \[3, 3\] costs, and the slots \[3, "
        r"3, 3\]",
    ),
    ("RaisingTable", "must say what its operations cost, but it raised ZeroDivisionError"),
    (
        "Whole",
        "which has a `cost_table`, must be a fedloom.spaces.paths.PathNetwork, but it is "
        "ChainNetwork",
    ),
    ("Empty", "`options.space` must be a chain of layers"),
]


@pytest.mark.parametrize(("fault", "sentence"), FEDORAS, ids=[fault for fault, _ in FEDORAS])
def test_a_run_of_tiers_does_not_begin(fault, sentence, images, tmp_path, capsys):
    words = small_run(images)
    out = tmp_path / "run"
    space = ["--space", f"{FAULTY}:{fault}", "--depth", "3"]
    assert cli.main(["run", "fedoras", *space, *words, "--out", str(out)]) == 2
    errors = capsys.readouterr().err
    assert re.fullmatch(r"fedloom: .* must .*, but .*; .*\.\n", errors), errors
    assert re.search(sentence, errors), errors
    assert not out.exists()


def test_a_wrong_name_is_answered_with_the_spaces_of_the_file(tmp_path, images, capsys):
    example = FAULTY.parents[2] / "docs/examples/chain.py"
    assert cli.main(["run", "fednas", "--space", f"{example}:Nowhere", "--data", str(images)]) == 2
    assert capsys.readouterr().err.endswith("but got 'Nowhere'; choose from Chain.\n")
    (tmp_path / "empty.py").write_text("")
    assert (
        cli.main(
            ["run", "fednas", "--space", f"{tmp_path}/empty.py:Nowhere", "--data", str(images)]
        )
        == 2
    )
    assert (
        "got 'Nowhere', and there is none to choose; check what was named."
        in capsys.readouterr().err
    )


def test_a_file_that_ends_the_process(tmp_path, images, capsys):
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(7)\n")
    assert (
        cli.main(["run", "fednas", "--space", f"{tmp_path}/leaving.py:X", "--data", str(images)])
        == 2
    )
    assert "leaving.py must be importable, but it raised SystemExit: 7" in capsys.readouterr().err


def test_a_file_that_is_not_there(images, tmp_path, capsys):
    assert (
        cli.main(["run", "fednas", "--space", f"{tmp_path}/none.py:Chain", "--data", str(images)])
        == 2
    )
    assert "none.py must be a Python file, but there is none" in capsys.readouterr().err


def test_a_space_that_leaves_a_question_open(images, tmp_path, capsys):
    (tmp_path / "half.py").write_text(
        "from fedloom.spaces.space import Space\n\n\nclass Half(Space):\n    slots = ()\n"
    )
    assert (
        cli.main(["run", "fednas", "--space", f"{tmp_path}/half.py:Half", "--data", str(images)])
        == 2
    )
    assert (
        "must implement every method of fedloom.spaces.Space, but it has no cost"
        in capsys.readouterr().err
    )


def test_a_profile_is_of_what_a_space_can_compute(tmp_path, capsys):
    table = tmp_path / "profile.json"
    assert cli.main(["profile", "--space", f"{FAULTY}:Textual:2", "--out", str(table)]) == 2
    assert (
        "must compute a mixture, but it raised" in capsys.readouterr().err
    )  # it says text and convolves
    words = ["--shape", "1x6x6", "--channels", "2", "--cells", "1", "--repeats", "3", "--quiet"]
    assert cli.main(["profile", "--space", f"{FAULTY}:Spoken:2", *words, "--out", str(table)]) == 0


PROFILED = [
    (
        "Empty",
        "every slot of search space faulty_spaces.py:Empty must have options, but slot layer.last "
        "has none",
    ),
    ("Countable", "`slots` .* must be a tuple of fedloom.spaces.space.Slot, but it is 5"),
    ("Schemeless", "`schema` .* must subclass fedloom.options.Options, but it is {'depth': 3}"),
    ("Kindless", "`kinds` .* must be a tuple of names, but it is 5"),
    ("Sizeless", "`usual` .* must be a fedloom.spaces.space.Size"),
    ("unread", "must lead from its input to its scores"),
    ("raising", "must compute a mixture, but it raised ZeroDivisionError"),
]


@pytest.mark.parametrize(("fault", "sentence"), PROFILED, ids=[fault for fault, _ in PROFILED])
def test_a_profile_is_of_a_space_that_can_be_searched(fault, sentence, tmp_path, capsys):
    table = tmp_path / "profile.json"
    size = ["--shape", "1x6x6", "--repeats", "3", "--quiet"]
    assert cli.main(["profile", "--space", f"{FAULTY}:{fault}:2", *size, "--out", str(table)]) == 2
    errors = capsys.readouterr().err
    assert re.search(sentence, errors), errors
    assert not table.exists()


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """An installed package that offers one of each, none of which can be imported."""
    folder = tmp_path / "site" / "broken-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    groups = [f"[fedloom.{group}]\nbroken = nosuchmodule:Thing\n" for group in GROUPS]
    (folder / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(tmp_path / "site")
    registry.entry_points.cache_clear()
    yield
    registry.entry_points.cache_clear()


GROUPS = ("spaces", "methods", "networks", "data")


@pytest.mark.parametrize("group", GROUPS)
def test_a_broken_entry_point_has_its_row(group, broken, capsys):
    assert cli.main(["list", group]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "must be importable, as nosuchmodule:Thing, but it raised ModuleNotFoundError" in output
    known = {"spaces": "nasbench201", "methods": "spider", "networks": "vgg16", "data": "mnist"}
    assert known[group] in output


def test_a_broken_entry_point_is_one_sentence(broken, images, capsys):
    assert cli.main(["run", "fednas", "--space", "broken", "--data", str(images)]) == 2
    errors = capsys.readouterr().err
    assert (
        "search space broken must be importable, as nosuchmodule:Thing, but it raised "
        "ModuleNotFoundError" in errors
    )


def test_a_broken_entry_point_is_nothing_to_others(broken, tmp_path):
    ops = [["sep_conv_3x3", 0], ["skip_connect", 1]]
    file = tmp_path / "genotype.json"
    file.write_text(json.dumps({"normal": ops, "reduce": ops, "cells": 3, "channels": 2}))
    assert genotype.read(file).arch.space.startswith("darts")
    file.write_text(json.dumps({"unheard": "of"}))
    with pytest.raises(FedloomError, match="no space prints architectures in this form"):
        genotype.read(file)


UNKNOWN = [
    (
        f"{FAULTY}:Nameless:y",
        "must be named with parameters that it knows, but for 'y' it raised: ",
    ),
    (f"{EXAMPLE}:Chain:x:y", "must look like chain.py:Chain:DEPTH, but got chain.py:Chain:x:y; "),
    (
        f"{EXAMPLE}:Chain:x",
        "DEPTH in chain.py:Chain:DEPTH must be a valid integer, but got chain.py:Chain:x; ",
    ),
]


@pytest.mark.parametrize(("name", "sentence"), UNKNOWN, ids=["Nameless", "too many", "no number"])
def test_parameters_that_a_space_does_not_know(name, sentence, tmp_path, capsys):
    assert cli.main(["profile", "--space", name, "--out", str(tmp_path / "p.json")]) == 2
    assert sentence in capsys.readouterr().err

"""A space that cannot be searched is refused at the start of a run, in one sentence."""

import re
from pathlib import Path

import pytest

from fedloom import cli

FAULTY = Path(__file__).parents[1] / "contract" / "faulty_spaces.py"
SIZE = ["--cells", "1", "--nodes", "3", "--channels", "2"]
FAULTS = [
    ("Empty", "every slot of search space faulty_spaces.py:Empty must have options, but slot layer.last has none"),
    ("Slotless", "must have a slot to choose in, but it has none"),
    ("unread", "must lead from its input to its scores, but they are the same for every input"),
    ("dangling", "every slot .* must lead to the scores, but no option of slot layer.0 changes them"),
    ("muted", "every slot .* must lead to the scores, but no option of slot layer.0 changes them"),
    ("ownerless", "must own its weights, but layers.2.conv.* is said to be everybody's, and it is missing"),
    ("swapped", "must own its weights, but layers.1.conv1.* is said to be of conv3 in slot layer.1, and it is still"),
    ("lost", "must own its weights, but .* is said to be of .*7.*, which is no operation"),
    ("raising", "must compute a mixture, but it raised ZeroDivisionError: nothing to divide by"),
    ("wide", "must give 3 scores for each of 4 samples, but it gives"),
    ("Foreign", "slot layer.0 must choose among 0 skip, 1 conv1, 2 conv3, but got"),
    ("Demanding", "must be made of the options, but it raised AttributeError"),
    ("Plain", "must be a fedloom.spaces.supernet.Supernet, but it is Linear"),
    ("Textual", "must be for image data, but it is for text"),
    ("function", "must be a class that subclasses fedloom.spaces.Space, but it is <function with_network"),
    ("Nowhere", "must be a known name, but got 'Nowhere'"),
]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_a_run_does_not_begin(fault, sentence, images, tmp_path, capsys):
    method = "spider" if fault == "Empty" else "fednas"  # the check is the same for both
    words = ["--data", str(images), "--clients", "3", "--partition", "iid", "--rounds", "8", "--workers", "0"]
    out = tmp_path / "run"
    assert cli.main(["run", method, "--space", f"{FAULTY}:{fault}", *SIZE, *words, "--out", str(out)]) == 2
    errors = capsys.readouterr().err
    assert re.fullmatch(r"fedloom: .* must .*, but .*; .*\.\n", errors), errors
    assert re.search(sentence, errors), errors
    assert not out.exists()


def test_a_file_that_is_not_there(images, tmp_path, capsys):
    assert cli.main(["run", "fednas", "--space", f"{tmp_path}/none.py:Chain", "--data", str(images)]) == 2
    assert "none.py must be a Python file, but there is none" in capsys.readouterr().err


def test_a_space_that_leaves_a_question_open(images, tmp_path, capsys):
    (tmp_path / "half.py").write_text(
        "from fedloom.spaces.space import Space\n\n\nclass Half(Space):\n    slots = ()\n"
    )
    assert cli.main(["run", "fednas", "--space", f"{tmp_path}/half.py:Half", "--data", str(images)]) == 2
    assert "must answer every question of fedloom.spaces.Space, but it has no cost" in capsys.readouterr().err


def test_a_profile_is_of_maps(tmp_path, capsys):
    table = tmp_path / "profile.json"
    assert cli.main(["profile", "--space", f"{FAULTY}:Textual:2", "--out", str(table)]) == 2
    assert "a profile must be of a space for images or speech" in capsys.readouterr().err
    words = ["--shape", "1x6x6", "--channels", "2", "--cells", "1", "--repeats", "3", "--quiet"]
    assert cli.main(["profile", "--space", f"{FAULTY}:Spoken:2", *words, "--out", str(table)]) == 0


@pytest.mark.parametrize("name", ["Nameless", "Chain:x"])
def test_parameters_that_a_space_does_not_know(name, tmp_path, capsys):
    place = FAULTY if name == "Nameless" else FAULTY.parents[2] / "docs/examples/chain.py"
    code = cli.main(["profile", "--space", f"{place}:{name}:y", "--out", str(tmp_path / "p.json")])
    assert code == 2
    assert "must be named with parameters that it knows, but of '" in capsys.readouterr().err

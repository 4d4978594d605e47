"""A space's own parameters: it declares them; users give them as options or in its name."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.methods import METHODS, recipe
from fedloom.methods.fednas_options import FedNASOptions
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.spider_options import SpiderOptions
from fedloom.options import as_before
from fedloom.runs import demo
from fedloom.runs.configure import configure, resolve_options, split_flags
from fedloom.spaces import space_for
from fedloom.spaces.options import SpaceOptions
from fedloom.testing import Toy
from fedloom.types import Task

TESTS = Path(__file__).parents[2]
SIZED = TESTS / "contract" / "sized.py"
EXAMPLE = TESTS.parent / "docs" / "examples" / "chain.py"
CELLS = {"ops": "s3", "nodes": 2}
FOREIGN = (
    "`ops` must be a parameter of the search space that is chosen, but nasbench201 has none; "
    "leave ops out, or choose space=darts or group, which has it."
)
TWICE = (
    "must be given once, but its name darts:s2:4 gives them, and `nodes` is given too; "
    "leave nodes out, or set"
)


@pytest.fixture
def chain(tmp_path) -> str:
    """A space of another file, whose parameters are not ours."""
    text = (
        "from dataclasses import dataclass\n"
        "from pydantic import Field\n"
        "from fedloom.options import Options\n"
        "from fedloom.spaces.nasbench201 import NasBench201Cells\n"
        "class Lengths(Options):\n"
        "    depth: int = Field(3, ge=1, description='layers')\n"
        "    wide_start: bool = Field(False, description='more channels at first')\n"
        "@dataclass(frozen=True)\n"
        "class Chain(NasBench201Cells):\n"
        "    depth: int = 3\n"
        "    wide_start: bool = False\n"
        "    schema = Lengths\n"
    )
    (tmp_path / "chain.py").write_text(text)
    return f"{tmp_path}/chain.py:Chain"


def test_they_are_given_beside_the_options_or_in_the_name():
    beside = FedNASOptions(**CELLS)
    in_the_name = FedNASOptions(space="darts:s3:2")
    assert beside == in_the_name and beside != FedNASOptions(ops="s3", nodes=3)
    assert space_for(beside).name == space_for(in_the_name).name == "darts:s3:2"


def test_they_stand_beside_the_options_in_files_and_tasks():
    options = resolve_options("fednas", {"space": "darts:s3:2"})
    assert {name: options[name] for name in ("space", *CELLS)} == {"space": "darts", **CELLS}
    assert FedNASOptions(**options).model_dump(mode="json", exclude_none=True) == options
    assert not set(CELLS) & set(resolve_options("fednas", {"space": "nasbench201"}))


def test_text_becomes_their_type():
    assert resolve_options("fednas", {"nodes": "2"})["nodes"] == 2
    with pytest.raises(
        FedloomError, match=r"`options.nodes` must be a valid integer, but got 'two'"
    ):
        resolve_options("fednas", {"nodes": "two"})


def test_what_nobody_gives_is_as_the_method_has_it_and_else_as_the_space_has_it():
    assert space_for(FedNASOptions()).name == "darts:full:4"
    assert (
        space_for(SpiderOptions()).name
        == space_for(SpiderOptions(space="darts")).name
        == "darts:s2:4"
    )
    assert space_for(SpiderOptions(nodes=1)).name == "darts:s2:1"
    assert space_for(SpiderOptions(space="nasbench201")).name == "nasbench201"


def test_a_space_of_ones_own_has_its_own(chain):
    options = SpiderOptions(space=chain, depth="5")
    assert space_for(options).name == f"{chain}:5:False"
    assert space_for(SpiderOptions(space=f"{chain}:5:true")).wide_start
    assert space_for(SpiderOptions(**options.model_dump())) == space_for(options)
    with pytest.raises(
        FedloomError, match=r"`options.depth` must be greater than or equal to 1, but got 0"
    ):
        SpiderOptions(space=chain, depth=0)
    with pytest.raises(
        FedloomError,
        match=r"DEPTH in chain.py:Chain:DEPTH:WIDE_START must be greater .* got .*:0:true",
    ):
        SpiderOptions(space=f"{chain}:0:true")
    with pytest.raises(
        FedloomError,
        match=r"`nodes` must be .*, but chain.py:Chain has depth, wide_start; leave nodes",
    ):
        SpiderOptions(space=chain, nodes=2)


def test_a_method_that_leaves_the_size_to_the_space_takes_parameters_too(tmp_path):
    task = Task("fedoras", {}, "image", (1, 8, 8), ("a", "b"), 0, (0.5,), (0.5,))
    file = tmp_path / "own.py"
    sized = (
        f"from fedloom.registry import from_file\nSized = from_file({str(SIZED)!r} + ':Sized')\n"
    )
    file.write_text(EXAMPLE.read_text() + sized + "class Own(Sized, Chain):\n    pass\n")
    options = FedorASOptions(space=f"{file}:Own", depth="2")
    assert options.model_dump()["depth"] == 2
    searched = options.searched(task)
    assert searched.space.name == f"{file}:Own:2" and searched.size == (1, 2, "mean")
    assert searched.is_foreign
    assert FedorASOptions(**options.model_dump()).searched(task) == searched
    with pytest.raises(
        FedloomError, match=r"`options.depth` must be greater than or equal to 1, but got 0"
    ):
        resolve_options("fedoras", {"space": f"{file}:Own", "depth": 0})
    with pytest.raises(FedloomError, match=r"option `options.depth` must be a known name"):
        resolve_options("fedoras", {"space": "cnn-tiny", "depth": 2})


def test_the_usual_space_is_for_methods_that_leave_it_to_the_data():
    searched = FedorASOptions(head="mean").searched(
        Task("fedoras", {}, "image", (1, 8, 8), ("a", "b"), 0, (0.5,), (0.5,))
    )
    assert (
        searched.space.name == "cnn-tiny"
        and searched.size.head == "mean"
        and not searched.is_foreign
    )
    with pytest.raises(FedloomError, match="search space must be a known name, but got 'auto'"):
        resolve_options("fednas", {"space": "auto"})
    with pytest.raises(FedloomError, match="must be a known name, but got 'depth'"):
        resolve_options("fedoras", {"depth": 2})


@pytest.mark.parametrize("name", METHODS.names())
def test_the_recipe_says_what_is_searched(name):
    task = Task(name, {}, "image", (3, 32, 32), ("a", "b"), 0, (0.5,), (0.5,))
    searches = {"fednas": "darts:full:4", "spider": "darts:s2:4", "fedoras": "cnn-l"}
    searches |= dict.fromkeys(["finch", "decnas", "onenas"], "group:full:4:4")
    searches |= dict.fromkeys(["feddsnas", "ca-feddsnas", "fedpnas", "ca-fedpnas"], "stacks:3:1:2")
    searched = recipe(name).searched(task)
    if name not in searches:
        assert searched is None
        return
    assert searched.space.name == searches[name]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"space": "nasbench201", "ops": "s2"}, FOREIGN),
        ({"space": "darts:s2:4", "nodes": 2}, TWICE),
        ({"space": "darts:s2:4", "nodes": 4}, TWICE),
        (
            {"nods": 2},
            "option `options.nods` must be a known name, but got 'nods'; did you mean nodes?",
        ),
        (
            {"epoch": 2},
            "option `options.epoch` must be a known name, but got 'epoch'; did you mean epochs?",
        ),
        ({"space": "nasbench201", "depth": 2}, "option `options.depth` must be a known name"),
        ({"space": "nasbench201", "nods": 2}, "option `options.nods` must be a known name"),
        ({"ops": "s1", "nodes": 3}, "op set s1 must have cells of 4 nodes, but got 3"),
        ({"nodes": 33}, "a cell must have 1 to 32 nodes, but got 33"),
    ],
)
def test_what_does_not_fit_is_refused(options, sentence):
    with pytest.raises(FedloomError) as caught:
        resolve_options("fednas", options)
    assert sentence in str(caught.value)


def test_what_is_no_name_is_left_to_the_schema():
    with pytest.raises(ValidationError, match="valid string"):
        SpaceOptions(space=3)
    with pytest.raises(ValidationError, match="valid dictionary"):
        SpaceOptions.model_validate(3)


# Runs of before: each kept `ops` and `nodes`, and its space took what it had a use for


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ({"space": "nasbench201", "ops": "full", "nodes": 4}, "nasbench201"),
        ({"space": "darts:s2:3", "ops": "full", "nodes": 4}, "darts:s2:3"),
        ({"space": "darts", "ops": "s2", "nodes": 1}, "darts:s2:1"),
    ],
)
def test_a_run_of_before_has_the_space_that_it_had(before, name):
    assert space_for(FedNASOptions(**as_before(FedNASOptions, before))).name == name


def test_a_run_of_before_whose_space_is_gone_keeps_what_it_says():
    before = {"space": "gone.py:Chain", "ops": "full", "nodes": 4}
    assert as_before(FedNASOptions, before).items() >= before.items()


# As a person gives them


@pytest.mark.parametrize(
    "words",
    [
        ["fednas", "--space", "nasbench201", "--ops", "s2"],
        ["fednas", "--ops", "s2", "--space=nasbench201"],
        ["fednas:space=nasbench201", "--ops", "s2"],
        ["fednas:space=nasbench201,ops=s2"],
        ["spider", "--set", "options.space=nasbench201", "--ops", "s2"],
        ["spider", "--set", "options.space=nasbench201", "--set", "options.ops=s2"],
    ],
)
def test_a_flag_of_another_space_is_refused(words, capsys):
    assert cli.main(["run", *words]) == 2
    assert capsys.readouterr().err == f"fedloom: {FOREIGN}\n"


def test_a_variant_decides_which_flags_there_are(capsys):
    """It wins over the other flags, so its space's parameters are the ones that may be given."""
    words = ["fednas:space=darts", "--space", "nasbench201", "--ops", "s9", "--rounds", "2"]
    assert cli.main(["run", *words]) == 2
    assert (
        "`options.ops` must be 'full', 's1', 's2', 's3', 's4' or 's5', but got 's9'"
        in capsys.readouterr().err
    )


def test_a_flag_that_nobody_has_is_answered_with_the_nearest_of_method_and_space(chain, capsys):
    assert cli.main(["run", "fednas", "--nods", "2"]) == 2
    assert (
        "a flag must be a known name, but got 'nods'; did you mean nodes?"
        in capsys.readouterr().err
    )
    assert cli.main(["run", "fednas", "--space", chain, "--wide-star", "2"]) == 2
    assert "got 'wide-star'; did you mean wide-start?" in capsys.readouterr().err
    assert cli.main(["run", "fednas", "--space", "darts:s2:4", "--nodes", "2"]) == 2
    assert TWICE in capsys.readouterr().err


def test_keywords_of_the_package():
    assert split_flags("fednas", {"nodes": 2, "ops": "s2"})["options"] == {"nodes": 2, "ops": "s2"}
    assert (
        split_flags("fednas:space=darts", {"space": "nasbench201", "nodes": 2})["options"]["nodes"]
        == 2
    )
    with pytest.raises(
        FedloomError, match="`ops` must be a parameter of the search space that is chosen"
    ):
        split_flags("fednas", {"space": "nasbench201", "ops": "s2"})
    with pytest.raises(
        FedloomError, match=r"a keyword of fednas must be a known name, .* did you mean nodes?"
    ):
        split_flags("fednas", {"nods": 2})


def test_variants_and_files():
    config = configure("fednas:nodes=2", {"options": {"ops": "s2"}})
    assert space_for(FedNASOptions(**config.options)).name == "darts:s2:2"


def test_they_are_shown(chain, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main(["list", "spaces"]) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    parameters = (
        "in the name, darts:OPS:NODES: ops = full (full|s1|s2|s3|s4|s5), op set of a cell's edges; "
        "nodes = 4, "
    )
    assert parameters in listed["darts"]
    assert "Parameters" not in listed["nasbench201"]
    shown = {}
    for variant in ("spider", "fednas:space=nasbench201", f"fednas:space={chain}"):
        assert cli.main(["run", variant, "--help"]) == 0
        lines = [
            line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("--")
        ]
        shown[variant] = {words[0]: words[1] for words in lines}
    assert (
        shown["spider"].items() >= {"--space": "darts:s2:4", "--ops": "s2", "--nodes": "4"}.items()
    )
    assert not {"--ops", "--nodes"} & set(shown["fednas:space=nasbench201"])
    assert (
        shown[f"fednas:space={chain}"].items() >= {"--depth": "3", "--wide-start": "False"}.items()
    )


# What makes a space small: it says so itself


def test_a_toy_searches_the_chosen_space_with_its_own_tiny_parameters(chain):
    file = Path(chain.partition(".py:")[0] + ".py")
    file.write_text(file.read_text() + "    tiny = {'depth': 2}\n")
    tiny = Toy.of("fednas", {"space": chain}).task.options
    assert (tiny["depth"], tiny["wide_start"], tiny["cells"]) == (2, False, 3)
    assert Toy.of("fednas", {"space": chain, "depth": 1}).task.options["depth"] == 1


def test_a_toy_searches_the_default_space_with_two_operations_an_edge_and_two_nodes():
    assert space_for(FedNASOptions(**Toy.of("fednas").task.options)).name == "darts:s2:2"
    in_full = Toy.of("fednas", {"space": "darts:s3:3"}).task.options
    assert space_for(FedNASOptions(**in_full)).name == "darts:s3:3"
    assert not {"ops", "nodes"} & set(Toy.of("fedavg").task.options)


def test_the_demo_searches_small_cells():
    config = configure(demo.SEARCH, {})
    options = resolve_options(config.method, config.options)
    assert {name: options[name] for name in ("space", "ops", "nodes")} == {
        "space": "darts",
        "ops": "s2",
        "nodes": 2,
    }

"""Files that a person can edit, broken in every way.

Each is read, or refused in one sentence, at once.
"""

import json
import shutil
import sys
import time
import tomllib
from pathlib import Path

import mutating
import pytest

from fedloom import cli
from fedloom.config.assigning import read_toml
from fedloom.config.models import Experiment, validated
from fedloom.cost.profile import read_profile
from fedloom.data.split import Split, hash_of
from fedloom.deploy.settled import prepared_from
from fedloom.errors import FedloomError
from fedloom.networks import NETWORKS
from fedloom.records.folder import RunFolder
from fedloom.records.plan import grid_points, read_plan
from fedloom.report.page import write_report
from fedloom.runs.configure import configure
from fedloom.runs.experiment import check
from fedloom.runs.planning import experiment
from fedloom.runs.preparing import prepare, reopen

OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0"
MOST_SECONDS = (
    5  # of CPU: far more than any file takes, and far less than one that makes a reader run away
)
COUNT = 100  # mutations of each file
SIZES = {"inputs": 1, "outputs": 2, "height": 3, "width": 4, "stride": 1}
TIMES = {"ms": 0.5, "spread_ms": 0.1, "repeats": 5}
PROFILE = {
    "format": 1, "made": "2026-01-01",
    "machine": {"processor": "p", "system": "s", "device": "cpu", "torch": "2"},
    "entries": [{"op": "sep_conv_3x3", **SIZES, **TIMES}, {"op": "dil_conv_3x3", **SIZES, **TIMES}],
}  # fmt: skip
GENOTYPE = {
    "normal": [["sep_conv_3x3", 0], ["skip_connect", 1]],
    "reduce": [["max_pool_3x3", 0], ["sep_conv_5x5", 1]],
    "cells": 4, "channels": 8, "affine": True,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def warm():
    """What is imported or opened first is not the file's fault."""
    reopen(RunFolder.open(OLD / "fedavg"))


def outcome_of(read):
    """ "read", "refused", or what went wrong."""
    began = time.process_time()  # of a busy machine too
    try:
        read()
        outcome = "read"
    except FedloomError as error:
        outcome = "refused"
        if "\n" in str(error) or len(str(error)) > 1000:
            outcome = f"no sentence: {str(error)[:200]}"
    except Exception as error:  # what this test is about
        outcome = f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - began
    return f"{outcome} after {seconds:.1f} s" if seconds > MOST_SECONDS else outcome


def check_all(contents, path, read, least_read=1):
    """Every content is read or refused; some of both, or the test would say nothing."""
    outcomes = []
    for content in contents:
        path.write_bytes(content)
        outcomes.append((outcome_of(read), content[:300]))
    wrong = [
        (outcome, content) for outcome, content in outcomes if outcome not in ("read", "refused")
    ]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}, the first: {wrong[0]}"
    kinds = [outcome for outcome, _ in outcomes]
    assert kinds.count("read") >= least_read and kinds.count("refused") > len(kinds) // 3


@pytest.mark.parametrize("name", ["fedavg", "spider", "adapt"])
def test_config_of_a_run(name, tmp_path):
    run = Path(shutil.copytree(OLD / name, tmp_path / "run"))
    content = (run / "config.toml").read_bytes()
    broken = mutating.mutations(content, tomllib.loads(content.decode()), mutating.as_toml, COUNT)
    check_all(broken, run / "config.toml", lambda: reopen(RunFolder.open(run)))


def test_config_of_a_new_run(tmp_path):
    path = tmp_path / "given.toml"
    content = (OLD / "spider" / "config.toml").read_bytes()

    def read():
        tree = read_toml(path)
        prepare(configure(validated(Experiment, tree).method, tree))

    check_all(
        mutating.mutations(
            content, tomllib.loads(content.decode()), mutating.as_toml, COUNT, seed=1
        ),
        path,
        read,
    )


@pytest.mark.parametrize("name", ["fedavg", pytest.param("spider", marks=pytest.mark.slow)])
def test_every_option_with_every_odd_value_that_is_a_number(name, tmp_path):
    """Sizes that nobody could build are refused before anything is allocated."""
    run = Path(shutil.copytree(OLD / name, tmp_path / "run"))
    tree = tomllib.loads((run / "config.toml").read_text())
    contents = []
    for number in range(len(mutating.places_in(tree))):
        for value in (10**9, 10**18, 10**30, 1e308):
            changed = tomllib.loads((run / "config.toml").read_text())
            container, key = mutating.places_in(changed)[number]
            if not isinstance(container[key], int | float) or isinstance(container[key], bool):
                continue
            container[key] = value
            contents.append(mutating.as_toml(changed))
    check_all(contents, run / "config.toml", lambda: check(reopen(RunFolder.open(run))))


def architecture(name):
    return json.loads((OLD / name / "architectures" / "client-0.json").read_text())


@pytest.mark.parametrize("name", ["published", "spider", "fednas-nasbench201"])
def test_genotypes(name, tmp_path):
    tree = GENOTYPE if name == "published" else architecture(name)
    path = tmp_path / "genotype.json"
    broken = mutating.mutations(mutating.as_json(tree), tree, mutating.as_json, 2 * COUNT)
    check_all(broken, path, lambda: NETWORKS.get(str(path)))


@pytest.mark.parametrize(
    "changes",
    [
        {"cells": 10**9}, {"channels": 10**9}, {"cells": 1000, "channels": 65536}, {"cells": True},
        {"cells": 2.0},
        {"space": "darts:full:1000000000"}, {"space": f"darts:full:{'9' * 5000}"},
        {"choice": [[0] * 10**5]},
        {"choice": [[1e400]]}, {"choice": [["0"]]}, {"affine": 1},
    ],
    ids=lambda changes: str(changes)[:40],
)  # fmt: skip
def test_absurd_sizes_are_refused_before_anything_is_allocated(changes, tmp_path):
    path = tmp_path / "genotype.json"
    path.write_bytes(mutating.as_json({**architecture("spider"), **changes}))
    assert outcome_of(lambda: NETWORKS.get(str(path))((1, 8, 8), 10, 1.0)) == "refused"


@pytest.mark.parametrize(
    "network", ["supernet:s2:9999999999:2", "supernet:s2:2:999999", f"supernet:s2:2:{'9' * 5000}"]
)
def test_absurd_sizes_in_a_name(network):
    assert outcome_of(lambda: NETWORKS.get(network)((1, 8, 8), 10, 1.0)) == "refused"


@pytest.mark.parametrize("network", ["cnn", "vgg16", "resnet18", "darts-v2"])
def test_a_network_that_no_memory_holds(network):
    tree = {
        "options": {"network": network, "width": 1000},
        "data": {"name": "digits", "clients": 2},
    }
    assert outcome_of(lambda: prepare(configure("fedavg", tree))) == "refused"


def test_profiles(tmp_path):
    path = tmp_path / "profile.json"
    broken = mutating.mutations(mutating.as_json(PROFILE), PROFILE, mutating.as_json, 2 * COUNT)
    check_all(broken, path, lambda: read_profile(path).latency_ms({}))


def test_comparisons(tmp_path):
    folder = RunFolder.create("compare", "x", tmp_path / "compare")
    content = (OLD / "compare" / "compare.json").read_bytes()

    def read():
        plan = read_plan(folder)
        for method in plan.methods:
            experiment(plan, method, plan.seeds[0], {"budget": {"rounds": 1}})
        grid_points(plan.grid)

    broken = mutating.mutations(content, json.loads(content), mutating.as_json, 2 * COUNT)
    check_all(broken, folder.path / "compare.json", read)


def test_heads_of_runs(tmp_path):
    run = Path(shutil.copytree(OLD / "fedavg", tmp_path / "run"))
    content = (run / "run.json").read_bytes()

    def read():
        folder = RunFolder.open(run)
        assert folder.kind in ("run", "compare") and folder.summary()

    check_all(
        mutating.mutations(content, json.loads(content), mutating.as_json, 2 * COUNT),
        run / "run.json",
        read,
    )


def test_splits(tmp_path):
    """Also with a right hash of the wrong content."""
    path = tmp_path / "split.json"
    content = (OLD / "fedavg" / "split.json").read_bytes()

    def resealed(tree):
        content = {name: value for name, value in tree.items() if name != "hash"}
        return mutating.as_json({**content, "hash": hash_of(content)})

    check_all(
        mutating.mutations(content, json.loads(content), resealed, COUNT),
        path,
        lambda: Split.load(path),
    )


def test_classes_of_clients(tmp_path):
    run = Path(shutil.copytree(OLD / "fedavg", tmp_path / "run"))
    path = run / "classes.json"
    content = (OLD / "fedavg" / "classes.json").read_bytes()
    broken = list(mutating.mutations(content, json.loads(content), mutating.as_json, COUNT))
    infinite = json.loads(content)
    infinite["counts"][0][0] = float("inf")
    check_report([*broken, mutating.as_json(infinite), b"3", b"[1]"], path)


def test_names_of_sites(tmp_path):
    run = Path(shutil.copytree(OLD / "federation-runs" / "finished", tmp_path / "run"))
    path = run / "sites.json"
    content = (OLD / "federation-runs" / "finished" / "sites.json").read_bytes()
    broken = list(mutating.mutations(content, json.loads(content), mutating.as_json, COUNT))
    check_report([*broken, b"3", b"[1]", b"null", b"{}"], path)
    check_all(broken, path, lambda: prepared_from(RunFolder(run)))


def check_report(contents, path):
    """The page is written whatever the file holds, and tells of every file that cannot be read."""
    damaged = 0
    for content in contents:
        path.write_bytes(content)
        assert outcome_of(lambda: write_report(RunFolder(path.parent))) == "read", content[:300]
        damaged += f"{path.name} is damaged: " in (path.parent / "report.html").read_text()
    assert len(contents) // 3 < damaged < len(contents)


def test_a_grid_that_would_never_end():
    with pytest.raises(
        FedloomError, match=r"--grid must have at most 10,000 points, but it has 1,000,000,000,000"
    ):
        grid_points({name: ["1"] * 1000 for name in "abcd"})


# Through the command line


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe",
        b"\x00" * 50,
        b"[[[[" * 3000,
        b"seed = 99999999999999999999",
        b"options = 3",
        b"seed = 1\nseed = 2",
    ],
    ids=repr,
)
def test_the_command_line_says_one_sentence(damage, tmp_path, capsys):
    run = Path(shutil.copytree(OLD / "stopped-fedavg", tmp_path / "run"))
    (run / "config.toml").write_bytes(damage)
    (tmp_path / "g.json").write_bytes(damage)
    for words in (
        ["resume", str(run)], ["run", "--config", str(run / "config.toml")],
        ["report", str(tmp_path)],
        ["run", "fedavg", "--network", str(tmp_path / "g.json"), "--out", str(tmp_path / "new")],
    ):  # fmt: skip
        assert cli.main(words) == 2
        errors = capsys.readouterr().err
        assert (
            errors.startswith("fedloom: ") and errors.count("\n") == 1 and "Traceback" not in errors
        )
    assert not (tmp_path / "new").exists()


def test_the_mutations_are_the_same_every_time():
    first = list(mutating.mutations(b'{"a": [1, 2]}', {"a": [1, 2]}, mutating.as_json, 50, seed=4))
    assert first == list(
        mutating.mutations(b'{"a": [1, 2]}', {"a": [1, 2]}, mutating.as_json, 50, seed=4)
    )
    assert len(set(first)) > 30 and sys.getrecursionlimit() < mutating.DEEP

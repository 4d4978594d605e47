"""Runs that are stopped at random and whose files are then damaged at random end with the figures
of undisturbed ones.

`FEDLOOM_SURVIVAL=500 make test-slow` tries more than the few that stand here.
"""

import os

import numpy as np
import pytest
import tiny
from damaging import figures_of, resumed, stopped_in_round

from fedloom.federation.protocol import parcels
from fedloom.rng import rng

pytestmark = pytest.mark.slow

TRIES = int(os.environ.get("FEDLOOM_SURVIVAL", "40"))
CASES = {
    "shared": ("fedavg", {}),
    "private": ("ditto", {}),
    "several stages": ("local-adaptation", {}),
    "clusters": ("ditto", {"engine": {"topology": "clustered:2x2"}}),
    "best round": ("ditto", {"evaluate": {"select": "best"}}),
    "best round of stages": ("fedrep", {"evaluate": {"select": "best"}}),
}
ROUNDS = 4
REPLIES = 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """By case, a configuration, and figures and rounds of the run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    data = tiny.write_images(folder / "images.npz")
    runs = {}
    for name, (method, sections) in CASES.items():
        configuration = tiny.tree(data, rounds=ROUNDS, **sections)
        tiny.start(folder / name, method, configuration)
        rounds = [row["round"] for row in tiny.rows(folder / name)]
        runs[name] = (method, configuration, figures_of(folder / name), rounds)
    return runs


def damage(path, draws):
    """One thing that a disk or a power cut does to a file."""
    content = bytearray(path.read_bytes())
    what = int(draws.integers(5))
    if what == 0 or not content:
        path.unlink()
        return
    place = int(draws.integers(len(content)))
    if what == 1:
        content[place] ^= 1 << int(draws.integers(8))
    elif what == 2:
        del content[place:]
    elif what == 3:
        content[place:] = bytes(len(content) - place)
    else:
        content[:] = b""
    path.write_bytes(content)


def exposed(out):
    """The files that may be damaged without loss.

    They are all but the configuration, the split and what only clients have.
    """
    files = [out / "metrics.jsonl", *(out / "checkpoints").iterdir(), *(out / "spool").iterdir()]
    return sorted(path for path in files if path.exists())


@pytest.mark.parametrize("number", range(TRIES))
def test_a_run_survives(number, undisturbed, tmp_path, monkeypatch):
    draws = rng(number, "survival")
    name = list(CASES)[number % len(CASES)]
    method, configuration, expected, rounds = undisturbed[name]
    monkeypatch.setattr(parcels, "MOST_HELD", int(draws.choice([0, 1 << 14])))
    out = tmp_path / "run"
    stop = (int(draws.integers(1, ROUNDS + 1)), int(draws.integers(1, REPLIES + 1)))
    stopped_in_round(*stop, out, method, configuration)
    victims = draws.permutation(np.array(exposed(out), dtype=object))
    for path in victims[: int(draws.integers(1, 4))]:
        damage(path, draws)
    resumed(out)
    assert figures_of(out) == expected
    assert [row["round"] for row in tiny.rows(out)] == rounds

"""The report of models whose samples take paths of their own."""

import json
from html import unescape

from fabricated import client, make_run, row

from fedloom.report.page import run_page
from fedloom.report.story import Reader

TAKEN = {
    "fixed_macs": 100,
    "edges": [
        {
            "slot": "base.0.0-2",
            "ops": ["pool", "conv"],
            "macs": [0, 40],
            "share": [0.25, 0.75],
            "share_by_class": {"cat": [0.5, 0.5], "dog": [0.0, 1.0]},
        },
        {
            "slot": "personal.0.0-1",
            "ops": ["skip", "conv"],
            "macs": [0, 20],
            "share": [1.0, 0.0],
            "share_by_class": {"cat": [1.0, 0.0], "dog": [1.0, 0.0]},
        },
    ],
}
ROUTES = {
    "samples": 8, "distinct": 2, "entropy": 0.56,
    "top": [{"path": ["conv", "skip"], "share": 0.75}, {"path": ["pool", "skip"], "share": 0.25}],
}  # fmt: skip
COSTS = {"macs": 130, "macs_std": 17.3, "macs_max": 140.0, "shuffled_accuracy": 0.5, "params_used": 11.0}


def page_of(tmp_path, clients, **files):
    rows = [row(1, 0.5, tau=0.5, entropy=1.25, free=0.4)]
    folder = make_run(tmp_path / "run", rows, clients)
    (folder.path / "architectures").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder.path / "architectures" / f"client-{name[1:]}.routes.json").write_text(content)
    return unescape(run_page(Reader(folder).read()))


def test_shares_costs_and_common_paths_are_told(tmp_path):
    page = page_of(tmp_path, [client(0, 0.75, routes=ROUTES, **COSTS)], k0=json.dumps(TAKEN))
    assert 'id="routes"' in page and 'id="routes-0-figure"' in page
    assert "2 of 8" in page and "base.0.0-2" in page
    assert "conv, skip" in page  # the most common path
    assert "pool 50 %, skip 100 %" in page  # of the first class; ties go to the first operation
    assert "120" in page and "140" in page  # what a cat and a dog cost: 100 + ½·40, 100 + 40
    assert "Every sample takes a path of its own" in page
    assert "1.250" in page and "0.500" in page  # entropy and temperature


def test_a_model_with_one_path_has_no_such_section(tmp_path):
    page = page_of(tmp_path, [client(0, 0.75)])
    assert 'id="routes-0-figure"' not in page
    assert "Every sample takes a path of its own" not in page


def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path):
    clients = [client(0, 0.75, routes=ROUTES, **COSTS), client(1, 0.5, routes=ROUTES, **COSTS)]
    page = page_of(tmp_path, clients, k0="{", k1=json.dumps(TAKEN))
    assert "client-0.routes.json is damaged" in page
    assert 'id="routes-1-figure"' in page and 'id="routes-0-figure"' not in page

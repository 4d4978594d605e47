"""The report of models whose samples take paths of their own."""

import json
from html import unescape

from fabricated import client, make_run, row

from fedloom.report.page import run_page
from fedloom.report.story import Reader
from fedloom.spaces import open_space

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
    "samples": 8,
    "distinct": 2,
    "entropy": 0.56,
    "top": [{"path": ["conv", "skip"], "share": 0.75}, {"path": ["pool", "skip"], "share": 0.25}],
}
COSTS = {
    "macs": 130,
    "macs_std": 17.3,
    "macs_max": 140.0,
    "shuffled_accuracy": 0.5,
    "params_used": 11.0,
}


SUPERNET = {"space": "stacks:1:1:1", "edges": 3, "params": 10, "sampler_params": 5}


def page_of(tmp_path, clients, supernet=SUPERNET, **files):
    rows = [row(1, 0.5, tau=0.5, entropy=1.25, free=0.4)]
    folder = make_run(tmp_path / "run", rows, clients, supernet=supernet)
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
    assert "Every sample takes its own path" in page
    assert "1.250" in page and "0.500" in page  # entropy and temperature


def test_a_model_with_one_path_has_no_such_section(tmp_path):
    page = page_of(tmp_path, [client(0, 0.75)])
    assert 'id="routes-0-figure"' not in page
    assert "Every sample takes its own path" not in page


def edge(slot, ops, share):
    by_class = {"cat": share, "dog": share}
    return {
        "slot": slot,
        "ops": ops,
        "macs": [0] * len(ops),
        "share": share,
        "share_by_class": by_class,
    }


def drawn_routes(base, personal):
    """Of `stacks:1:1:1`: two edges of the base, one of the personal part."""
    space = open_space("stacks:1:1:1")
    edges = []
    for slot, share in zip(space.slots, [base, base, personal], strict=True):
        edges.append(edge(slot.name, list(slot.options), share))
    return json.dumps({"fixed_macs": 100, "edges": edges})


def test_the_base_is_drawn_once_and_every_personal_part(tmp_path):
    """Client 0 takes pools in the base, client 1 mostly skips: over both, skips win."""
    clients = [client(number, 0.75, routes=ROUTES, **COSTS) for number in (0, 1)]
    pools = drawn_routes([0.6, 0, 0, 0, 0, 0, 0, 0, 0.4], [1.0, 0, 0, 0, 0])
    skips = drawn_routes([0.0, 0, 0, 0, 0, 0, 0, 0, 1.0], [0.0, 0, 1.0, 0, 0])
    page = page_of(tmp_path, clients, k0=pools, k1=skips)
    drawings = {}
    for key in ("cells-base", "cells-0", "cells-1"):
        begin = page.index(f'aria-labelledby="{key}-title')
        drawings[key] = page[begin : page.index("</svg>", begin)]
    assert (
        drawings["cells-base"].count("skip_connect") == 2
        and "personal cell" not in drawings["cells-base"]
    )
    assert "avg_pool_3x3" in drawings["cells-0"] and "sep_conv_3x3" in drawings["cells-1"]
    assert "base cell" not in drawings["cells-0"] + drawings["cells-1"]
    assert "Each edge shows the operation that most test samples take." in page
    assert page.count("1 edge differs") == 1  # of two that differ, the first is the usual one


def test_class_by_class(tmp_path):
    page = page_of(tmp_path, [client(0, 0.75, routes=ROUTES, **COSTS)], k0=json.dumps(TAKEN))
    assert "cat (120)" in page and "dog (140)" in page  # the cheapest and the dearest class
    assert 'data-key="routes-0-class-0"' in page and 'data-key="routes-0-class-1"' in page


def test_without_samplers_only_the_choice_is_shown(tmp_path):
    one_path = {**ROUTES, "distinct": 1, "top": ROUTES["top"][:1]}
    clients = [client(0, 0.75, routes=one_path, **{**COSTS, "shuffled_accuracy": None})]
    page = page_of(
        tmp_path, clients, supernet={**SUPERNET, "sampler_params": 0}, k0=json.dumps(TAKEN)
    )
    assert 'id="choice-figure"' in page and 'id="routes-0-figure"' not in page


def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path):
    clients = [client(0, 0.75, routes=ROUTES, **COSTS), client(1, 0.5, routes=ROUTES, **COSTS)]
    page = page_of(tmp_path, clients, k0="{", k1=json.dumps(TAKEN))
    assert "client-0.routes.json is damaged" in page
    assert 'id="routes-1-figure"' in page and 'id="routes-0-figure"' not in page

"""Over a whole run no byte that a client sends up tells of its private model or architecture."""

import pytest
import tiny

from fedloom.federation.client.store import ClientStore

OPTIONS = {
    "cells": "3",
    "channels": "2",
    "nodes": "1",
    "ops": "s2",
    "batch": "8",
    "t_s": "1",
    "tau": "1",
}
OTHERWISE = [{"search": "random"}, {"keep": "printed", "lam": "3"}, {"lam": "inf"}]


def sent_up(patch, images, out, changes):
    with patch.context() as patched:
        heard = tiny.overheard(patched)
        tree = tiny.tree(images, rounds=5, evaluate={"every": 5})
        tiny.start(out, "spider", {**tree, "options": {**OPTIONS, **changes}})
    return sorted(heard), private(out)


def private(out):
    last = tiny.Archive(out).load(5)
    return [ClientStore(out / "clients").read(k, version) for k, version in last.versions.items()]


@pytest.mark.slow
def test_another_private_model_leaves_everything_that_is_sent_as_it_is(tmp_path, monkeypatch):
    images = tiny.write_images(tmp_path / "images.npz", samples=90, side=8)
    heard, own = sent_up(monkeypatch, images, tmp_path / "run", {})
    assert len(heard) == 15  # five rounds of three clients
    for number, changes in enumerate(OTHERWISE):
        also, other = sent_up(monkeypatch, images, tmp_path / f"other-{number}", changes)
        assert heard == also
        assert all(
            tiny.encoded(one) != tiny.encoded(two) for one, two in zip(own, other, strict=True)
        )
        if changes == {"search": "random"}:
            assert [state.meta["arch"] for state in own] != [state.meta["arch"] for state in other]

"""Runs with augmentation.

They have the same bits for any number of workers and after a stop, and only training is augmented.
"""

import numpy as np
import pytest
import tiny
import torch

from fedloom.data.augmenting import augment
from fedloom.errors import FedloomError
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create

pytestmark = pytest.mark.whole

TEXT = "crop:1+flip+cutout:2+rotate:10+randaugment:2:9"
SEARCH = {"batch": "8", "epochs": 1, "ops": "s2", "cells": 3, "nodes": 2, "channels": 2}
METHODS = {"fedavg": {}, "fednas": SEARCH, "spider": SEARCH}
SLOW_SPIDER = [
    pytest.param(name, marks=pytest.mark.slow) if name == "spider" else name for name in METHODS
]


def setting(images, method, text=TEXT, workers=0):
    configuration = tiny.tree(images, rounds=2, engine={"workers": workers})
    return {**configuration, "options": {**(METHODS[method] or tiny.SMALL), "augment": text}}


@pytest.mark.parametrize("method", SLOW_SPIDER)
def test_workers_change_no_bit(method, images, tmp_path, pool_of):
    tiny.start(tmp_path / "0", method, setting(images, method))
    expected = tiny.left_behind(tmp_path / "0")
    for count in (1, 2):
        tiny.start(
            tmp_path / str(count),
            method,
            setting(images, method, workers=count),
            pool=pool_of(count),
        )
        assert tiny.unlike(expected, tiny.left_behind(tmp_path / str(count))) == []
    tiny.start(tmp_path / "plain", method, setting(images, method, "none"))
    assert tiny.unlike(expected, tiny.left_behind(tmp_path / "plain")) != []


@pytest.mark.parametrize("method", SLOW_SPIDER)
def test_a_run_that_was_stopped_ends_the_same(method, images, tmp_path, monkeypatch):
    tiny.start(tmp_path / "whole", method, setting(images, method))
    calls = 0
    work = augment.Augmenter.__call__

    def stopping(self, x, generator):
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return work(self, x, generator)

    monkeypatch.setattr(augment.Augmenter, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        tiny.start(tmp_path / "stopped", method, setting(images, method))
    assert not (tmp_path / "stopped" / "result.json").exists()
    tiny.go_on(tmp_path / "stopped")
    assert calls > 8
    assert (
        tiny.unlike(tiny.left_behind(tmp_path / "whole"), tiny.left_behind(tmp_path / "stopped"))
        == []
    )


def test_alpha_is_validated_on_images_as_they_are(images, tmp_path, monkeypatch):
    """Nothing that is scored is augmented either: only training batches have changed images."""
    raw = {row.tobytes() for row in np.load(images)["x"]}
    plain = []
    changed = []
    from fedloom.federation.client import site
    from fedloom.searchers import milenas

    def known(x):
        return all(row.to(torch.uint8).numpy().tobytes() in raw for row in x)

    step = milenas.MiLeNAS.step
    score = site.figures_on

    def watched(self, train, validation):
        plain.append(known(validation.x))
        changed.append(not known(train.x))
        return step(self, train, validation)

    def scored(predict, part, *rest):
        plain.append(known(part.x))
        return score(predict, part, *rest)

    monkeypatch.setattr(milenas.MiLeNAS, "step", watched)
    monkeypatch.setattr(site, "figures_on", scored)
    tiny.start(tmp_path / "run", "fednas", setting(images, "fednas", "cutout:2"))
    assert changed and all(changed)
    assert len(plain) > len(changed) and all(plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crop:1+flop", "must be a known name, but got 'flop'; did you mean"),
        ("hue:0.1", "`augment` hue must have images of 3 channels, but they have 1"),
        ("crop:7", "crop must not be larger than the images of 6×6, but got 7"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_made(text, message, images, tmp_path):
    with pytest.raises(FedloomError, match=message):
        create(configure("fedavg", setting(images, "fedavg", text)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_floats_that_are_normalised_already_have_no_white(tmp_path):
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "z.npz", x=draw.normal(size=(60, 6, 6)).astype("float32"), y=np.arange(60) % 3
    )
    with pytest.raises(
        FedloomError,
        match="randaugment must have pixels from 0 to 1, 16 or 255, but they run from -",
    ):
        create(
            configure("fedavg", setting(tmp_path / "z.npz", "fedavg", "randaugment:2:9")),
            tmp_path / "run",
        )

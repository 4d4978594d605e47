"""Without Flower, or with another version of it: one sentence. These need no Flower."""

from importlib.metadata import PackageNotFoundError

import pytest
import tiny

from fedloom.errors import FedloomError
from fedloom.federation.engines import flower


def missing(name):
    raise PackageNotFoundError(name)


def test_without_flower_it_says_how_to_get_it(monkeypatch, images, tmp_path):
    monkeypatch.setattr(flower, "version", missing)
    with pytest.raises(
        FedloomError, match=r"there is no package flwr; `pip install 'fedloom\[flower\]'`"
    ) as caught:
        tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, engine={"kind": "flower-sim"}))
    assert caught.value.code == 2 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("found", ["1.40.9", "1.43.0", "2.0.0"])
def test_other_versions_are_refused(monkeypatch, found):
    monkeypatch.setattr(flower, "version", lambda name: found)
    with pytest.raises(FedloomError, match=f"at least 1.41 and below 1.43, but this is {found}"):
        flower.require()


@pytest.mark.parametrize("found", ["1.41.0", "1.42.7"])
def test_tested_versions_are_taken_and_call_nobody(monkeypatch, found):
    for name in flower.QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(flower, "version", lambda name: found)
    flower.require()
    assert (
        flower.os.environ["FLWR_TELEMETRY_ENABLED"]
        == "0"
        == flower.os.environ["RAY_USAGE_STATS_ENABLED"]
    )

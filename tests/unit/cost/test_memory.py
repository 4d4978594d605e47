import sys

import pytest
import torch

from fedloom.cost import memory
from fedloom.testing import Toy


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
def test_the_peak_is_of_what_happened_since_it_was_forgotten():
    assert memory.reset_peak()
    before = memory.peak()
    large = torch.ones(32 << 20)  # 128 MB, touched
    del large
    after = memory.peak()
    assert before is not None and after is not None and after - before > 100 << 20
    memory.reset_peak()
    assert memory.peak() < after - (100 << 20)


def test_where_the_peak_cannot_be_read_none_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    assert memory.peak() is None


@pytest.mark.parametrize("place", ["none/clear_refs", "."])
def test_where_the_peak_cannot_begin_anew_none_is_told(tmp_path, monkeypatch, place):
    """If the file is missing or read-only, the peak would include everything before."""
    monkeypatch.setattr(memory, "CLEAR_REFS", tmp_path / place)
    assert not memory.reset_peak()
    _, envelope = Toy.of("fedavg").site(tmp_path / "site").handle(b"", b"")
    assert envelope.fault is not None and envelope.memory is None

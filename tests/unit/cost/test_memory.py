import sys

import pytest
import torch

from fedloom.cost import memory


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")
def test_the_peak_is_of_what_happened_since_it_was_forgotten():
    memory.forget_peak()
    before = memory.peak()
    held = torch.ones(32 << 20)  # 128 MB, touched
    del held
    after = memory.peak()
    assert before is not None and after is not None and after - before > 100 << 20
    memory.forget_peak()
    assert memory.peak() < after - (100 << 20)


def test_elsewhere_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "FORGET", tmp_path / "none" / "clear_refs")
    memory.forget_peak()
    assert memory.peak() is None

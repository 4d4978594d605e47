"""What every method must satisfy, as tests that you inherit. In a test file of your own:

    from fedloom.testing import MethodContract

    class TestMine(MethodContract):
        method = "src/mine.py:mine"    # a registered name, or a file and the name of its recipe
        options = {"lr": 0.1}          # beyond the suite's tiny ones

Only this package needs pytest (`pip install fedloom[dev]`); nothing else in fedloom imports it.
"""

import pytest

for part in ("repeating", "crossing", "merging", "choosing"):
    pytest.register_assert_rewrite(f"fedloom.testing.{part}")

from fedloom.testing.contract import MethodContract  # noqa: E402 - asserts are rewritten only if told before
from fedloom.testing.toy import Toy, Trace, differences  # noqa: E402

__all__ = ["MethodContract", "Toy", "Trace", "differences"]

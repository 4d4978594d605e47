"""The contracts of methods and search spaces, as test classes to inherit from.

In your own test file:

    from fedloom.testing import MethodContract, SpaceContract

    class TestMyMethod(MethodContract):
        method = "src/mine.py:mine"    # a registered name, or a file and the name of its recipe
        options = {"lr": 0.1}          # in addition to those that make the runs tiny

    class TestMySpace(SpaceContract):
        space = "src/mine.py:Mine:4"   # a registered name, or a file and a class, with parameters
        shape = (1, 16, 16)            # of one sample; `kind`, `classes` and `size` can be set too

Only this package needs pytest (`pip install fedloom[dev]`); nothing else in fedloom imports it.
"""

import pytest

METHOD_PARTS = ("repeating", "crossing", "merging", "choosing", "serving")
SPACE_PARTS = ("architectures", "networks")

# pytest rewrites asserts only in modules that are registered before they are imported.
for part in (*METHOD_PARTS, *SPACE_PARTS):
    pytest.register_assert_rewrite(f"fedloom.testing.{part}")

from fedloom.testing.contract import MethodContract, SpaceContract  # noqa: E402
from fedloom.testing.space_toy import SpaceToy  # noqa: E402
from fedloom.testing.toy import Toy, Trace, differences  # noqa: E402

__all__ = ["MethodContract", "SpaceContract", "SpaceToy", "Toy", "Trace", "differences"]

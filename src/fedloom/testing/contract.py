"""The contract: one test a promise. The package's docstring says how to inherit it."""

from fedloom.testing.choosing import Choosing
from fedloom.testing.crossing import Crossing
from fedloom.testing.merging import Merging
from fedloom.testing.repeating import Repeating


class MethodContract(Repeating, Crossing, Merging, Choosing):
    """Inherit, set `method`, and pytest runs every promise against it on a toy federation."""

"""The contracts: one test a promise. The package's docstring says how to inherit them."""

from fedloom.testing.architectures import Architectures
from fedloom.testing.choosing import Choosing
from fedloom.testing.crossing import Crossing
from fedloom.testing.merging import Merging
from fedloom.testing.networks import Networks
from fedloom.testing.repeating import Repeating
from fedloom.testing.serving import Serving


class MethodContract(Repeating, Crossing, Merging, Choosing, Serving):
    """Inherit, set `method`, and pytest runs every promise against it on a toy federation."""


class SpaceContract(Architectures, Networks):
    """Inherit, set `space`, and pytest runs every promise against it on a small network."""

"""The contracts, with one test per promise. The package's docstring says how to inherit them."""

from fedloom.testing.architectures import Architectures
from fedloom.testing.choosing import Choosing
from fedloom.testing.crossing import Crossing
from fedloom.testing.merging import Merging
from fedloom.testing.networks import Networks
from fedloom.testing.repeating import Repeating
from fedloom.testing.serving import Serving


class MethodContract(Repeating, Crossing, Merging, Choosing, Serving):
    """Inherit and set `method`: pytest then tests every promise of it on a toy federation."""


class SpaceContract(Architectures, Networks):
    """Inherit and set `space`: pytest then tests every promise of it on a small network."""

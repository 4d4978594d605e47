"""The version, apart from everything heavy, so that `fedloom --version` answers at once."""

__version__ = "0.2.0"

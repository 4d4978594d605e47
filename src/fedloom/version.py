"""The version, apart from everything heavy, so that `fedloom --version` answers at once."""

__version__ = "0.1.0"

"""The version, in a module without heavy imports, so that `fedloom --version` answers at once."""

__version__ = "0.2.0"

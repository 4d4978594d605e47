"""A federation runs only what is installed at every site: nothing that lies in a file.

The submitter checks it for a clear error, and the server again: a submitter may be somebody else,
and a method in a file is a program that the server would run.
"""

from __future__ import annotations

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.registry import is_file
from fedloom.runs.configure import full_network_name
from fedloom.spaces import full_name


def check_installed(config: Experiment) -> None:
    """Raise an error if the method or one of its options is in a file."""
    for what, name in {"method": config.method, **config.options}.items():
        if needs_a_file(what, name):
            rule = f"a federation's {what} must be installed at every site"
            raise FedloomError(rule, f"{name} is a file", "make it an entry point")


def needs_a_file(option: str, value: object) -> bool:
    """Whether what an option names lies in a file, which sites do not have."""
    if not isinstance(value, str):
        return False
    if option == "space":
        value = full_name(value)  # what a TOML file defines travels without the file
    if option == "network":
        value = full_network_name(value)
    return is_file(value)

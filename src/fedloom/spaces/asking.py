"""Calls into the code of a space that may not be built in: any exception becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fedloom.errors import FedloomError, raised, shortened
from fedloom.registry import is_file

Answer = TypeVar("Answer")


def asked(name: str, duty: str, question: Callable[[], Answer]) -> Answer:
    """Returns what a space's own code answers; whatever it raises becomes a FedloomError.

    `duty` completes "the search space … must". Leaving the process counts as raising.
    """
    try:
        return question()
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        rule = f"the search space {shown(name)} must {duty}"
        raise FedloomError(rule, raised(error), "fix it; --debug shows where") from error


def shown(name: str) -> str:
    """Shortens a space's name for a sentence: of a file's path only the last part is left."""
    if is_file(name):
        return shortened(name.rpartition("/")[2], 80)
    return shortened(name, 80)

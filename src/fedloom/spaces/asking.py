"""Questions to a space whose code is not ours: whatever it raises becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fedloom.errors import FedloomError, raised, shortened
from fedloom.registry import is_file

Answer = TypeVar("Answer")


def asked(name: str, what: str, question: Callable[[], Answer]) -> Answer:
    """The answer of a space's own code, whatever that may raise.

    Leaving the process counts as raising.
    """
    try:
        return question()
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        rule = f"the search space {shown(name)} must {what}"
        raise FedloomError(rule, raised(error), "mend it; --debug shows where") from error


def shown(name: str) -> str:
    """A space in a file by the file's own name, so that a sentence stays short."""
    if is_file(name):
        return shortened(name.rpartition("/")[2], 80)
    return shortened(name, 80)

"""Checks of a space's class attributes, and the error for an answer of the wrong type."""

from __future__ import annotations

from fedloom.errors import FedloomError, shortened
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.space import Size, Space

GUIDE = "see docs/add-a-space.md"


def check_constants(space: Space) -> None:
    """Checks the kinds of data that a space is for, and its usual size."""
    kinds: object = asked(space.family, "say which kinds of data it is for", lambda: space.kinds)
    if not is_tuple_of(str, kinds) or not kinds:
        raise wrong_type(space.family, "kinds", "a tuple of names", kinds)
    usual: object = asked(space.family, "say how large it usually is", lambda: space.usual)
    if not isinstance(usual, Size) or not is_tuple_of(int, (usual.cells, usual.channels)):
        raise wrong_type(
            space.family,
            "usual",
            "a fedloom.spaces.space.Size of whole numbers",
            usual,
        )


def is_tuple_of(kind: type, answer: object) -> bool:
    return isinstance(answer, tuple) and all(isinstance(item, kind) for item in answer)


def wrong_type(name: str, question: str, expected: str, answer: object) -> FedloomError:
    rule = f"`{question}` of search space {shown(name)} must be {expected}"
    return FedloomError(rule, f"it is {shortened(repr(answer), 80)}", GUIDE)

"""What a space says of itself before it is asked for anything, and answers of the wrong type."""

from __future__ import annotations

from fedloom.errors import FedloomError, shortened
from fedloom.spaces.asking import asked, shown
from fedloom.spaces.space import Size, Space

GUIDE = "see docs/add-a-space.md"


def check_constants(space: Space) -> None:
    """Which kinds of data it is for, and how large it usually is."""
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


def wrong_type(name: str, question: str, wanted: str, answer: object) -> FedloomError:
    rule = f"`{question}` of search space {shown(name)} must be {wanted}"
    return FedloomError(rule, f"it is {shortened(repr(answer), 80)}", GUIDE)

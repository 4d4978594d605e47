"""The one error a user can meet.

Its grammar: what must hold, what was found, what to do. *"`--partition dirichlet:0` must have a
concentration above 0, but got 0; try dirichlet:0.5."* The command line prints it and exits with `code`.
"""

import difflib
from collections.abc import Iterable

LONGEST = 400  # characters of what must hold, and of what was found


class FedloomError(Exception):
    """`must`, but `found`; `todo`."""

    def __init__(self, must: str, found: str, todo: str, *, code: int = 2) -> None:
        super().__init__(f"{shortened(must)}, but {shortened(found)}; {todo}.")
        self.code = code


class RunStopped(FedloomError):
    """The run cannot go on now; everything up to its last checkpoint is safe and `resume` continues it."""

    def __init__(self, must: str, found: str, todo: str) -> None:
        super().__init__(must, found, todo, code=3)


def shortened(text: str, longest: int = LONGEST) -> str:
    """In one line and not too long, whatever a file or another library said."""
    line = " ".join(part.strip() for part in text.splitlines())
    if len(line) <= longest:
        return line
    return f"{line[: longest - 1]}…"


def unknown(what: str, name: str, known: Iterable[str]) -> FedloomError:
    """The error for a name that is not `known`, with its nearest match."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}? Known: {', '.join(names)}" if near else f"choose from {', '.join(names)}"
    return FedloomError(f"{what} must be a known name", f"got {shortened(repr(name), 80)}", advice)

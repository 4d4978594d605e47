"""The one error a user can meet.

Its grammar: what must hold, what was found, what to do. *"`--partition dirichlet:0` must have a
concentration above 0, but got 0; try dirichlet:0.5."* The command line prints it and exits with
`code`.
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
    """The run cannot go on now.

    Everything up to its last checkpoint is safe, and `resume` continues it.
    """

    def __init__(self, must: str, found: str, todo: str) -> None:
        super().__init__(must, found, todo, code=3)


class TooFewReplies(RunStopped):
    """Clients were asked and answered, but hardly a reply could be used: training diverged, say."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """In one line and not too long, whatever a file or another library said."""
    line = " ".join(part.strip() for part in text.splitlines())
    if len(line) <= longest:
        return line
    return f"{line[: longest - 1]}…"


def raised(error: BaseException) -> str:
    """What was found, where code that is not ours raised an error."""
    return f"it raised {type(error).__name__}: {shortened(str(error), 160)}".rstrip(": ")


def unknown(what: str, name: str, known_names: Iterable[str]) -> FedloomError:
    """The error for a name that is not among those known, with its nearest match."""
    rule = f"{what} must be a known name"
    found = f"got {shortened(repr(name), 80)}"
    names = sorted(known_names)
    if not names:
        return FedloomError(rule, f"{found}, and there is none to choose", "check what was named")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return FedloomError(rule, found, f"did you mean {near[0]}? Known: {', '.join(names)}")
    return FedloomError(rule, found, f"choose from {', '.join(names)}")

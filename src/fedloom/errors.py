"""The one error a user can meet.

Its grammar: what must hold, what was found, what to do. *"`--partition dirichlet:0` must have a
concentration above 0, but got 0; try dirichlet:0.5."* The command line prints it and exits with
`code`.
"""

import difflib
from collections.abc import Iterable, Sequence

LONGEST = 400  # characters of `rule`, and of `found`
MOST_DETAILS = 1000  # lines that follow a sentence
# Names that other projects use, and our names for the same things.
OTHER_NAMES = {
    "batch-size": "batch",
    "learning-rate": "lr",
    "local-epochs": "epochs",
    "lda": "dirichlet",
    "non-iid": "dirichlet",
    "noniid": "dirichlet",
    "num-clients": "clients",
    "num-rounds": "rounds",
}


class FedloomError(Exception):
    """The message reads: `rule`, but `found`; `advice`.

    `details` follow on separate lines, where the sentence is about many items, such as files.
    """

    def __init__(
        self,
        rule: str,
        found: str,
        advice: str,
        *,
        code: int = 2,
        details: Sequence[str] = (),
    ) -> None:
        lines = [f"{shortened(rule)}, but {shortened(found)}; {advice}."]
        for detail in details[:MOST_DETAILS]:
            lines.append(f"  {shortened(detail)}")
        if len(details) > MOST_DETAILS:
            lines.append(f"  and {len(details) - MOST_DETAILS:,} more")
        super().__init__("\n".join(lines))
        self.rule = rule
        self.found = found
        self.advice = advice
        self.code = code


class RunStopped(FedloomError):
    """The run cannot continue now.

    Everything up to its last checkpoint is safe, and `resume` continues it.
    """

    def __init__(self, rule: str, found: str, advice: str) -> None:
        super().__init__(rule, found, advice, code=3)


class TooFewReplies(RunStopped):
    """Clients answered, but too few of their replies could be used, e.g. because they diverged."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text from a file or another library, on one line and cut to `longest` characters."""
    line = " ".join(part.strip() for part in text.splitlines())
    if len(line) <= longest:
        return line
    return f"{line[: longest - 1]}…"


def raised(error: BaseException) -> str:
    """The `found` of a FedloomError, where code that is not ours raised an error."""
    return f"it raised {type(error).__name__}: {shortened(str(error), 160)}".rstrip(": ")


def unknown(what: str, name: str, known_names: Iterable[str]) -> FedloomError:
    """The error for a name that is not among those known, with its nearest match."""
    rule = f"{what} must be a known name"
    found = f"got {shortened(repr(name), 80)}"
    names = sorted(known_names)
    if not names:
        return FedloomError(rule, f"{found}, and there is none to choose", "check what was named")
    near = nearest(name, names)
    if near is not None:
        return FedloomError(rule, found, f"did you mean {near}? Known: {', '.join(names)}")
    return FedloomError(rule, found, f"choose from {', '.join(names)}")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Our name for what others call `name`, or else the name whose spelling is most similar."""
    ours = OTHER_NAMES.get(name.lower().replace("_", "-"))
    if ours in names:
        return ours
    similar = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if similar:
        return similar[0]
    return None

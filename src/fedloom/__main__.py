"""`python -m fedloom`, and what the command `fedloom` calls."""

from __future__ import annotations

import atexit
import os
import sys

# They write what they found and close it; what else the process holds can go all at once.
ENDED_AT_ONCE = ("export", "predict", "report", "plot", "list", "runs")


class End:
    """Ends the process without taking every object of torch or matplotlib apart first.

    That takes a fifth of a second, and the memory is given back all the same. Whoever registers it
    before anything else has it called last: threads have ended by then, and every other function
    that was registered for the end has been called.
    """

    code: int | None = None  # None: the process ends as usual

    def __call__(self) -> None:
        if self.code is None:
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # None: it was closed before we began
                    stream.flush()
        except (OSError, ValueError):
            return  # whoever read our output has gone: Python itself says so
        os._exit(self.code)


def program() -> int:
    end = End()
    atexit.register(end)
    from fedloom.cli import main

    code = main()
    if sys.argv[1:2] and sys.argv[1] in ENDED_AT_ONCE:
        end.code = code
    return code


if __name__ == "__main__":
    sys.exit(program())

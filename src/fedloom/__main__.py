"""The entry point of `python -m fedloom` and of the command `fedloom`."""

from __future__ import annotations

import atexit
import os
import sys

# These commands have written and closed all their output when they return, so that the process may
# exit at once, without tearing down what it still holds.
ENDED_AT_ONCE = ("export", "predict", "report", "plot", "list", "runs")


class End:
    """An exit handler that ends the process without destroying every torch or matplotlib object.

    Destroying them takes a fifth of a second, and the system frees the memory anyway. Exit handlers
    run in reverse order: registered before all others, this one runs last, when threads have ended
    and every other handler has been called.
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
            return  # the reader of our output has gone: Python reports that itself
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

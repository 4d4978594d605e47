"""How a worker process died, in words and in numbers, and what the user can do about it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.records.rows import WorkerDeath

# The signals with which the system ends broken native code.
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")


@dataclass(frozen=True)
class Death:
    """How a process ended, by its exit code as `subprocess` reports it.

    A negative code stands for a signal. Other codes were returned by the process itself. None means
    that the code is unknown.
    """

    code: int | None

    @property
    def signal(self) -> str | None:
        """The name of the signal, such as `SIGSEGV`, or None if there was none."""
        if self.code is None or self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:  # a real-time signal has no name
            return f"signal {-self.code}"

    def __str__(self) -> str:
        """The end of a sentence that begins with "its process"."""
        if self.code is None:
            return "went silent"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        return f"was killed by signal {-self.code} ({self.signal})"

    def at_work_for(self, client: int) -> WorkerDeath:
        """The death as metrics.jsonl records it."""
        if self.signal is not None:
            return WorkerDeath(client, signal=self.signal)
        return WorkerDeath(client, exit=self.code)


def in_words(first: Death, second: Death) -> str:
    """Why an order was given up, in words."""
    if first != second:
        return f"its process {first}, and a second one {second}"
    if first.signal is not None:
        return f"its process {first}, and so was a second one"
    return f"its process {first}, and so did a second one"


def what_helps(deaths: Sequence[Death], *, others_refused: bool) -> str:
    """Advice for a round that got too few replies.

    `others_refused` is set if some clients were refused for other reasons than a death.
    """
    advice = list(dict.fromkeys(help_against(death) for death in deaths))
    if others_refused or not deaths:
        advice.append("fix the clients and resume the run")
    return "; ".join(advice)


def help_against(death: Death) -> str:
    if death.code is None:
        return "it went silent: run `fedloom doctor`, then resume the run"
    if death.signal == "SIGKILL":
        fewer = "begin one with fewer --workers"
        return f"memory may have run out: close other programs and resume the run, or {fewer}"
    if death.signal in CRASHES:
        check = "run `fedloom doctor`, then resume the run"
        return f"native code of torch or another library crashed: {check}"
    if death.signal is not None:
        return f"another program sent {death.signal}: find out which, then resume the run"
    return "the method's code ended its own process: fix it, then resume the run"

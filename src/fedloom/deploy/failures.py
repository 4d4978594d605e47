"""What a site tells a server about an answer that it does not give: a code and a number.

An error's own text can hold a path, the name of a patient's file or the value of a label, so it
stays at the site. What leaves is one of a few codes, and the number of the line in the site's audit
log that explains it. A `Refusal` is the exception: its sentence is written for the server, from the
policy's limits and from what the server itself has sent, and from nothing else.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from fedloom.errors import FedloomError
from fedloom.federation.protocol.envelope import Fault, FaultKind

# How an error that only memory can raise begins, or what it contains.
OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError", "can't allocate memory", "out of memory")
DEVICE_LIMIT = "nothing that the order offers fits the limits of this site's device"
TOO_SMALL = "a part of this site's samples is smaller than its policy allows"
LOST = "this site no longer has the state of its client that the order names"


class Refusal(FedloomError):
    """An order that the site's policy does not allow. Its sentence may leave the site.

    It must say nothing that the server did not send, other than limits of the policy and numbers
    of samples, which the server is told anyway.
    """


class DataFailed(Exception):
    """The site's own data could not be read or divided."""


@dataclass(frozen=True)
class Failure:
    """Why a site gives no answer: what the server is told, and what only the site's log has."""

    code: FaultKind
    sentence: str  # may leave the site; empty: the code says all that may leave
    explanation: str  # for the site's own log
    detail: str = ""  # a traceback, for the site's own log

    def fault(self, number: int | None) -> Fault:
        """What leaves. `number` is the line of the audit log; None: there is no such line."""
        where = "see the site's own log"
        if number is not None:
            where = f"number {number} in the site's audit log"
        if not self.sentence:
            return Fault(self.code, where)
        return Fault(self.code, f"{self.sentence.rstrip('.')} ({where})")


def failure_of(error: BaseException) -> Failure:
    """What an error outside the method's code means."""
    if isinstance(error, Refusal):
        return Failure("refused", str(error), str(error))
    explanation = f"{type(error).__name__}: {error}"
    detail = "".join(traceback.format_exception(error))
    if is_of_memory(explanation):
        return Failure("memory", "", explanation, detail)
    if isinstance(error, FedloomError):  # a file of the site itself is damaged
        return Failure("refused", "", str(error))
    if isinstance(error, DataFailed):
        return Failure("data", "", str(error), detail)
    return Failure("method", "", explanation, detail)


def failure_of_fault(fault: Fault) -> Failure:
    """What a fault means that the client's side has found while it worked."""
    if fault.kind == "lost":
        return Failure("lost", LOST, fault.text, fault.detail)
    if fault.kind == "few":
        return Failure("refused", TOO_SMALL, fault.text, fault.detail)
    if fault.kind == "refused":
        return Failure("refused", DEVICE_LIMIT, fault.text, fault.detail)
    if fault.kind == "store":  # the site's own disk
        return Failure("data", "", fault.text, fault.detail)
    if is_of_memory(fault.text):
        return Failure("memory", "", fault.text, fault.detail)
    return Failure("method", "", fault.text, fault.detail)


def is_of_memory(text: str) -> bool:
    """Whether an error's text says that memory was not enough."""
    lowered = text.lower()
    return any(sign.lower() in lowered for sign in OUT_OF_MEMORY)

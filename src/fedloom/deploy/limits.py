"""What work on an order may cost at a site: seconds, memory, and the size of its networks.

An order is priced before the work begins. For that its networks are built without memory, on
torch's meta device, and counted meanwhile: building stops at the first parameter beyond the limit.
What is only known during the work (networks that an order describes in its values, memory, seconds)
is limited while it happens.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import resource
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.nn.parameter import UninitializedParameter

from fedloom import procfs
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy
from fedloom.federation.protocol.method import Declined, Method, epochs_in
from fedloom.federation.protocol.wire import task_fields
from fedloom.methods import stages
from fedloom.networks import default_network
from fedloom.networks.building import new_model
from fedloom.types import Setup, Task
from fedloom.version import __version__

log = logging.getLogger("fedloom")

MOST_MODULES = 50_000  # of an order's networks; the largest supernet of a paper has a fifth of it
PRICING_SECONDS = 20.0  # that pricing may take
# No machine is as fast as this. What would take too long even on such a machine is refused at once.
WEIGHTS_A_SECOND = 1e12
SAMPLES_A_SECOND = 1e7
COPIES = 3  # of a trained network's parameters: weights, gradients, momentum
BYTES_OF_PARAMETER = 4
ALARM_INTERVAL = 1.0  # seconds after which work is interrupted again, if it went on regardless
STATUS = Path("/proc/self/status")
DATA_SIZE = b"\nVmData:"


class BeyondLimit(Refusal, Declined):
    """Work on an order would go beyond a limit of the site's policy."""


class Networks:
    """Counts the parameters and modules of all networks that exist at a time."""

    def __init__(self, most_parameters: float) -> None:
        self.most_parameters = most_parameters
        self.sizes: dict[int, int] = {}  # by the identity of a parameter
        self.parameters = 0
        self.largest = 0  # the most parameters that existed at a time
        self.modules = 0  # how many were built altogether
        self.refusal: BeyondLimit | None = None
        self.counts_modules = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        handles = [
            torch_modules.register_module_parameter_registration_hook(self._parameter),
            torch_modules.register_module_module_registration_hook(self._module),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _parameter(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None or isinstance(parameter, UninitializedParameter):
            return
        identity = id(parameter)
        if identity in self.sizes:
            return
        self.sizes[identity] = parameter.numel()
        self.parameters += parameter.numel()
        weakref.finalize(parameter, self._forget, identity)
        if self.parameters > self.most_parameters:
            gc.collect()  # a network that refers to itself is freed late
            self._check()
        self.largest = max(self.largest, self.parameters)

    def _forget(self, identity: int) -> None:
        self.parameters -= self.sizes.pop(identity, 0)

    def _module(self, module: nn.Module, name: str, part: nn.Module | None) -> None:
        self.modules += 1
        if self.counts_modules and self.modules > MOST_MODULES:
            rule = f"networks must consist of at most {MOST_MODULES:,} modules here"
            self._refuse(rule, "the order's consist of more")

    def _check(self) -> None:
        if self.parameters > self.most_parameters:
            rule = f"networks must have at most {self.most_parameters:,.0f} parameters here"
            self._refuse(rule, f"the order's have at least {self.parameters:,}")

    def _refuse(self, rule: str, problem: str) -> None:
        self.refusal = BeyondLimit(rule, problem, "ask the site")
        raise self.refusal


# Before the work


def price_key(task: Task, policy: Policy, samples: int) -> str:
    """A digest of everything that the price of a task depends on."""
    content = [
        __version__,
        task_fields(task),
        policy.parameters,
        policy.memory,
        policy.seconds,
        samples,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_price(task: Task, policy: Policy, samples: int) -> None:
    """Raise an error if work for this task would go beyond the policy's limits.

    `samples` is the number of the site's training samples.
    """
    networks = Networks(policy.parameters)
    networks.counts_modules = True
    with TimeLimit(PRICING_SECONDS, too_complex), networks.watched(), torch.device("meta"):
        method = first_method(task)
        build_without_memory(task, method)
    if networks.refusal is not None:
        raise networks.refusal
    memory = networks.largest * BYTES_OF_PARAMETER * COPIES
    if memory > policy.memory:
        rule = f"work on an order must take at most {policy.memory:,.0f} bytes here"
        problem = f"training {networks.largest:,} parameters takes at least {memory:,}"
        raise BeyondLimit(rule, problem, "ask the site")
    epochs = epochs_in(getattr(method, "options", None))
    check_seconds(networks.largest, samples * epochs, policy)


def first_method(task: Task) -> Method:
    """The method of a task's first stage, whose networks are the largest."""
    try:
        return stages(task)[0].method
    except BeyondLimit:
        raise
    except Exception as error:
        log.warning("options of %s: %s: %s", task.method, type(error).__name__, error)
        rule = f"the options of {task.method} must be possible here"
        raise Refusal(rule, "they are not", "use the same version of fedloom") from error


def check_seconds(parameters: int, passes: int, policy: Policy) -> None:
    """Raise an error if so many passes of samples would take too long even on a fast machine."""
    seconds = max(parameters * passes / WEIGHTS_A_SECOND, passes / SAMPLES_A_SECOND)
    if seconds > policy.seconds:
        rule = f"work on an order must take at most {policy.seconds:g} s here"
        problem = f"{passes:,} passes of samples take at least {seconds:,.0f} s"
        raise BeyondLimit(rule, problem, "ask for fewer epochs, or ask the site")


def build_without_memory(task: Task, method: Method) -> None:
    """Build the networks of a task on the meta device, for the hooks that count them.

    Making a method's first state builds its networks. It may then fail, because their tensors have
    no values here, but they have been counted. Methods with tiers need the tiers of a run before
    they build anything, so the network that their options name is built as well.
    """
    options = getattr(method, "options", None)
    network = getattr(options, "network", None)
    width = getattr(options, "width", None)
    if isinstance(width, int | float):
        with suppressed():
            name = network or default_network(task.kind)
            new_model(task, name, width, task.mean, task.std)
    with suppressed():
        method.init(Setup(task, population=1), None)


@contextmanager
def suppressed() -> Iterator[None]:
    """Suppress errors other than refusals: an order that cannot be priced fails when it is due."""
    try:
        yield
    except BeyondLimit:
        raise
    except Exception as error:
        log.debug("pricing ended early: %s: %s", type(error).__name__, error)


# During the work


class Work:
    """The limits of the work on one order. `refusal` is the first that it went beyond."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.networks = Networks(policy.parameters)
        self.started = 0.0

    @property
    def refusal(self) -> BeyondLimit | None:
        if self.networks.refusal is not None:
            return self.networks.refusal
        if time.monotonic() - self.started > self.policy.seconds:
            return too_slow(self.policy.seconds)
        return None

    @contextmanager
    def bounded(self) -> Iterator[None]:
        self.started = time.monotonic()
        with (
            TimeLimit(self.policy.seconds, too_slow),
            memory_limit(self.policy.memory),
            self.networks.watched(),
        ):
            yield


def too_complex(seconds: float) -> BeyondLimit:
    rule = f"an order's networks must be counted within {seconds:g} s here"
    return BeyondLimit(rule, "they are too many or too complex", "ask for smaller ones")


def too_slow(seconds: float) -> BeyondLimit:
    rule = f"work on an order must take at most {seconds:g} s here"
    return BeyondLimit(rule, "this one takes longer", "ask the site")


class OutOfTime(BaseException):
    """Interrupts a reader of data. It is no Exception, which would pass for a file's own fault."""


@contextmanager
def reading_within(seconds: float) -> Iterator[None]:
    """Refuse an order for which reading the site's own data takes longer."""
    try:
        with TimeLimit(seconds, OutOfTime):
            yield
    except OutOfTime:
        raise too_slow(seconds) from None


class TimeLimit:
    """Interrupts what runs longer, by an error that is raised in the middle of it.

    Only a process's main thread can be interrupted. In another thread nothing happens here.

    The alarm may ring at any moment, also after the work has ended and before the timer is stopped.
    It must not raise an error then: the timer would keep running, and ring again in other work.
    """

    def __init__(self, seconds: float, error_after: Callable[[float], BaseException]) -> None:
        self.seconds = seconds
        self.error_after = error_after
        self.is_main_thread = threading.current_thread() is threading.main_thread()
        self.is_over = False
        self.handler_before: Any = None

    def __enter__(self) -> None:
        if not self.is_main_thread:
            return
        self.handler_before = signal.signal(signal.SIGALRM, self.interrupt)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, ALARM_INTERVAL)

    def __exit__(self, *error: object) -> None:
        self.is_over = True  # first: from here on the alarm raises nothing
        if not self.is_main_thread:
            return
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self.handler_before)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:
            return
        if frame is not None and frame.f_code in ARMING:
            return  # the work has not begun, or has just ended
        raise self.error_after(self.seconds)


ARMING = (TimeLimit.__enter__.__code__, TimeLimit.__exit__.__code__)


@contextmanager
def memory_limit(most: float) -> Iterator[None]:
    """Let this process take at most so many bytes beyond what it has (Linux)."""
    held = data_size()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(held + most)
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def data_size() -> int | None:
    """The bytes that this process has for its data; None: unknown (not Linux)."""
    try:
        status = procfs.read(STATUS)
    except OSError:
        return None
    at = status.find(DATA_SIZE)
    if at < 0:
        return None
    return int(status[at + len(DATA_SIZE) :].split(maxsplit=1)[0]) * 1024

"""Checks of what a method's functions return, because methods come from outside, too.

Without them, a forgotten part of a pair would fail far from the function that returned it.
"""

from collections.abc import Sequence
from typing import TypeGuard

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method
from fedloom.types import Order, Reply, State


def state_from(method: Method, function: str, returned: object) -> State:
    if isinstance(returned, State):
        return returned
    raise wrong(method, function, "a State", returned)


def plan_from(method: Method, returned: object) -> tuple[State, Sequence[Order]] | None:
    if returned is None:
        return None
    rule = "the state and a list of orders, or None"
    if not is_pair(returned):
        raise wrong(method, "plan", rule, returned)
    state, orders = returned
    if not isinstance(state, State) or not isinstance(orders, Sequence):
        raise wrong(method, "plan", rule, returned)
    for order in orders:
        if not isinstance(order, Order):
            raise wrong(method, "plan", rule, returned)
    return state, orders


def answer_from(method: Method, returned: object) -> tuple[Reply, State | None]:
    """What `client` returned. An error is a TypeError: it becomes the reason of a refusal."""
    if is_pair(returned):
        reply, own = returned
        if isinstance(reply, Reply) and (own is None or isinstance(own, State)):
            return reply, own
    rule = "a reply, and the client's new state or None"
    problem = f"it returned {described(returned)}"
    raise TypeError(f"`client` of {type(method).__name__} must return {rule}, but {problem}")


def is_pair(value: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(value, tuple) and len(value) == 2


def wrong(method: Method, function: str, rule: str, returned: object) -> FedloomError:
    return FedloomError(
        f"`{function}` of {type(method).__name__} must return {rule}",
        f"it returned {described(returned)}",
        "see docs/add-a-method.md",
    )


def described(value: object) -> str:
    """The type of a value, and of what it holds, such as "a tuple of State, dict"."""
    kind = type(value).__name__
    if not isinstance(value, (tuple, list)) or not value:
        return f"a {kind}"
    kinds = dict.fromkeys(type(item).__name__ for item in value)
    return f"a {kind} of {', '.join(kinds)}"

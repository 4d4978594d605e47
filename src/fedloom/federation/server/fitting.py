"""The first state of a run that begins with another run's shared weights, `--init`.

They must fit, name by name.
"""

from __future__ import annotations

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import shared
from fedloom.types import State


def fitted(state: State, start: State) -> State:
    """`state` with the weights of `start`.

    What `start` has beyond them is not used: a head, if a body is shared.

    A server optimiser's memory is not taken over: it begins anew with the run.
    """
    wanted = shared(state)
    if not wanted:
        must, todo = (
            "--init must be for a method that shares weights",
            "try local-adaptation, or `fedloom adapt`",
        )
        raise FedloomError(must, "this one begins with none", todo)
    for name, tensor in wanted.items():
        found = start.tensors.get(name)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
            has = "it is not there" if found is None else f"its shape is {list(found.shape)}"
            missing = sum(name not in start.tensors for name in wanted)
            raise FedloomError(
                f"the run of --init must have {name} of shape {list(tensor.shape)}",
                f"{has} ({missing} of {len(wanted)} tensors are missing)",
                "use the same --network and --width; a searched network: --network architecture.json of its export",
            )
    taken = {name: start.tensors[name].clone() for name in wanted}
    return State({**state.tensors, **taken}, state.meta)

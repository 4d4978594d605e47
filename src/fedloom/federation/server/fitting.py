"""The first state of a run that begins with the shared weights of another run (`--init`).

Every tensor of the network that the run shares must be among them, with the same name and shape.
"""

from __future__ import annotations

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import shared
from fedloom.types import State, Tensors

NETWORK = "net."  # the names of a network's tensors begin with it


def fitted(state: State, start: State) -> State:
    """`state` with the weights of `start`.

    Tensors of `start` that the run does not share are ignored, such as the head if only the body is
    shared. What a method shares beside its network, such as control variates, begins anew if
    `start` does not have it. The memory of a server optimiser always starts fresh.
    """
    shared_tensors = shared(state)
    if not shared_tensors:
        raise FedloomError(
            "--init must be for a method that shares weights",
            "this one begins with none",
            "try local-adaptation, or `fedloom adapt`",
        )
    weights = {}
    is_related = any(name in start.tensors for name in shared_tensors)
    for name, tensor in shared_tensors.items():
        start_tensor = start.tensors.get(name)
        if start_tensor is None:
            if is_related and not name.startswith(NETWORK):
                continue
            raise misfit(shared_tensors, start, name, "it is missing")
        if start_tensor.shape != tensor.shape or start_tensor.dtype != tensor.dtype:
            raise misfit(shared_tensors, start, name, f"its shape is {list(start_tensor.shape)}")
        weights[name] = start_tensor.clone()
    return State({**state.tensors, **weights}, state.meta)


def misfit(shared_tensors: Tensors, start: State, name: str, problem: str) -> FedloomError:
    """The error for a tensor that the other run does not have as this one needs it."""
    missing = sum(other not in start.tensors for other in shared_tensors)
    searched = "--network architecture.json of its export"
    return FedloomError(
        f"the --init run must have {name} of shape {list(shared_tensors[name].shape)}",
        f"{problem} ({missing} of {len(shared_tensors)} tensors are missing)",
        f"use the same --network and --width; a searched network: {searched}",
    )

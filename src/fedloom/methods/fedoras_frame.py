"""FedorAS's supernet without its weights, for the server and for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.packing import bytes_in_message
from fedloom.metrics.metric import metric_of
from fedloom.nets.model import Model
from fedloom.searchers.paths import Path, PathCosts, SubSpace
from fedloom.spaces import open_space
from fedloom.spaces.mixed import model_of_space
from fedloom.spaces.owners import NET, owners_in, weightless
from fedloom.spaces.paths import check_operations
from fedloom.spaces.space import OpId, Size, Space
from fedloom.types import Arch, Json, Meta, Order, Task, Tensors, Tier, UnitCosts

if TYPE_CHECKING:
    from fedloom.methods.fedoras_options import FedorASOptions
    from fedloom.spaces.cost_table import CostTable

Counts = list[list[int]]  # of samples, by layer and operation


@dataclass(frozen=True)
class Frame:
    """A chain for one kind of data. It does not depend on the task's method and options."""

    space: Space
    size: Size
    task: Task

    @classmethod
    def of_task(cls, task: Task, options: FedorASOptions) -> Frame:
        searched = options.searched(task)
        space = searched.space
        size = searched.size
        if space.cost_table(task.shape, len(task.labels), size) is None:
            raise FedloomError(
                "FedorAS must search a chain, in which a path's cost is a sum over its layers",
                f"got the space {space.title}",
                "choose a chain of `fedloom list spaces`, or define one in TOML",
            )
        return cls(space, size, task)

    def to_plain(self) -> Json:
        return {
            "space": self.space.name,
            "size": list(self.size),
            "kind": self.task.kind,
            "shape": list(self.task.shape),
            "labels": list(self.task.labels),
            "seed": self.task.seed,
            "mean": list(self.task.mean),
            "std": list(self.task.std),
        }

    @classmethod
    def from_plain(cls, raw: Meta) -> Frame:
        task = Task(
            method="",
            options={},
            kind=raw["kind"],
            shape=tuple(raw["shape"]),
            labels=tuple(raw["labels"]),
            seed=raw["seed"],
            mean=tuple(raw["mean"]),
            std=tuple(raw["std"]),
        )
        return cls(open_space(raw["space"]), Size(*raw["size"]), task)

    @property
    def counted_classes(self) -> int | None:
        """The number of classes, or None for data that is not judged by classes, such as text."""
        if not metric_of(self.task.kind).counts_answers:
            return None
        return len(self.task.labels)

    # Its networks

    def arch(self, sub_space: SubSpace) -> Arch:
        return Arch(self.space.name, sub_space)

    def names_of(self, path: Path) -> list[str]:
        """Returns the names of a path's operations, by layer."""
        return [slot.options[op] for slot, op in zip(self.space.slots, path, strict=True)]

    def model(self, sub_space: SubSpace | None = None, weights: Tensors | None = None) -> Model:
        """Returns the supernet, or the part of it with these operations."""
        arch = None
        if sub_space is not None:
            arch = self.arch(sub_space)
        return model_of_space(
            self.task,
            self.space,
            self.size,
            arch=arch,
            weights=weights,
            affine=True,
        )

    def path_named(self, names: Sequence[str]) -> Path:
        """Returns the path with these operations, by layer."""
        slots = self.space.slots
        if len(names) != len(slots):
            raise FedloomError(
                f"a path of {self.space.title} must have an operation for each of its "
                f"{len(slots)} layers",
                f"one of --paths has {len(names)}",
                "give paths of the space that is searched",
            )
        path = []
        for slot, name in zip(slots, names, strict=True):
            if name not in slot.options:
                kind = f"an operation of layer {slot.name} of {self.space.title} in --paths"
                raise unknown(kind, name, slot.options)
            path.append(slot.options.index(name))
        return tuple(path)

    def names_in(self, sub_space: SubSpace) -> list[str]:
        """Returns the names of a part's tensors."""
        names = []
        for name, owner in self.owners.items():
            if owner is None or owner.op in sub_space[owner.slot]:
                names.append(name)
        return names

    def bytes_of(self, sub_space: SubSpace) -> int:
        return sum(self._sizes[name] for name in self.names_in(sub_space))

    @property
    def supernet_in_message(self) -> int:
        """The bytes that the whole supernet adds to an order."""
        return message_bytes(self.space, self.task.shape, len(self.task.labels), self.size)

    @property
    def _sizes(self) -> Mapping[str, int]:
        """The bytes of every tensor of the supernet."""
        return sizes_in(self.space, self.task.shape, len(self.task.labels), self.size)

    def part(self, tensors: Tensors, sub_space: SubSpace) -> dict[str, torch.Tensor]:
        """Returns those of a supernet's tensors that the part has."""
        owners = self.owners
        chosen = {}
        for name, tensor in tensors.items():
            owner = owners[name]
            if owner is None or owner.op in sub_space[owner.slot]:
                chosen[name] = tensor
        return chosen

    @property
    def owners(self) -> Mapping[str, OpId | None]:
        """The operation that each tensor belongs to. None: all paths have it."""
        return owners_in(self.space, self.task.shape, len(self.task.labels), self.size, affine=True)

    # What it costs

    @property
    def table(self) -> CostTable:
        table = self.space.cost_table(self.task.shape, len(self.task.labels), self.size)
        assert table is not None  # `of_task` has checked it
        return table

    @property
    def params(self) -> PathCosts:
        return PathCosts.of_table(self.table, ("params",))

    @property
    def supernet_params(self) -> int:
        return self.table.everything("params")

    def costs_of(self, tier: Tier) -> PathCosts:
        """Returns what paths cost on the devices of a tier."""
        return self.costs(tier.limit, tier.unsupported, tier.latency)

    def costs(
        self,
        limit: Mapping[str, float],
        unsupported: Sequence[str],
        latency: UnitCosts | None = None,
    ) -> PathCosts:
        """Returns what paths cost in the units of the limit.

        Operations that are not supported cost infinitely much. `latency` has the milliseconds of
        operations, if the limit is in milliseconds.
        """
        check_operations(self.space, unsupported)
        table = self.table
        units = [table.in_unit(unit, latency) for unit in limit]  # type: ignore[arg-type]
        costs = PathCosts.of_units(units)
        excluded = set()
        for layer, slot in enumerate(self.space.slots):
            for op, name in enumerate(slot.options):
                if name in unsupported:
                    excluded.add((layer, op))
        return costs.without(excluded)

    # Samples through its operations

    def no_counts(self) -> Counts:
        return [[0] * len(slot.options) for slot in self.space.slots]

    def sum_of_counts(self, counts: Counts, of_clients: Sequence[Counts]) -> Counts:
        total = [list(layer) for layer in counts]
        for client_counts in of_clients:
            for layer, row in enumerate(client_counts):
                for op, samples in enumerate(row):
                    total[layer][op] += samples
        return total

    def samples_through(self, name: str, counts: Counts, samples: int) -> int:
        """Returns how many samples went through the operation that this tensor belongs to.

        Through a tensor that all paths have, all samples went.
        """
        owner = self.owners.get(name)
        if owner is None:
            return samples
        return counts[owner.slot][owner.op]

    def wrong_counts(
        self,
        layer: int,
        sent: Sequence[int],
        counts: Sequence[int],
        samples: int,
    ) -> str | None:
        """Returns why a layer's counts cannot be honest, or None if they can be.

        `sent` are the operations of the layer that the client was sent.
        """
        if len(counts) != len(self.space.slots[layer].options):
            return f"it counts {len(counts)} operations in layer {layer + 1}"
        for op, count in enumerate(counts):
            if count < 0 or (count > 0 and op not in sent):
                return f"it counts {count} samples through operation {op} of layer {layer + 1}"
        if sum(counts) != samples:
            return f"layer {layer + 1} counts {sum(counts)} samples, not {samples}"
        return None


def as_sub_space(path: Path) -> SubSpace:
    return tuple((op,) for op in path)


def sub_space_in(meta: Meta) -> SubSpace:
    """Returns the operations that an order says it carries."""
    return tuple(tuple(ops) for ops in meta["ops"])


def path_order(frame: Frame, client: int, path: Path, tensors: Tensors) -> Order:
    """Returns an order to evaluate one path. It carries only the path's tensors."""
    sub_space = as_sub_space(path)
    meta = {"ops": [list(ops) for ops in sub_space]}
    return Order(client, "evaluate", frame.part(tensors, sub_space), meta)


def left_out(frame: Frame, orders: Sequence[Order]) -> int:
    """Returns the bytes that these orders saved: each could have carried the whole supernet."""
    sizes: dict[int, int] = {}  # by the id of the tensors, which many orders may share
    total = 0
    for order in orders:
        tensors_id = id(order.tensors)
        if tensors_id not in sizes:
            sizes[tensors_id] = bytes_in_message(order.tensors)
        total += frame.supernet_in_message - sizes[tensors_id]
    return total


def size_in_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@lru_cache(maxsize=8)
def sizes_in(
    space: Space,
    shape: tuple[int, ...],
    classes: int,
    size: Size,
) -> dict[str, int]:
    """Returns the bytes of every tensor of the model."""
    sizes = {}
    for name, tensor in weightless(space, shape, classes, size, affine=True).state_dict().items():
        sizes[f"{NET}{name}"] = size_in_bytes(tensor)
    return sizes


@lru_cache(maxsize=8)
def message_bytes(space: Space, shape: tuple[int, ...], classes: int, size: Size) -> int:
    tensors = {}
    for name, tensor in weightless(space, shape, classes, size, affine=True).state_dict().items():
        tensors[f"{NET}{name}"] = tensor
    return bytes_in_message(tensors)

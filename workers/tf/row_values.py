"""What a tensor holds, for the proof of rows: rows, sizes that count them, or what is the same in each run."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from workers.tf.library import op_def_registry
from workers.tf.sizes import MOST_ENTRIES, ODD, fresh, has_rows, is_known, product

Plan = list[tuple[int | None, int | None]]
"""For each axis of a result, which axis it comes from, and its size, or None where it comes as it was."""


class Stop(Exception):
    """The rule cannot tell. The text goes on after the op's type and name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a tensor holds, or a variable, or a list of tensors: that is written as the stack of them.

    If N is part of one of its `dims`, these are rows: that axis holds them in order, each as many entries, and those of
    row i follow from row i of the inputs alone. Else the tensor is free, the same in each run, or N is part of its
    `entries`: then it holds sizes, which depend on N and on no values. `dims` is None for any rank.
    """

    dims: tuple[int, ...] | None
    entries: tuple[int, ...] | None = None

    @property
    def axis(self) -> int | None:
        return next((at for at, size in enumerate(self.dims or ()) if has_rows(size)), None)

    @property
    def is_free(self) -> bool:
        return not any(map(has_rows, (*(self.dims or ()), *(self.entries or ()))))

    @property
    def shape(self) -> tuple[int, ...]:
        if self.dims is None:
            raise Stop("meets a constant of unknown rank")
        return self.dims

    def plan(self, axes: Iterable[int] = (), sizes: Iterable[int] = ()) -> Plan:
        """What mixes the entries along `axes`, which become of other sizes, where such are given."""
        plan: Plan = [(at, None) for at in range(len(self.shape))]
        for axis, size in itertools.zip_longest(axes, sizes):
            plan[axis] = (axis % len(plan), self.shape[axis] if size is None else size)
        return plan

    def planned(self, plan: Plan) -> "Tensor":
        if self.axis is not None and (self.axis, None) not in plan:
            raise Stop(f"works over the rows (axis {self.axis})")
        made = shaped(self.shape[at or 0] if size is None else size for at, size in plan)
        if self.axis is None and made.axis is not None:
            raise Stop("makes as many entries as there are rows, of a constant")
        return made

    def along(self, axes: Iterable[int], sizes: Iterable[int] = ()) -> "Tensor":
        return self.planned(self.plan(axes, sizes))

    def without(self, axes: Iterable[int]) -> "Tensor":
        return self.planned([(at, size) for at, size in self.plan(axes) if size is None])

    def with_axis(self, axis: int, size: int) -> "Tensor":
        plan = self.plan()
        plan.insert(axis if axis >= 0 else axis + len(plan) + 1, (None, size))
        return self.planned(plan)


def shaped(dims: Iterable[int]) -> Tensor:
    dims = tuple(dims)
    if sum(map(has_rows, dims)) > 1 or any(size < 0 or (size and size % ODD == 0) for size in dims):
        raise Stop("mixes the number of rows into a shape")
    return Tensor(dims)


@dataclass(frozen=True, slots=True)
class Unknown:
    why: str


class Every(Unknown):
    """Says whether something holds for every row, which is good for assertions."""


@dataclass(frozen=True, slots=True)
class Reserved(Unknown):
    """A list in which no tensor was set yet, and the shape of these, in which -1 is any size; None: any shape."""

    shape: tuple[int, ...] | None

    def listed(self, item: Tensor) -> Tensor:
        """Such tensors, or zeros where none was set, which must not be of a shape of their own."""
        fits = [size in (-1, own) for size, own in itertools.zip_longest(self.shape or (), item.shape)]
        if self.shape is not None and not all(fits):
            raise Stop("may list a constant with rows of its own, or asks for a number of rows")
        return item.with_axis(0, fresh())


Value = Tensor | Unknown


@cache
def op_def(op_type: str) -> Any:
    """None: not an op of this process."""
    return op_def_registry.get(op_type)


class Op:
    """A node, and what its inputs are."""

    def __init__(self, node: Any, inputs: Sequence[Value]) -> None:
        self.node, self.type, self.inputs = node, str(node.op), inputs

    @property
    def counts(self) -> list[tuple[str, int]]:
        """For each output of its definition, the name, and how many tensors it stands for."""
        counts = []
        for arg in op_def(self.type).output_arg:
            count = self.attr(arg.number_attr).i if arg.number_attr else 1
            counts.append((arg.name, len(self.attr(arg.type_list_attr).list.type) if arg.type_list_attr else count))
        return counts

    @property
    def outputs(self) -> int:
        return sum(count for _, count in self.counts)

    def attr(self, name: str) -> Any:
        """Exporters leave out attributes that have their default value."""
        if name in self.node.attr:
            return self.node.attr[name]
        return next(attr.default_value for attr in op_def(self.type).attr if attr.name == name)

    def tensor(self, place: int, may_count: bool = False) -> Tensor:
        """Rows, or free; or sizes that N is part of, where they `may_count` the rows."""
        tensor = self.inputs[place]
        if isinstance(tensor, Unknown):
            raise Stop(f"takes what is not proven: {tensor.why}")
        if tensor.axis is None and not tensor.is_free and not may_count:
            raise Stop("computes with the number of rows")
        return tensor

    def tensors(self, end: int | None = None) -> list[Tensor]:
        return [self.tensor(place) for place in range(len(self.inputs))[:end]]

    def alone(self) -> Tensor:
        """The first input, where all others are free."""
        if not all(tensor.is_free for tensor in self.tensors()[1:]):
            raise Stop("takes more than its first input from the rows")
        return self.tensor(0)

    def entries(self, place: int) -> Any:
        """Of an input that holds sizes, as an array of its shape."""
        tensor = self.tensor(place, True)
        if not product(tensor.shape) <= MOST_ENTRIES:
            raise Stop("takes sizes or places that are not known, or differ by row")
        known = [fresh() for _ in range(product(tensor.shape))] if tensor.entries is None else tensor.entries
        return np.array(known, object).reshape(tensor.shape)

    def sizes(self, place: int) -> list[int]:
        return [*self.entries(place).flat]

    def ints(self, place: int) -> list[int]:
        if not is_known(*self.sizes(place)):
            raise Stop("takes axes or places that are not constants")
        return self.sizes(place)


def contracted(op: Op, operands: Sequence[tuple[Sequence[Any], Tensor]], result: Sequence[Any]) -> Tensor:
    """An einsum. Labels are letters, or numbers for axes that are broadcast, counted from the last.

    Rows must have the same label in all operands that hold rows, and stay in the result. A free operand may have this
    label only to be broadcast along it.
    """
    found: dict[Any, set[int]] = {label: set() for labels, _ in operands for label in labels}
    for labels, tensor in operands:
        for label, size in zip(labels, tensor.shape, strict=True):
            found[label].add(size)
    for label, sizes in found.items():
        others = sizes - {1} if isinstance(label, int) else sizes
        if any(map(has_rows, sizes)) and (len(others) > 1 or label not in result):
            raise Stop("sums over the rows, or joins them with others or with a constant for each row")
        if len(others) > 1 and op.type in ("Equal", "NotEqual"):
            raise Stop("may compare unlike shapes, which gives one bool for all")
        known = [*filter(is_known, others)] if len(others) > 1 else [*(others or {1})]
        found[label] = {known[0] if len(known) == 1 else fresh()}
    return shaped(size for label in result for size in found[label])


def broadcast(op: Op, tensors: Sequence[Tensor]) -> Tensor:
    operands = [(range(len(tensor.shape))[::-1], tensor) for tensor in tensors]
    return contracted(op, operands, max((labels for labels, _ in operands), key=len))

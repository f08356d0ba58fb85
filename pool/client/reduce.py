"""Combining what the pieces of one input gave: joined in their order, summed, or averaged by their rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pool.errors import InvalidInput
from pool.wire.tensors import Array, dtype_name

__all__ = ["Reduction"]

Answer = Mapping[str, Array]

_INTEGERS = ("int", "uint")
_FLOATS = ("float", "bfloat")
_SMALLEST = np.dtype(np.float32)  # what half floats are added in: a thousand pieces' sum keeps its last bits


class Reduction:
    """The sum or the mean of each output over the pieces, as a tree of pairs.

        0   1   2   3   4        pairs by their number, not by who comes first, so the same answers give the same bits;
        └─┬─┘   └─┬─┘   │        each pair is added, and its halves are let go, as soon as both are there
          └───┬───┘     │
              └────┬────┘

    Floating dtypes are added in float32 at least, and come back as they were. Integers are summed as numpy adds their
    dtype, so they may wrap, and have no mean; strings and booleans have neither. The mean is weighted by the pieces'
    rows: each output is taken for a mean over the rows of its piece, and becomes the mean over all.
    """

    def __init__(self, how: Literal["sum", "mean"], rows: Sequence[int]) -> None:
        """`rows` of each piece."""
        self._how = how
        common = math.gcd(*rows)  # pieces of the same size need no weights
        self._weights = [size // common for size in rows]
        self._nodes: dict[tuple[int, int], dict[str, Array]] = {}  # by level and place in it
        self._dtypes: dict[str, np.dtype[np.generic]] = {}

    def add(self, piece: int, answer: Answer) -> None:
        """Each piece once, in any order; its arrays may be added into.

        Raises `InvalidInput` for outputs that cannot be reduced so.
        """
        level, place, width = 0, piece, len(self._weights)
        node = {name: self._leaf(piece, name, array) for name, array in answer.items()}
        while width > 1:
            partner = place ^ 1
            if partner < width:
                other = self._nodes.pop((level, partner), None)
                if other is None:
                    break
                node = self._sum(node, other) if place < partner else self._sum(other, node)
            level, place, width = level + 1, place // 2, (width + 1) // 2
        self._nodes[level, place] = node

    def result(self) -> dict[str, Array]:
        """When every piece was added."""
        (root,) = self._nodes.values()
        if self._how == "mean":
            root = {name: np.asarray(total / total.dtype.type(sum(self._weights))) for name, total in root.items()}
        return {name: total.astype(self._dtypes[name], copy=False) for name, total in root.items()}

    def _leaf(self, piece: int, name: str, array: Array) -> Array:
        """As it is added up; memory of its own if it was weighted or cast."""
        dtype = dtype_name(array.dtype)
        if not dtype.startswith((*_INTEGERS, *_FLOATS, "complex")):
            raise InvalidInput(
                f"output {name!r} is {dtype}, which has no {self._how}; name other outputs, or reduce=None"
            )
        if self._how == "mean" and dtype.startswith(_INTEGERS):
            raise InvalidInput(
                f'output {name!r} is {dtype}, and its mean would not be {dtype}; reduce="sum" keeps the dtype'
            )
        self._dtypes.setdefault(name, array.dtype)
        wide = np.promote_types(array.dtype, _SMALLEST) if dtype.startswith(_FLOATS) else array.dtype
        leaf = array.astype(wide, copy=False)
        if self._how == "mean" and self._weights[piece] != 1:
            leaf = np.asarray(leaf * wide.type(self._weights[piece]))
        return leaf

    def _sum(self, left: dict[str, Array], right: dict[str, Array]) -> dict[str, Array]:
        if left.keys() != right.keys():
            raise InvalidInput(f"one piece gave the outputs {', '.join(left)}, another {', '.join(right)}")
        return {name: self._added(name, left[name], right[name]) for name in left}

    def _added(self, name: str, left: Array, right: Array) -> Array:
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            raise InvalidInput(
                f"output {name!r} is {dtype_name(left.dtype)} {list(left.shape)} of one piece,"
                f" {dtype_name(right.dtype)} {list(right.shape)} of another, so they have no {self._how}"
            )
        if not left.flags.writeable:
            left = left.copy()
        left += right
        return left

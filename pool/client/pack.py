"""Many small inputs of one shape, gathered by their caller's thread as the rows of one job: a pack."""

from collections.abc import Mapping

import numpy as np

from pool.client.payload import Inputs
from pool.wire.tensors import Array

__all__ = ["Pack"]

SMALL_BYTES = 64 << 10  # of an input that is worth copying together with others
FIRST_ROWS = 16  # what there is room for at first; it doubles


class Pack:
    """Inputs are added, each a copy; `rows` of each."""

    def __init__(self, first: Inputs) -> None:
        """REQUIRES `fits_any(first)`."""
        assert first.rows is not None
        self.rows: list[int] = []
        self._first = first
        self.filled = 0
        self._columns = {
            name: np.empty((max(FIRST_ROWS, first.rows), *array.shape[1:]), array.dtype)
            for name, (array, _) in first.tensors.items()
        }
        self.add(first)

    @staticmethod
    def fits_any(inputs: Inputs) -> bool:
        """Whether it is worth gathering others like it."""
        return inputs.rows is not None and sum(array.nbytes for array, _ in inputs.tensors.values()) <= SMALL_BYTES

    def fits(self, inputs: Inputs) -> bool:
        """Whether it is like the others."""
        return (
            inputs.rows is not None
            and inputs.tensors.keys() == self._first.tensors.keys()
            and all(
                (array.dtype, array.shape[1:], weak) == (like.dtype, like.shape[1:], like_weak)
                for (array, weak), (like, like_weak) in zip(
                    (inputs.tensors[name] for name in self._first.tensors), self._first.tensors.values(), strict=True
                )
            )
        )

    def add(self, inputs: Inputs) -> None:
        """REQUIRES that it fits."""
        assert inputs.rows is not None
        end = self.filled + inputs.rows
        for name, column in self._columns.items():
            while end > len(column):
                column = self._columns[name] = np.concatenate((column, np.empty_like(column)))
            column[self.filled : end] = inputs.tensors[name][0]
        self.filled = end
        self.rows.append(inputs.rows)

    def inputs(self) -> Inputs:
        """All of them, as one job's."""
        tensors: Mapping[str, tuple[Array, bool]] = {
            name: (column[: self.filled], self._first.tensors[name][1]) for name, column in self._columns.items()
        }
        return Inputs(tensors, self.filled)

"""Many small inputs of one form, gathered by their caller's thread as the rows of one chunk."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pool.client.bulk.grain import CHUNK_BYTES
from pool.client.payload import Inputs, empty
from pool.client.shared_memory import SharedMemory
from pool.client.spans import piece_of
from pool.wire.tensors import Array

__all__ = ["Gathering", "most_bytes_of"]

SMALL_BYTES = 64 << 10  # of an input that is worth copying together with others
LENT_INPUT_BYTES = 1 << 20  # the same, where it would be copied into a segment anyway


class Gathering:
    """Each that is added is copied; `rows` of each. One that is not worth it stays alone, as it is."""

    def __init__(
        self, first: Inputs, most_rows: int, shared_memory: SharedMemory, most_bytes: int = CHUNK_BYTES
    ) -> None:
        """There is room for so many rows, or for fewer large ones."""
        self._first = first
        self._form = _form(first)
        self._most_bytes = most_bytes_of(shared_memory)
        self._room_bytes = most_bytes
        self._string_bytes = self.filled = self.most_rows = 0
        self._columns: dict[str, Array] = {}
        self._is_weak = any(weak or array.dtype.hasobject for array, weak in first.tensors.values())
        lone = None if self._is_weak or list(first.tensors) != [""] else first.tensors[""][0]
        self._usual = None if lone is None else (lone.shape, lone.dtype)
        self._usual_rows = first.rows or 0
        self.rows: list[int] = []
        rows, size_bytes = first.rows, _bytes(first)
        if rows is not None and size_bytes <= self._most_bytes:
            most_rows = min(most_rows, int(most_bytes / max(1.0, size_bytes / rows)))
            if most_rows > rows:
                self.most_rows = most_rows
                self._columns = {
                    name: empty((most_rows, *array.shape[1:]), array.dtype, shared_memory)
                    for name, (array, _) in first.tensors.items()
                }
                self.add(first)
                return
        self.rows.append(rows or 0)

    @property
    def is_full(self) -> bool:
        return self.filled >= self.most_rows or self._string_bytes >= self._room_bytes

    def fits(self, inputs: Inputs) -> bool:
        """Whether it is like the others. REQUIRES that there is room."""
        return inputs.rows is not None and _form(inputs) == self._form and _bytes(inputs) <= self._most_bytes

    def add(self, inputs: Inputs) -> None:
        """REQUIRES that it fits."""
        assert inputs.rows is not None
        self._string_bytes += _string_bytes(inputs)
        self._put(inputs.rows, {name: array for name, (array, _) in inputs.tensors.items()})

    def take(self, item: object) -> bool:
        """Adds what a caller gives, if it is plainly like the others: arrays of their dtype and shape.

        Nothing else is looked at: it is the short way of most inputs.
        """
        if type(item) is np.ndarray and (item.shape, item.dtype) == self._usual and self._columns:
            end = self.filled + self._usual_rows
            column = self._columns[""]
            if end <= len(column):
                column[self.filled : end] = item
                self.filled = end
                self.rows.append(self._usual_rows)
                return True
        arrays: Mapping[str, Array] = item if type(item) is dict else {"": item}  # type: ignore[dict-item]  # see below
        if self._is_weak or len(arrays) != len(self._columns):
            return False
        rows = 0
        for name, column in self._columns.items():
            array = arrays.get(name)
            if type(array) is not np.ndarray or array.dtype != column.dtype or array.shape[1:] != column.shape[1:]:
                return False
            if not array.ndim or not len(array):
                return False
            rows = rows or len(array)
            if len(array) != rows or array.nbytes > self._most_bytes // len(self._columns):
                return False
        self._put(rows, arrays)
        return True

    def _put(self, rows: int, arrays: Mapping[str, Array]) -> None:
        begin, end = self.filled, self.filled + rows
        for name, column in self._columns.items():
            if end > len(column):
                column = self._columns[name] = np.concatenate(
                    (column, np.empty((end, *column.shape[1:]), column.dtype))
                )
            column[begin:end] = arrays[name]
        self.filled = end
        self.rows.append(rows)

    def inputs(self) -> Inputs:
        """All of them, as one job's; none is added after this."""
        if not self._columns:
            return self._first
        for column in self._columns.values():
            if (piece := piece_of(column)) is not None:  # it holds room for more of them
                piece.region.keep(piece.offset - piece.region.offset + column[: self.filled].nbytes)
        tensors: Mapping[str, tuple[Array, bool]] = {
            name: (column[: self.filled], self._first.tensors[name][1]) for name, column in self._columns.items()
        }
        return Inputs(tensors, self.filled)


def most_bytes_of(shared_memory: SharedMemory) -> int:
    """Of an input that is worth sending with others."""
    return LENT_INPUT_BYTES if shared_memory.lends else SMALL_BYTES


def _form(inputs: Inputs) -> dict[str, Any]:
    return {name: (array.dtype, array.shape[1:], weak) for name, (array, weak) in inputs.tensors.items()}


def _bytes(inputs: Inputs) -> int:
    return sum([array.nbytes for array, _ in inputs.tensors.values()]) + _string_bytes(inputs)


def _string_bytes(inputs: Inputs) -> int:
    return sum([len(text) for array, _ in inputs.tensors.values() if array.dtype.hasobject for text in array.flat])

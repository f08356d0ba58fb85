"""Many small inputs of one shape, gathered by their caller's thread as the rows of one job: a pack."""

from collections.abc import Mapping

import numpy as np

from pool.client.arenas import Arenas
from pool.client.bulk.grain import PACK_BYTES
from pool.client.payload import Inputs, empty
from pool.client.spans import piece_of
from pool.wire.tensors import Array

__all__ = ["Pack"]

SMALL_BYTES = 64 << 10  # of an input that is worth copying together with others
LENT_INPUT_BYTES = 1 << 20  # the same, where it would be copied into an arena anyway


class Pack:
    """Inputs are added, each a copy; `rows` of each."""

    def __init__(self, first: Inputs, most_rows: int, arenas: Arenas, most_bytes: int = PACK_BYTES) -> None:
        """There is room for `most_rows`, or for fewer large ones. REQUIRES `fits_any(first, arenas)`."""
        assert first.rows is not None
        self._room_bytes = most_bytes
        self._string_bytes = 0
        self.rows: list[int] = []
        self._first = first
        self.filled = 0
        row_bytes = _bytes(first) / first.rows
        self.most_rows = max(first.rows, min(most_rows, int(most_bytes / max(1.0, row_bytes))))
        self._most_bytes = _most_bytes(arenas)
        # One job alone is joined with others by whoever runs it, as what `submit` sends; several are a batch mostly.
        alone = self.most_rows == first.rows
        self._columns = {
            name: empty(
                (self.most_rows, *array.shape[1:]),
                array.dtype,
                arenas,
                (name, array.dtype, array.shape[1:]) if alone else None,
            )
            for name, (array, _) in first.tensors.items()
        }
        self._is_weak = any(weak or array.dtype.hasobject for array, weak in first.tensors.values())
        lone = None if self._is_weak or list(first.tensors) != [""] else first.tensors[""][0]
        self._usual = None if lone is None else (lone.shape, lone.dtype)
        self._usual_rows = first.rows
        self.add(first)

    @property
    def is_full(self) -> bool:
        return self.filled >= self.most_rows or self._string_bytes >= self._room_bytes

    @staticmethod
    def fits_any(inputs: Inputs, arenas: Arenas) -> bool:
        """Whether it is worth gathering others like it."""
        return inputs.rows is not None and _bytes(inputs) <= _most_bytes(arenas)

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
        self._string_bytes += _string_bytes(inputs)
        self._put(inputs.rows, {name: array for name, (array, _) in inputs.tensors.items()})

    def take(self, item: object) -> bool:
        """Adds what a caller gives, if it is plainly like the others: arrays of their dtype and shape.

        Nothing else is looked at: it is the short way of most inputs.
        """
        if type(item) is np.ndarray and (item.shape, item.dtype) == self._usual:
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
        for column in self._columns.values():
            if (piece := piece_of(column)) is not None:  # it holds room for more of them
                piece.region.keep(piece.offset - piece.region.offset + column[: self.filled].nbytes)
        tensors: Mapping[str, tuple[Array, bool]] = {
            name: (column[: self.filled], self._first.tensors[name][1]) for name, column in self._columns.items()
        }
        return Inputs(tensors, self.filled)


def _bytes(inputs: Inputs) -> int:
    return sum([array.nbytes for array, _ in inputs.tensors.values()]) + _string_bytes(inputs)


def _string_bytes(inputs: Inputs) -> int:
    return sum([len(text) for array, _ in inputs.tensors.values() if array.dtype.hasobject for text in array.flat])


def _most_bytes(arenas: Arenas) -> int:
    return LENT_INPUT_BYTES if arenas.lends else SMALL_BYTES

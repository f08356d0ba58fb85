"""The memory in which a lane joins its batches, one after the other in the same place.

A page that was never touched costs more than copying what goes into it: 64 MiB take 80 ms for the first time, 6 ms
later.
"""

from typing import Any

import numpy as np

from pool.wire.lent import ALIGNED, rounded_up
from pool.wire.tensors import Array
from workers.inputs import Piece

__all__ = ["BatchMemory", "aligned"]

KEPT_BYTES = 256 << 20  # more is given back after the batch that needed it
REST_S = 10.0  # what no batch has needed for so long is given back, too


class BatchMemory:
    """Of one lane. What it gave for a batch is given again for the next: nothing may look at it then."""

    def __init__(self) -> None:
        self._whole = np.empty(0, np.uint8)
        self._used_bytes = 0
        self._most_bytes = 0  # of a batch, since `trim` has looked last
        self._trim_at = 0.0

    @property
    def size_bytes(self) -> int:
        """What is kept for the next batch."""
        return len(self._whole)

    def begin(self) -> None:
        """Another batch; what was given for the last one is over."""
        if not self._used_bytes:
            return  # a lone part is fed from where it arrived
        wanted = min(KEPT_BYTES, self._used_bytes)
        if wanted > len(self._whole):  # it did not suffice
            self._whole = aligned(wanted)
        self._most_bytes = max(self._most_bytes, wanted)
        self._used_bytes = 0

    def trim(self, now: float) -> None:
        """Between batches, now and then: gives back what none of late has needed."""
        if now < self._trim_at:
            return
        self.begin()
        if self._most_bytes <= len(self._whole) // 2:
            self._whole = aligned(self._most_bytes)
        self._most_bytes, self._trim_at = 0, now + REST_S

    def take(self, size: int, dtype: "np.dtype[Any]") -> Array:
        """So many elements, which begin where TensorFlow takes them as they are. Their values are anything."""
        if dtype.hasobject:
            return np.empty(size, dtype)
        begin, size_bytes = self._used_bytes, size * dtype.itemsize
        self._used_bytes = begin + rounded_up(size_bytes)
        fits = self._used_bytes <= len(self._whole)
        return (self._whole[begin : begin + size_bytes] if fits else aligned(size_bytes)).view(dtype)

    def copied(self, buffer: Piece) -> memoryview:
        """The bytes as they are now."""
        copy = self.take(len(buffer), np.dtype(np.uint8))
        copy[:] = np.frombuffer(buffer, np.uint8)
        return copy.data


def aligned(size_bytes: int) -> Array:
    """So many bytes, of any values, which begin where TensorFlow takes them as they are: it copies others."""
    memory = np.empty(size_bytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + size_bytes]

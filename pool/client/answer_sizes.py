"""How large the answers of a model are, learned from those that came: so much room is kept for the next one."""

import mmap
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

from pool.client.request import Request
from pool.wire.lent import LENT_BYTES, rounded_up

__all__ = ["AnswerSizes"]

MOST_KEPT = 256
FADES = 0.98  # of what is known, with each smaller answer: one that was huge is forgotten after some hundred

_Asked = tuple[str, str | None, tuple[str, ...] | None]


class AnswerSizes:
    """Written by the I/O thread, read by all."""

    def __init__(self) -> None:
        self._row_bytes: OrderedDict[_Asked, float] = OrderedDict()  # of jobs without rows: as if they had one

    def expected_bytes(self, request: Request, rows: int | None) -> int:
        """Of the tensors of an answer that would lie in a segment; 0 if there are none, or none has come yet.

        Whole pages: each tensor of the answer, and of each of its pieces, begins at a multiple of `ALIGNED`.
        """
        row_bytes = self._row_bytes.get((request.model, request.signature, request.outputs), 0.0)
        expected = int(row_bytes * (rows or 1))
        return rounded_up(expected, mmap.PAGESIZE) if expected >= LENT_BYTES else 0

    def learn(self, request: Request, rows: int | None, answer: "Mapping[str, np.ndarray[Any, Any]]") -> None:
        """The largest of late counts; an output that is no number is no matter."""
        size_bytes = sum(rounded_up(array.nbytes) for array in answer.values() if not array.dtype.hasobject)
        asked = request.model, request.signature, request.outputs
        known = self._row_bytes.get(asked)
        if known is None and size_bytes < LENT_BYTES:
            return
        self._row_bytes[asked] = max(size_bytes / (rows or 1), FADES * (known or 0.0))
        if len(self._row_bytes) > MOST_KEPT:
            self._row_bytes.popitem(last=False)

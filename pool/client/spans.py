"""Arrays over regions of a segment, which hold their region as long as they, or a view of them, are there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pool.client.shared_memory import Piece, Region

__all__ = ["array_over", "piece_of"]


class _Span:
    """What numpy keeps as the base of an array: unlike a memoryview, it knows its region."""

    __slots__ = ("__array_interface__", "region")

    def __init__(self, region: Region, offset: int, size_bytes: int) -> None:
        self.region = region
        address = _address(region) + offset - region.offset
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def _address(region: Region) -> int:
    segment = region.segment
    if segment.address is None:  # asked of numpy once: each job with a large tensor needs it three times
        segment.address = int(np.frombuffer(segment.memory, np.uint8).__array_interface__["data"][0])
    return segment.address + region.offset


def array_over(region: Region, offset: int, size_bytes: int) -> NDArray[np.uint8]:
    """So many bytes of the segment, all of them within the region."""
    region.show()
    assert region.offset <= offset <= offset + size_bytes <= region.offset + region.size_bytes
    return np.asarray(_Span(region, offset, size_bytes))


def piece_of(array: NDArray[Any]) -> Piece | None:
    """Where an array lies, if it is in C order and within a region."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):  # of an array that was decoded
        return None
    if not isinstance(base, _Span) or not array.flags.c_contiguous or not base.region.segment.is_current:
        return None
    offset = base.region.offset + array.__array_interface__["data"][0] - _address(base.region)
    return Piece(base.region, offset, array.nbytes)

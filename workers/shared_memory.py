"""The segments that the pool has handed to this worker, mapped.

The control thread hears of them, the lanes use them. A RUN may be quicker than the segment that it names.
"""

import socket
import threading
import time

from pool.wire.codec import BadFrame
from pool.wire.segment import attach, receive_grant

__all__ = ["SharedMemory"]

WAIT_S = 30.0  # for a segment that is on its way, while an import may hold up the control thread


class SharedMemory:
    """Safe from several threads."""

    def __init__(self) -> None:
        self._mapped: dict[int, memoryview] = {}
        self._more = threading.Condition()

    def receive(self, link: socket.socket) -> bool:
        """Takes what the pool has to say on the link; False when the pool is gone. Raises `BadFrame`, `BadSegment`."""
        with receive_grant(link) as received:
            if received is None:
                return False
            grant, fd = received
            with self._more:
                if fd is None:
                    self._mapped.pop(grant.segment, None)  # what still looks at it keeps it
                else:
                    self._mapped[grant.segment] = memoryview(attach(fd, grant.size_bytes))
                    self._more.notify_all()
        return True

    def memory(self, segment: int, offset: int, size_bytes: int) -> memoryview:
        """So many bytes there, which a client may write at any time. Raises `BadFrame`."""
        mapped = self._mapped.get(segment)
        if mapped is None:
            mapped = self._wait(segment)
        if not 0 <= offset <= offset + size_bytes <= len(mapped):
            raise BadFrame(f"{size_bytes} bytes at {offset} of a segment of {len(mapped)}")
        return mapped[offset : offset + size_bytes]

    def _wait(self, segment: int) -> memoryview:
        ends = time.monotonic() + WAIT_S
        with self._more:
            while segment not in self._mapped:
                left = ends - time.monotonic()
                if left <= 0:
                    raise BadFrame(f"segment {segment} was not handed to this worker")
                self._more.wait(left)
            return self._mapped[segment]

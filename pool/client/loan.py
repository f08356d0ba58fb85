"""The connection on which a pool lends memory; see `pool.serve.listener`."""

import mmap
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from pool.wire.codec import BadFrame
from pool.wire.segment import BadSegment, MemoryRequest, attach, receive_grant

__all__ = ["USUAL_BYTES", "Loan"]

USUAL_BYTES = 256 << 20  # of one segment; what is never touched takes no memory


class Loan:
    """Its end is the client's, for the pool."""

    def __init__(self, path: Path, ticket: bytes) -> None:
        """Shows the ticket at the pool's socket. Does not wait. Raises `OSError`."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        try:
            self._socket.connect(str(path))
            self._socket.send(ticket, socket.MSG_NOSIGNAL)
        except OSError:
            self._socket.close()
            raise

    def request(self, least_bytes: int, until: float) -> Iterator[tuple[int, mmap.mmap]]:
        """Asks for a segment of so many bytes and gives what is granted, with its number; nothing if the pool says so.

        The first ones may be too small: grants that came too late for former requests. Waits until that instant.
        """
        try:
            self._socket.send(MemoryRequest(least_bytes, max(USUAL_BYTES, 4 * least_bytes)).pack(), socket.MSG_NOSIGNAL)
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            while poll.poll(max(0.0, until - time.monotonic()) * 1000):
                with receive_grant(self._socket) as received:
                    if received is None or received[1] is None:
                        return
                    granted = received[0].segment, attach(received[1], received[0].size_bytes)
                yield granted
        except (OSError, BadFrame, BadSegment):
            return

    def close(self) -> None:
        """The pool takes back what it has lent."""
        self._socket.close()

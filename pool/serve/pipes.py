"""What libzmq holds for each client that has not read it yet, in bytes: its own high-water mark counts messages.

Of some messages the last frame is marked: libzmq lets go of it when it has handed it, and all before it, to the kernel,
or when the connection ends. So what a client is sent counts from one mark to the next.
"""

import contextlib
import os
import weakref
from collections import deque

import zmq

from pool.serve.payload import Payload, held_bytes
from pool.wire.multipart import send_frames

__all__ = ["MARK_BYTES", "PIPE_BYTES", "Pipes"]

PIPE_BYTES = 8 << 20  # in one client's pipe; one message may always be there, however large
MARK_BYTES = 64 << 10  # so much is between two marks, which cost some ten microseconds each, and is not counted


class Pipes:
    """Used from the pool's loop."""

    def __init__(self) -> None:
        self.is_waited_for = False
        """Somebody waits for room: `fd` tells when there may be some. Else it is silent."""
        self._passed: deque[tuple[bytes, int]] = deque()  # filled by pyzmq's thread
        self._held: dict[bytes, int] = {}
        self._unmarked: dict[bytes, int] = {}
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # pyzmq makes a context of its own for marks: now, not in the loop.
        zmq.Frame(b"\0", copy=False, copy_threshold=0)

    def send(self, client: bytes, socket: "zmq.Socket[bytes]", route: bytes, frames: Payload) -> bool:
        """False where there is no room in the client's pipe, by our count or by libzmq's.

        Raises what a send raises where nobody is connected there; then nothing was sent, and nothing counts.
        """
        size_bytes = held_bytes(frames)
        if self._passed:
            self._reckon()
        held = self._held.get(client, 0)
        if held and held + size_bytes > PIPE_BYTES:
            return False
        passing = self._unmarked.get(client, 0) + size_bytes
        try:
            if passing < MARK_BYTES:
                send_frames(socket, [route, *frames])
                self._unmarked[client] = passing
                return True
            last = frames[-1]
            mark = memoryview(last.buffer if isinstance(last, zmq.Frame) else last)
            send_frames(socket, [route, *frames[:-1], zmq.Frame(mark, copy=False, copy_threshold=0)])
        except zmq.Again:
            return False
        self._unmarked.pop(client, None)
        self._held[client] = held + passing
        weakref.finalize(mark, self._pass, client, passing).atexit = False
        return True

    def held(self, client: bytes) -> int:
        """The bytes of this client that are not read."""
        if self._passed:
            self._reckon()
        return self._held.get(client, 0)

    @property
    def size_bytes(self) -> int:
        """Of all clients."""
        self._reckon()
        return sum(self._held.values())

    def drain(self) -> None:
        """`fd` is heard, if it had anything to say."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def forget(self, client: bytes) -> None:
        """The client is gone. What its connection holds still counts, until that ends."""
        self._unmarked.pop(client, None)

    def __del__(self) -> None:
        """Not before: as long as libzmq has a mark, it may be told of at `fd`."""
        os.close(self.fd)

    def _reckon(self) -> None:
        while self._passed:
            client, size_bytes = self._passed.popleft()
            self._held[client] -= size_bytes
            if not self._held[client]:
                del self._held[client]

    def _pass(self, client: bytes, size_bytes: int) -> None:
        """In pyzmq's thread: libzmq has let go of a mark."""
        self._passed.append((client, size_bytes))
        if self.is_waited_for:
            os.eventfd_write(self.fd, 1)

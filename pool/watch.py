"""The one wait of the pool's loop, over whatever is registered at that moment.

ZeroMQ sockets ──────────────┐
                             ├─► zmq_poll
descriptors ─► epoll ─► its ─┘
               own one
"""

import select
from typing import TypeAlias

import zmq

from pool.wire.spin import spin

__all__ = ["Source", "Watch"]

READY_A_TURN = 64  # descriptors; the kernel tells of the others first the next time

Source: TypeAlias = "zmq.Socket[bytes] | int"


class Watch:
    """A wait costs the same however many descriptors there are. The sockets are few: zmq_poll asks each of them.

    It asks them itself, each time: what ZeroMQ tells at a socket's descriptor is that its state may have changed, and
    nothing more is told while messages are left there that nobody has received.
    """

    def __init__(self, spin_s: float = 0.0) -> None:
        """`spin_s`: how long it looks again and again before it sleeps."""
        self._spin_s = spin_s
        self._epoll = select.epoll()
        self._poller = zmq.Poller()
        self._poller.register(self._epoll.fileno(), zmq.POLLIN)

    def close(self) -> None:
        self._epoll.close()

    def add(self, source: Source) -> None:
        """From the next wait on. REQUIRES that it is not there, and that it is removed before it is closed."""
        if isinstance(source, int):
            self._epoll.register(source, select.EPOLLIN)
        else:
            self._poller.register(source, zmq.POLLIN)

    def remove(self, source: Source) -> None:
        if isinstance(source, int):
            self._epoll.unregister(source)
        else:
            self._poller.unregister(source)

    def wait(self, seconds: float) -> list[Source]:
        """Those that are readable, or have ended, within so many seconds; a millisecond more at most."""
        poll = self._poller.poll
        ready: list[tuple[Source, int]] = []
        if self._spin_s and seconds > 0.0:
            ready = spin(lambda: poll(0), self._spin_s)
        if not ready:
            # Rounded up, so that what is due then has come.
            ready = poll(int(seconds * 1000) + 1 if seconds > 0.0 else 0)
        sources: list[Source] = []
        for source, _ in ready:
            if isinstance(source, int):  # the one of all descriptors
                sources += [fd for fd, _ in self._epoll.poll(0, READY_A_TURN)]
            else:
                sources.append(source)
        return sources

"""The ZeroMQ context that all connections of this process share: a thread and five descriptors, once.

The first connection makes it, the last one ends it. A forked child never uses its parent's.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from pool.client.channel import Channel
from pool.client.sources import Sources
from pool.errors import PoolUnreachable
from pool.keys import Keys
from pool.loop import descriptors

__all__ = ["SharedContext", "shared"]

# libzmq aborts the process where it finds no descriptor. A channel takes three, and five more with a new context; the
# rest is for what other threads open at the same instant.
RESERVE = 16
MOST_SOCKETS = 20_000  # libzmq's default is 1023, and a connection has three


class SharedContext:
    """The context of one process, and how many use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._users = 0

    def join(self) -> None:
        with self._lock:
            if self._context is None:
                self._context = zmq.Context()
                self._context.max_sockets = MOST_SOCKETS
            self._users += 1

    def leave(self) -> None:
        """The last one waits until what was sent last has gone, for as long as the sockets linger."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            context, self._context = self._context, None
        assert context is not None
        context.term()

    def channel(self, endpoint: str, sources: Sources, keys: Keys | None = None) -> Channel:
        """REQUIRES `join`. Raises `PoolUnreachable` where too few descriptors are left, or for what is no endpoint."""
        with self._lock:  # one at a time: each looks whether there is room for itself alone
            assert self._context is not None
            left = descriptors.left()
            if left < RESERVE:
                raise PoolUnreachable(
                    f"cannot make a connection: this process has {max(0, left)} file descriptors left of its"
                    f" {descriptors.limit()} and keeps {RESERVE} free; close other clients, or raise `ulimit -n`"
                )
            return Channel(self._context, endpoint, sources, keys)


_shared = SharedContext()
_parents: list[SharedContext] = []  # of the processes this one was forked from: kept, because their end is not ours


@contextmanager
def shared() -> Iterator[SharedContext]:
    """For one connection, from its first channel to its last."""
    context = _shared
    context.join()
    try:
        yield context
    finally:
        context.leave()


def _after_fork_in_child() -> None:
    global _shared
    _parents.append(_shared)
    _shared = SharedContext()


os.register_at_fork(after_in_child=_after_fork_in_child)

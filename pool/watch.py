"""The one wait of the pool's loop, over whatever is open at that moment."""

from collections.abc import Iterable

import zmq

from pool.wire.spin import spin

__all__ = ["Watch"]


class Watch:
    """Registers only what is another since the last wait: the same few descriptors are waited for again and again."""

    def __init__(self, spin_s: float = 0.0) -> None:
        """`spin_s`: how long it looks again and again before it sleeps."""
        self._spin_s = spin_s
        self._poller = zmq.Poller()
        self._sources: set[zmq.Socket[bytes] | int] = set()

    def wait(self, sources: "Iterable[zmq.Socket[bytes] | int]", ms: int) -> "list[zmq.Socket[bytes] | int]":
        """Those of the sources, sockets or descriptors, that are readable within so many milliseconds."""
        wanted = set(sources)
        if wanted != self._sources:
            for source in self._sources - wanted:
                self._poller.unregister(source)
            for source in wanted - self._sources:
                self._poller.register(source, zmq.POLLIN)
            self._sources = wanted
        if self._spin_s and ms and (ready := spin(lambda: self._poller.poll(0), self._spin_s)):
            return [source for source, _ in ready]
        return [source for source, _ in self._poller.poll(ms)]

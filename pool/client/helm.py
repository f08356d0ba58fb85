"""Who talks with the pool: the I/O thread, or the caller of a lone job, who then wakes nobody and is woken by nobody.

    I/O thread   works ──► rests ──(a source is ready, or its time is over)──► works
    caller                 takes over ──► works ◄──► waits ──► hands back

Both wait for the same sources. The I/O thread rests in an epoll of its own that holds theirs, and a caller takes that
out of it: so an answer wakes the one who waits for it, and not the other too.
"""

import select
import threading
import time

from pool.wire.spin import spin

__all__ = ["Helm"]

LOOK_S = 1.0
MOST = 8  # sources: the socket, what tells of its end, the waker


class Helm:
    """Who has it may use the sockets. It is the I/O thread's, which lends it only while it rests."""

    def __init__(self, spin_s: float = 0.0) -> None:
        """`spin_s`: how long a caller looks again and again before he sleeps.

        Raises `OSError` where the process has no descriptor left."""
        self._lock = threading.Lock()
        self._sources = select.epoll()
        try:
            self._rest = select.epoll()
        except OSError:
            self._sources.close()
            raise
        self._rest.register(self._sources, select.EPOLLIN)
        self._rests_until = 0.0
        self._waits = False
        self._spin_s = spin_s

    def watch(self, source: int) -> None:
        """A descriptor that ends a rest and a wait."""
        self._sources.register(source, select.EPOLLIN)

    def forget(self, source: int) -> None:
        self._sources.unregister(source)

    # --- the I/O thread -----------------------------------------------------------------------------------------

    def steer(self) -> None:
        """Has it from now on, but for its rests. A caller who has it gives it back when its job has ended."""
        while not self._lock.acquire(timeout=LOOK_S):
            pass

    def rest(self, seconds: float) -> dict[int, int]:
        """Until a source is ready or the time is over, and then until the helm is back. The sources that are ready."""
        self._rests_until = time.monotonic() + seconds
        self._lock.release()
        try:
            self._rest.poll(seconds, 1)
        finally:
            self.steer()
        return dict(self._sources.poll(0, MOST))

    # --- a caller -----------------------------------------------------------------------------------------------

    def take(self) -> bool:
        """Takes it if the I/O thread rests. Never blocks."""
        if not self._lock.acquire(blocking=False):
            return False
        self._rest.unregister(self._sources)
        return True

    def wait(self, seconds: float) -> dict[int, int]:
        """Until a source is ready or the time is over; nobody else has the helm meanwhile. The sources that are."""
        self._waits = True
        ready = spin(lambda: self._sources.poll(0, MOST), self._spin_s) if self._spin_s else []
        ready = ready or self._sources.poll(seconds, MOST)
        self._waits = False
        return dict(ready)

    @property
    def was_waiting(self) -> bool:
        """Whether what ended a caller's turn, such as a KeyboardInterrupt, came while it only waited."""
        return self._waits

    @property
    def rests_until(self) -> float:
        """When the I/O thread will look by itself."""
        return self._rests_until

    def hand_back(self) -> None:
        self._waits = False
        self._rest.register(self._sources, select.EPOLLIN)
        self._lock.release()

    # ------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._rest.close()
        self._sources.close()

"""What a client waits for: the sockets to its pool, and the bell by which other threads of its process call.

The thread rests in an epoll of its own that holds them all. A caller who drives takes them out of it: so what comes
wakes the one who waits for it, and not the thread too.
"""

import contextlib
import io
import os
import select

__all__ = ["Sources"]

MOST = 8  # the sockets, what tells of their end, the bell
ONE = (1).to_bytes(8, "little")


class Sources:
    """Used by whoever drives, but for `ring` and `call_thread`, which take no lock and never raise."""

    def __init__(self) -> None:
        """Raises `OSError` where the process has no descriptor left."""
        with contextlib.ExitStack() as opened:
            self._all, self._rest = (opened.enter_context(select.epoll()) for _ in range(2))
            self._bell, self._call = (opened.enter_context(_bell()) for _ in range(2))
            self._opened = opened.pop_all()
        self._all.register(self._bell, select.EPOLLIN)
        self._rest.register(self._call, select.EPOLLIN)
        self._rest.register(self._all, select.EPOLLIN)
        self._bell_number = self._bell.fileno()
        self._is_rung = False
        self.is_called = False
        """The thread is, and has not heard it."""

    @property
    def descriptor(self) -> int:
        """Readable while there is something to `wait` for."""
        return self._all.fileno()

    def watch(self, source: int) -> None:
        """A descriptor that ends a rest and a wait."""
        self._all.register(source, select.EPOLLIN)

    def forget(self, source: int) -> None:
        self._all.unregister(source)

    def wait(self, seconds: float) -> dict[int, int]:
        """Until one is ready or the time is over. Those that are; whoever rang has been heard then."""
        ready = dict(self._all.poll(seconds, MOST))
        if self._is_rung or self._bell_number in ready:
            self._bell.read(8)
            self._is_rung = False  # last: whoever finds it set has left something that the driver looks at next
        return ready

    # --- the thread and the callers -----------------------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        """The thread's: until one is ready that nobody has borrowed, it is called, or the time is over."""
        if not seconds or self._rest.poll(seconds, 2):
            self._call.read(8)
            self.is_called = False

    def borrow(self) -> None:
        """The thread does not wait for them meanwhile."""
        try:  # noqa: SIM105  # each job of a caller who is alone comes here
            self._rest.unregister(self._all)
        except FileNotFoundError:  # whoever had them was interrupted
            pass

    def give_back(self) -> None:
        try:  # noqa: SIM105
            self._rest.register(self._all, select.EPOLLIN)
        except FileExistsError:
            pass

    def ring(self) -> None:
        """Wakes who drives. One that nobody has heard yet is enough: he looks at all there is to do after it."""
        if self._is_rung:
            return
        try:
            self._is_rung = True
            self._bell.write(ONE)
        except (OSError, ValueError):  # closed: the connection has ended
            pass
        except BaseException:  # a KeyboardInterrupt in between: the next one must not rely on this
            self._is_rung = False
            raise

    def call_thread(self) -> None:
        """Wakes the thread, whoever drives."""
        self.is_called = True
        with contextlib.suppress(OSError, ValueError):
            self._call.write(ONE)

    def mend(self) -> None:
        """Who heard the bell may have been interrupted before he said so: the next one rings it again."""
        self._is_rung = False

    def close(self) -> None:
        self._opened.close()


def _bell() -> io.FileIO:
    """A file, since one that is closed writes to nobody, whatever has its number by then."""
    return io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")

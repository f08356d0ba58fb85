"""How other threads wake the I/O thread out of its poll."""

import contextlib
import socket

__all__ = ["Waker"]


class Waker:
    """`wake` takes no lock and never raises, so a finalizer may call it at any instant.

    One that nobody has heard yet is enough: the I/O thread looks at all there is to do after it has heard it.
    """

    def __init__(self) -> None:
        """Raises `OSError` where the process has no descriptor left."""
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._unheard = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        if self._unheard:
            return
        try:
            self._unheard = True
            self._writer.send(b"\0")
        except OSError:  # closed: the I/O thread has ended
            pass
        except BaseException:  # a KeyboardInterrupt in between: the next one must not rely on this
            self._unheard = False
            raise

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        self._unheard = False  # last: whoever finds it set has left something that the I/O thread looks at next

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

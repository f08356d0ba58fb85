"""Lines on a descriptor that may be anything: a terminal, a file, a pipe, whoever reads it or does not."""

import os
import select
from collections.abc import Callable

from pool.logs.entry import Entry

__all__ = ["Stream"]


class Stream:
    def __init__(self, fd: int, line: Callable[[Entry], str], encoding: str = "utf-8") -> None:
        """`line` makes of an entry one or more lines, with their ends. The descriptor stays the caller's."""
        self._fd = fd
        self._line = line
        self._encoding = encoding

    def send(self, entry: Entry) -> None:
        """Waits for as long as nobody reads; raises OSError where nobody will, or the disk is full."""
        rest = memoryview(self._line(entry).encode(self._encoding, errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another program that shares the descriptor has made it so
                writable = select.poll()
                writable.register(self._fd, select.POLLOUT)
                writable.poll()

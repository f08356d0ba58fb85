"""The log as lines: on a descriptor that may be a terminal, a pipe, whoever reads it or does not; or in a file.

Nobody looks at such a file until something goes wrong, and it may be written for months.
"""

import contextlib
import os
import select
from collections.abc import Callable
from pathlib import Path

from pool.logs.entry import Entry
from pool.wire.texts import printable

__all__ = ["BoundedFile", "Stream", "Terminal"]

MOST_BYTES = 2 << 20
CLEAR = "\r\x1b[K"  # the line that the cursor is in


class Stream:
    def __init__(self, fd: int, line: Callable[[Entry], str], encoding: str = "utf-8") -> None:
        """`line` makes of an entry one or more lines, with their ends. The descriptor stays the caller's."""
        self._fd = fd
        self._line = line
        self._encoding = encoding

    def send(self, entry: Entry) -> None:
        """Waits for as long as nobody reads; raises OSError where nobody will, or the disk is full."""
        self._write(self._line(entry))

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode(self._encoding, errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another program that shares the descriptor has made it so
                writable = select.poll()
                writable.register(self._fd, select.POLLOUT)
                writable.poll()


class Terminal(Stream):
    """Below the log stands what goes on now, in a line that nothing keeps."""

    _now = ""

    def send(self, entry: Entry) -> None:
        if self._now:
            self._write(CLEAR)
        super().send(entry)
        self._write(self._now)

    def show(self, text: str) -> None:
        """What goes on now; nothing for "". Raises OSError where nobody looks any more."""
        self._now = printable(text)[: os.get_terminal_size(self._fd).columns - 1]
        self._write(CLEAR + self._now)


class BoundedFile:
    """Past `most_bytes` the file becomes `PATH.1`, in place of an older one, and the descriptor a new file."""

    def __init__(self, path: Path, fd: int, line: Callable[[Entry], str], most_bytes: int = MOST_BYTES) -> None:
        """`fd`: standard error, open to append to `path`; what else is printed there goes to the same file."""
        self._path = path
        self._fd = fd
        self._most_bytes = most_bytes
        self._stream = Stream(fd, line)

    def send(self, entry: Entry) -> None:
        """Raises OSError where the disk is full."""
        self._stream.send(entry)
        if os.fstat(self._fd).st_size >= self._most_bytes:
            with contextlib.suppress(OSError):  # the folder is gone with the program, or is full
                self._turn()

    def _turn(self) -> None:
        older, fresh = self._path.with_name(f"{self._path.name}.1"), self._path.with_name(f"{self._path.name}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._path.replace(older)
            fresh.replace(self._path)
            os.dup2(descriptor, self._fd)
        finally:
            os.close(descriptor)

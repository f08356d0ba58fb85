"""A log that nobody looks at until something goes wrong, and that may be written for months."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pool.logs.entry import Entry
from pool.logs.stream import Stream

__all__ = ["BoundedFile"]

MOST_BYTES = 2 << 20


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

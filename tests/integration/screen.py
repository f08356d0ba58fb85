"""A command in a terminal of its own, as a person has it."""

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl

from support.commands import command_line
from support.pool_process import PoolProcess

__all__ = ["LONGEST_S", "Screen", "on_screen"]

LONGEST_S = 20.0


CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of colours and places


class Screen:
    """A command in a terminal of its own, and all that it has written."""

    def __init__(self, fd: int, process: "subprocess.Popen[bytes]") -> None:
        self.fd, self.process, self.written = fd, process, ""

    def until(self, *words: str) -> None:
        """Until it has written one of them."""
        deadline = time.monotonic() + LONGEST_S
        while not any(word in CODES.sub("", self.written) for word in words):
            assert time.monotonic() < deadline, self.written[-3000:]
            assert self._read(), f"it ended before it wrote {' or '.join(words)}: {self.written[-3000:]}"

    def _read(self) -> bool:
        """False once it has ended."""
        if not select.select([self.fd], [], [], 1.0)[0]:
            return True
        try:
            self.written += os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return False
        return True

    def press(self, keys: str) -> None:
        self.written = ""
        os.write(self.fd, keys.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + LONGEST_S
        while self._read():  # what it writes last must be read
            assert time.monotonic() < deadline, self.written[-3000:]
        return self.process.wait(LONGEST_S)


@contextmanager
def on_screen(pool: PoolProcess | None, *arguments: str, columns: int = 100, lines: int = 24) -> Iterator[Screen]:
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command_line(pool, *arguments),
        stdin=its,
        stdout=its,
        stderr=its,
        env={**environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Screen(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)

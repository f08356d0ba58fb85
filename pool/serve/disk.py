"""What the pool reads of disks while it runs: each in a thread of its own, since a disk may never answer."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger("pool.serve")


class Disk:
    """Its descriptor can be read when something has been read."""

    def __init__(self) -> None:
        self._done: deque[Callable[[], None]] = deque()
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._reader

    def read(self, act: Callable[[], T], then: Callable[[T], None]) -> None:
        """Calls `act` in a thread, which may return late or never, and `then` with what it returned in `hear`."""

        def run() -> None:
            try:
                found = act()
            except Exception:
                log.exception("what a disk has could not be told")
                return
            self._done.append(lambda: then(found))
            os.write(self._writer, b".")

        threading.Thread(target=run, name="disk", daemon=True).start()

    def hear(self) -> None:
        os.read(self._reader, 4096)
        while self._done:
            self._done.popleft()()

"""The log, written by a thread of its own, which alone waits for a terminal stopped by Ctrl-S or an unread pipe."""

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

KEPT, AT_ONCE, WAITING = 1000, 200, 10_000  # lines; past the last number they are dropped and counted
LONGEST_LINE, CLOSE_S = 2000, 1.0
LOGGER = logging.getLogger("pool")
PRIORITIES = {"CRITICAL": 2, "ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}  # syslog's


def printable(text: str) -> str:
    """Without codes that a terminal would obey, on one line."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class Log(logging.Handler):
    """What "pool" and the loggers below it log goes to a descriptor, from now on until `close`."""

    def __init__(self, fd: int, environ: Mapping[str, str]) -> None:
        """In systemd's journal, lines begin with a priority instead of the time, as sd-daemon(3) has it."""
        super().__init__()
        status, self._fd = os.fstat(fd), fd
        self._is_journal = environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
        self._number = self._dropped = 0
        self._kept: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A daemon: one that waits for a reader must not hold up the end of the process.
        self._writer = threading.Thread(target=self._write, name="log", daemon=True)
        self._writer.start()
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False
        LOGGER.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Never waits. Each line of a traceback is one of the log. The caller holds the handler's lock."""
        clock, level = time.strftime("%H:%M:%S", time.localtime(record.created)), record.levelname
        trace = logging.Formatter().formatException(record.exc_info).split("\n") if record.exc_info else []
        for text in [record.getMessage(), *trace]:
            text = printable(text[:LONGEST_LINE])
            line = f"{clock} {level} {text}"
            self._number += 1
            self._kept.append((self._number, line))
            if self._waiting.qsize() < WAITING:
                self._waiting.put(f"<{PRIORITIES.get(level, 6)}>{text}" if self._is_journal else line)
            else:
                self._dropped += 1

    def since(self, number: int) -> list[tuple[int, str]]:
        """The kept lines after this one with their numbers: the oldest of them, 200 at most."""
        return [line for line in self._kept.copy() if line[0] > number][:AT_ONCE]

    def close(self) -> None:
        """Waits one second at most until all is written."""
        LOGGER.removeHandler(self)
        self._waiting.put("")
        self._writer.join(CLOSE_S)

    def _write(self) -> None:
        told = 0
        while line := self._waiting.get():
            dropped = self._dropped
            if dropped > told:
                line += f"\n… {dropped - told} lines were dropped, since nothing read the log"
                told = dropped
            left = f"{line}\n".encode()
            with suppress(OSError):  # nobody is left to be told
                while left:
                    left = left[os.write(self._fd, left) :]

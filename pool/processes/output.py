"""What a worker prints: into the log, as much as a second allows; its last lines are kept for the case that it dies."""

import logging
import os
import time
from collections import deque
from collections.abc import Sequence

from pool.logs import about
from pool.processes.noise import is_noise
from pool.wire.texts import printable

__all__ = ["LINES_A_SECOND", "TAIL_LINES", "Output"]

log = logging.getLogger("pool.worker")

TAIL_LINES = 200
LINE_BYTES = 4096
LINES_A_SECOND = 100  # of each worker, in the log
CHUNK_BYTES = 65536


class Output:
    """One worker's standard output and error, both in one pipe."""

    def __init__(self, fd: int, slot: int, incarnation: int, on_gpu: bool) -> None:
        """`fd`: the pipe's reading end, which does not block. It stays the caller's to close."""
        self._fd = fd
        self._slot = slot
        self._incarnation = incarnation
        self._on_gpu = on_gpu
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._second = 0
        self._budget = LINES_A_SECOND
        self._dropped = 0

    def read(self) -> bool:
        """One piece a turn: a worker that prints without end must not hold the loop. False at the end of it all."""
        try:
            chunk = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        self._lines(lines)
        return True

    def finish(self) -> tuple[str, ...]:
        """The worker is gone: reads what it has left, and returns its last lines."""
        self.read()
        if self._rest:
            self._lines([self._rest])
        self._tell_dropped()
        return tuple(self._tail)

    def _lines(self, lines: Sequence[bytes]) -> None:
        """Logs as many as the second allows; of the rest the last ones are kept."""
        second = int(time.monotonic())
        if second != self._second:
            self._tell_dropped()
            self._second, self._budget = second, LINES_A_SECOND
        logged, unlogged = lines[: self._budget], lines[self._budget :]
        self._budget -= len(logged)
        self._dropped += len(unlogged)
        for position, line in enumerate((*logged, *unlogged[-TAIL_LINES:])):
            text = printable(line[:LINE_BYTES].decode(errors="replace").rstrip())
            noise = not text or is_noise(text, self._on_gpu)
            if not noise:
                self._tail.append(text)
            if text and position < len(logged):
                level = logging.DEBUG if noise else logging.INFO
                log.log(level, "slot %d | %s", self._slot, text, extra=self._about("worker_output"))

    def _tell_dropped(self) -> None:
        if self._dropped:
            extra = self._about("worker_output_dropped", self._dropped)
            log.warning("slot %d | … %d more lines", self._slot, self._dropped, extra=extra)
            self._dropped = 0

    def _about(self, event: str, count: int | None = None) -> dict[str, object]:
        return about(event, slot=self._slot, incarnation=self._incarnation, count=count)

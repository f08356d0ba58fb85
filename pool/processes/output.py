"""What a worker or a gateway prints: into the log, as much as a second allows.

Its last lines are kept for the case that it dies.
"""

import logging
import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence

from pool.logs import about
from pool.wire.texts import printable

__all__ = ["LINES_A_SECOND", "TAIL_LINES", "Output", "is_noise"]

log = logging.getLogger("pool.worker")

TAIL_LINES = 200
LINE_BYTES = 4096
LINES_A_SECOND = 100  # of each worker, in the log
CHUNK_BYTES = 65536


class Output:
    """One process's standard output and error, both in one pipe."""

    def __init__(self, fd: int, who: str, events: tuple[str, str], about_it: Mapping[str, int], on_gpu: bool) -> None:
        """`fd`: the pipe's reading end, which does not block. It stays the caller's to close.

        `who` begins each line of the log; `about_it` says the same to a program. `events`: a line, and lines dropped.
        """
        self._fd = fd
        self._who = who
        self._events = events
        self._about_it = about_it
        self._on_gpu = on_gpu
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._second = 0
        self._budget = LINES_A_SECOND
        self._dropped = 0

    @classmethod
    def of_worker(cls, fd: int, slot: int, incarnation: int, on_gpu: bool) -> "Output":
        events = "worker_output", "worker_output_dropped"
        return cls(fd, f"slot {slot}", events, {"slot": slot, "incarnation": incarnation}, on_gpu)

    @classmethod
    def of_gateway(cls, fd: int, number: int) -> "Output":
        events = "gateway_output", "gateway_output_dropped"
        return cls(fd, f"gateway {number}", events, {"gateway": number}, on_gpu=False)

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
        """The process is gone: reads what it has left, and returns its last lines."""
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
        event, _ = self._events
        for position, line in enumerate((*logged, *unlogged[-TAIL_LINES:])):
            text = printable(line[:LINE_BYTES].decode(errors="replace").rstrip())
            noise = not text or is_noise(text, self._on_gpu)
            if not noise:
                self._tail.append(text)
            if text and position < len(logged):
                level = logging.DEBUG if noise else logging.INFO
                log.log(level, "%s | %s", self._who, text, extra=about(event, **self._about_it))

    def _tell_dropped(self) -> None:
        if self._dropped:
            _, event = self._events
            extra = about(event, **self._about_it, count=self._dropped)
            log.warning("%s | … %d more lines", self._who, self._dropped, extra=extra)
            self._dropped = 0


# TensorFlow prints these at every start, and nobody can act on them. TF_CPP_MIN_LOG_LEVEL does not reach what it says
# while its shared objects are being loaded (measured on 2.21: two libraries, each with its own copy of absl, print the
# same three lines at every level). `pool start --log-level debug` shows them.
_IMPORT = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|[IW]0000 .* (port|cudart_stub|cpu_feature_guard|computation_placer)\.cc:"
    r"|E0000 .* Unable to register cu(FFT|DNN|BLAS) factory"
    r"|To enable the following instructions: "
)
_NO_CUDA = re.compile(r".* failed call to cuInit: ")


def is_noise(line: str, on_gpu: bool) -> bool:
    """Whether a worker's line says nothing. Where no GPU is found, a GPU worker's lines are the diagnosis."""
    return bool(_IMPORT.match(line) or (not on_gpu and _NO_CUDA.match(line)))

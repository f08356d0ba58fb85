"""What this worker is doing, written by its main thread and its lanes, read by its control thread."""

import threading
import time

from pool.wire.worker_messages import Beat, LaneProgress, Phase

__all__ = ["Progress"]


class Progress:
    """Each field is written by one thread and replaced whole, so readers need no lock."""

    def __init__(self) -> None:
        self._phase = (Phase.IMPORTING, "")
        self._running: dict[int, tuple[int, float] | None] = {}
        self.changed = threading.Event()

    @property
    def phase(self) -> Phase:
        return self._phase[0]

    def enter(self, phase: Phase, detail: str = "") -> None:
        self._phase = (phase, detail)
        self.changed.set()

    def begin(self, lane: int, batch: int) -> None:
        self._running[lane] = (batch, time.monotonic())

    def end(self, lane: int) -> None:
        self._running[lane] = None

    def beat(self, now: float) -> Beat:
        running = tuple(
            LaneProgress(lane, busy[0], now - busy[1]) for lane, busy in list(self._running.items()) if busy
        )
        return Beat(*self._phase, running)

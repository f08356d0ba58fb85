"""What this worker is doing, written by its main thread and its lanes, read by its control thread."""

from pool.wire.worker_messages import Beat, LaneProgress, Phase

__all__ = ["Progress"]


class Progress:
    """Each field is written by one thread and replaced whole, so readers need no lock."""

    def __init__(self) -> None:
        self._phase = (Phase.IMPORTING, "")
        self.running: dict[int, tuple[int, float] | None] = {}
        """By lane, the batch that it runs and the instant at which it began. Each lane writes its own."""

    @property
    def phase(self) -> Phase:
        return self._phase[0]

    def enter(self, phase: Phase, detail: str = "") -> None:
        self._phase = (phase, detail)

    def beat(self, now: float) -> Beat:
        running = tuple(LaneProgress(lane, busy[0], now - busy[1]) for lane, busy in list(self.running.items()) if busy)
        return Beat(*self._phase, running)

"""How long the pool takes to answer at present, as this client sees it."""

from collections import deque

__all__ = ["Pace"]

KEPT = 15  # answers: odd, so that the median is one of them
MARGIN = 1.2


class Pace:
    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=KEPT)
        self.answer_s = 0.0
        """The time that a job sent now should have left; 0.0 while too little is known."""

    def answered(self, seconds: float) -> None:
        """A job was answered so long after it was sent."""
        self._recent.append(seconds)
        if len(self._recent) == KEPT:
            self.answer_s = MARGIN * sorted(self._recent)[KEPT // 2]

"""How long the pool takes to answer at present, as this client sees it."""

from collections import deque

__all__ = ["Pace"]

KEPT = 15  # answers: odd, so that the median is one of them
MARGIN = 1.2


class Pace:
    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._attentive_since = 0.0
        self.answer_s = 0.0
        """The time that a job sent now should have left; 0.0 while too little is known."""

    def stood_still(self, until: float) -> None:
        """This client did not read until then, so answers to what it had sent before say nothing about the pool."""
        self._attentive_since = until

    def answered(self, sent_at: float, by: float) -> None:
        """The answer to a job that was sent then was there by then."""
        if sent_at < self._attentive_since:
            return
        self._recent.append(max(0.0, by - sent_at))
        if len(self._recent) == KEPT:
            self.answer_s = MARGIN * sorted(self._recent)[KEPT // 2]

"""When a connection pings, and when the pool's silence means that it is gone. The clock is an argument.

The pool hears a client that has jobs with it every second, and so does the client the pool. Silence is judged by a
PING that was not answered, and only by time in which this process ran: one that was frozen (SIGSTOP, a paused
machine, a long done-callback) finds the answers of that time in the kernel's buffers.
"""

__all__ = ["Pulse"]

PING_S = 1.0  # how long either side may be silent while something is awaited
SILENCE_S = 10.0  # how long before the pool counts as gone; its loop never pauses for a second
OVERSLEPT_S = 1.0  # who comes out of a poll so much later than asked did not run
SETTLE_S = 0.25  # what arrived while this process stood still is read in this time, before anything is judged


class Pulse:
    def __init__(self, now: float) -> None:
        self._heard = self._sent = self._pinged = now
        self._unanswered: float | None = None
        self._awake = now
        self.judge_from = now

    def sent(self, now: float) -> None:
        """Any message left."""
        self._sent = now

    def heard(self, now: float) -> None:
        """Any message came."""
        self._heard = now
        self._unanswered = None

    def next_ping(self) -> float:
        """When the next PING is due while something is awaited."""
        return max(self._pinged, min(self._sent, self._heard)) + PING_S

    def pinged(self, now: float) -> None:
        self._pinged = self._sent = now
        if self._unanswered is None:
            self._unanswered = now

    def silent(self, now: float) -> bool:
        """Whether the pool counts as gone."""
        return self._unanswered is not None and now - self._unanswered >= SILENCE_S - PING_S

    def unanswered_s(self, now: float) -> float:
        """Since when a PING waits for any sign of life."""
        return 0.0 if self._unanswered is None else now - self._unanswered

    def sleep(self, until: float) -> None:
        """Who drives waits until then at most."""
        self._awake = until

    def overslept(self, now: float) -> float:
        """For how many seconds this process stood still since `sleep`; 0.0 if it did not.

        If it did, the wait for an answer begins again, and nothing should be judged before `judge_from`.
        """
        late = now - self._awake
        self._awake = now
        if late < OVERSLEPT_S:
            return 0.0
        if self._unanswered is not None:
            self._unanswered = now
        self.judge_from = now + SETTLE_S
        return late

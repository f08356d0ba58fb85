"""When a dead worker's slot tries again: OTP's intensity and period, with exponential backoff and seeded jitter."""

import random
from collections import deque

from pool.core.policy import Policy

__all__ = ["RestartHistory"]


class RestartHistory:
    """The failures of one slot. More than `restart_intensity` of them within `restart_period_s` end the trying."""

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self._failures: deque[float] = deque()

    def pause_after_failure(self, now: float) -> float | None:
        """Seconds until the next try, or None when there were too many."""
        self._failures.append(now)
        while self._failures[0] < now - self._policy.restart_period_s:
            self._failures.popleft()
        if len(self._failures) > self._policy.restart_intensity:
            return None
        doublings = min(len(self._failures) - 1, 64)  # a float has no room for those of a patient intensity
        pause = min(self._policy.backoff_max_s, self._policy.backoff_first_s * 2.0**doublings)
        # Jitter, so that workers killed by one cause do not all load their models in the same second.
        return pause * self._rng.uniform(0.6, 1.0)

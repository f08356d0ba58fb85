"""When a dead worker's slot tries again: OTP's intensity and period, with exponential backoff and seeded jitter."""

import random
from collections import deque
from dataclasses import dataclass

from pool.core.policy import Policy

__all__ = ["GivenUp", "Pause", "RestartHistory"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Try again after so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Too many deaths; `reason` counts them."""

    reason: str


class RestartHistory:
    """The deaths of one slot's workers.

    The trying ends after more than `restart_intensity` deaths in a row of workers that were not READY for a whole
    `restart_period_s`, however long each load took; or as many within that period of workers that held no job; or as
    many in a row of workers that finished nothing and whose jobs were well elsewhere. Any other death that a job may
    have caused neither ends the trying nor makes the pause longer: a client that repeats a poisonous job must not take
    the slot from all.
    """

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        self.policy = policy
        self._rng = rng
        self._unprovoked: deque[float] = deque()
        self._short_lived = 0

    def after_death(self, now: float, *, served_s: float | None, held_jobs: bool, in_vain: int = 0) -> Pause | GivenUp:
        """`served_s`: how long the worker had been READY, None if never; `held_jobs`: it was running something.

        `in_vain`: as in `Slot`.
        """
        policy = self.policy
        if not held_jobs:
            self._unprovoked.append(now)
        while self._unprovoked and self._unprovoked[0] < now - policy.restart_period_s:
            self._unprovoked.popleft()
        provoked = served_s is not None and held_jobs
        if served_s is not None and served_s >= policy.restart_period_s:
            self._short_lived = 0
        elif not provoked:
            self._short_lived += 1
        if len(self._unprovoked) > policy.restart_intensity:
            deaths, period = len(self._unprovoked), policy.restart_period_s
            return GivenUp(f"{deaths} deaths within {period:g} s ([restart] intensity)")
        if self._short_lived > policy.restart_intensity:
            lived = f"before they were READY for {policy.restart_period_s:g} s"
            return GivenUp(f"{self._short_lived} deaths in a row {lived} ([restart] intensity)")
        if in_vain > policy.restart_intensity:
            fine = "finished nothing, while their jobs succeeded in other slots"
            return GivenUp(f"{in_vain} workers in a row {fine} ([restart] intensity)")
        counted = [in_vain] if provoked else [in_vain, len(self._unprovoked), self._short_lived]
        doublings = max(*counted, 1) - 1
        # A float has no room for the doublings of a patient intensity.
        pause = min(policy.backoff_max_s, policy.backoff_first_s * 2.0 ** min(doublings, 64))
        # Jitter, so that workers killed by one cause do not all load their models in the same second.
        return Pause(pause * self._rng.uniform(0.6, 1.0))

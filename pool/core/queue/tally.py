"""How the jobs of one model ended: all of them since the pool began, and those of the last minute.

Each job costs one search in a list of bounds. Nothing else happens until somebody asks, or five seconds have passed.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import accumulate
from typing import Any

__all__ = ["BOUNDS_S", "Tally"]

# Upper ends of the buckets, 0.1 ms to 700 s. A last bucket, without an end, has the longer ones.
BOUNDS_S = tuple(step * 10.0**power for power in range(-4, 3) for step in (1, 1.5, 2, 3, 5, 7))
WINDOW_S = 60.0
STEP_S = 5.0  # between two snapshots


class Tally:
    """`done`: jobs with a result, by the time from their arrival to their answer: one number a bucket. `failed`: those
    with an error, by its kind. Jobs that were cancelled are in neither.

    `Answers` counts into `done` itself, which costs no call, and calls `snap` first, once `now` has reached `due`.
    """

    __slots__ = ("_began", "_snapshots", "done", "due", "failed")

    def __init__(self) -> None:
        self.done = [0] * (len(BOUNDS_S) + 1)
        self.failed: Counter[str] = Counter()
        self.due = 0.0
        self._began: float | None = None
        # (a multiple of STEP_S, `done` and `failed` as they were then); no job ended between `due` and a snapshot, so
        # each counts what ended up to its instant, however late it was taken.
        self._snapshots: deque[tuple[float, tuple[int, ...], int]] = deque(maxlen=int(WINDOW_S / STEP_S) + 1)

    def snap(self, now: float) -> None:
        """Before a job is counted that ends now."""
        at = now // STEP_S * STEP_S
        if self._began is None:
            self._began = at - STEP_S
        self._snapshots.append((at, tuple(self.done), self.failed.total()))
        self.due = at + STEP_S

    def fail(self, kind: str, jobs: int, now: float) -> None:
        if now >= self.due:
            self.snap(now)
        self.failed[kind] += jobs

    def last_minute(self, now: float) -> dict[str, Any]:
        """For people. Half of the jobs took at most `p50_s`, the end of a bucket; None: no job, or it has no end.

        `seconds`: the length of the window, from five seconds, when the first job has just ended, to sixty.
        """
        since = now // STEP_S * STEP_S - WINDOW_S + STEP_S
        nothing = (now, tuple(self.done), self.failed.total())
        _, done_before, failed_before = next((each for each in self._snapshots if each[0] >= since), nothing)
        done = [count - before for count, before in zip(self.done, done_before, strict=True)]
        return {
            "seconds": now - max(since, since if self._began is None else self._began),
            "done": sum(done),
            "failed": nothing[2] - failed_before,
            "p50_s": _quantile(done, 0.5),
            "p99_s": _quantile(done, 0.99),
        }


def _quantile(counts: list[int], share: float) -> float | None:
    """The end of the first bucket that, with those below, has this share of all."""
    sums = list(accumulate(counts))
    if not sums[-1]:
        return None
    place = next(place for place, total in enumerate(sums) if total >= share * sums[-1])
    return BOUNDS_S[place] if place < len(BOUNDS_S) else None

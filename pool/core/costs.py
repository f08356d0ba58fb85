"""What a batch of so many rows costs, learned from the batches that ran.

For each key and batch size the last few durations are kept: their median is what a batch is expected to take, so one
outlier (a first compile, a page that was swapped out) moves nothing; their minimum is what it surely takes, which is
what a job may be refused by.
"""

from __future__ import annotations

import math
from collections import deque

__all__ = ["Cost"]

KEPT = 9  # durations a size: odd, so that the median is one of them
ENOUGH = 3  # durations before anybody is refused by them
OUTLYING = 2.0  # times the median
FORGOTTEN = 0.1  # the share of what a row took that a run which took longer replaces: it may have been held up
STALE_S = 10.0
STALE_RUNS = 20
MOST_SIZES = 64  # a key; of more, those that were learned longest ago are forgotten
MOST_CACHED = 256


class Cost:
    """Of one key. Sizes are the rows fed, padding included; 0 stands for jobs without rows."""

    __slots__ = ("_amply", "_expected", "_known", "_longest", "_medians", "_recent", "_surely", "last_learned", "row_s")

    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._amply: dict[int, float] = {}
        self._longest: dict[int, float] = {}
        # Asked far more often than anything is learned.
        self._expected: dict[int, float] = {}
        self._surely: dict[int, float] = {}
        self._known: dict[int, float] = {}
        self.last_learned = 0.0
        self.row_s = 0.0
        """What a row takes in the worker alone, without the way there, at the quickest of late; 0.0: not known."""

    def learn(self, rows: int, seconds: float, now: float) -> None:
        """A batch of so many rows took so long."""
        recent = self._recent.get(rows)
        if recent is None:
            if len(self._recent) >= MOST_SIZES:
                forgotten = next(iter(self._recent))
                for kept in (self._recent, self._medians, self._amply, self._longest):
                    del kept[forgotten]
            recent = deque(maxlen=KEPT)
        else:
            del self._recent[rows]
        self._recent[rows] = recent  # at the end: what was learned longest ago is first
        recent.append(seconds)
        self._longest[rows] = max(recent)
        median = self._medians[rows] = sorted(recent)[len(recent) // 2]
        self._amply[rows] = max(duration for duration in recent if duration <= OUTLYING * median)
        self._expected = dict(self._medians)
        self._surely.clear()
        self._known.clear()
        self.last_learned = now

    def ran(self, rows: int, seconds: float) -> None:
        """A worker has run so many rows, in one go or several, in so many seconds."""
        row_s = seconds / rows
        held_up = self.row_s and row_s > self.row_s
        self.row_s = self.row_s + FORGOTTEN * (row_s - self.row_s) if held_up else row_s

    def expected(self, rows: int) -> float | None:
        """How long a batch of so many rows is likely to take; None if nothing is known.

        Between known sizes on the straight line; below the smallest, as much; beyond the largest, half of it in
        proportion, as if half of it were the run's own and half the rows'.
        """
        expected = self._expected.get(rows)
        if expected is None and self._medians:
            expected = self._between(rows)
            if len(self._expected) < MOST_CACHED:
                self._expected[rows] = expected
        return expected

    def _between(self, rows: int) -> float:
        medians = self._medians
        below = max((size for size in medians if size < rows), default=None)
        above = min((size for size in medians if size > rows), default=None)
        if below is None:
            return medians[above]  # type: ignore[index]  # there is at least one size
        if above is None:
            return medians[below] * (1 + rows / below) / 2 if below else medians[below]
        share = (rows - below) / (above - below)
        return medians[below] + share * (medians[above] - medians[below])

    def known(self, rows: int) -> float:
        """What the largest batch of no more rows is expected to take; 0.0 if there was none."""
        known = self._known.get(rows)
        if known is None:
            largest = max((size for size in self._medians if size <= rows), default=None)
            known = 0.0 if largest is None else self._medians[largest]
            if len(self._known) < MOST_CACHED:
                self._known[rows] = known
        return known

    def surely(self, rows: int) -> float:
        """What a batch of so many rows has never undercut of late; 0.0 while too little is known."""
        surely = self._surely.get(rows)
        if surely is None:
            surely = self._least(rows)
            if len(self._surely) < MOST_CACHED:
                self._surely[rows] = surely
        return surely

    def _least(self, rows: int) -> float:
        """Of the sizes up to this one; but what a larger batch took less for, a smaller one does too."""
        least, undercut = 0.0, math.inf
        for size in sorted(self._recent, reverse=True):
            recent = self._recent[size]
            if len(recent) >= ENOUGH:
                undercut = min(undercut, *recent)
                if size <= rows:
                    least = max(least, undercut)
        return least

    def amply(self, rows: int) -> float:
        """What the last batches of this size stayed within, outliers apart; as `known` if none had this size."""
        amply = self._amply.get(rows)
        return self.known(rows) if amply is None else amply

    def is_stale(self, seconds: float, now: float) -> bool:
        """Whether nobody has seen such a duration for so long that the next job should try it again."""
        return now > self.last_learned + max(STALE_S, STALE_RUNS * seconds)

    def slowest(self) -> float:
        """The longest of all that are kept."""
        return max(self._longest.values(), default=0.0)

    def table(self) -> dict[int, tuple[int, float, float]]:
        """For people: rows → (durations kept, median, slowest), seconds."""
        return {
            size: (len(self._recent[size]), self._medians[size], self._longest[size]) for size in sorted(self._recent)
        }

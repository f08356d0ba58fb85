"""What a batch of so many rows costs, learned from the batches that ran.

For each key and batch size the last few durations are kept: their median is what a batch is expected to take, so one
outlier (a first compile, a page that was swapped out) moves nothing; their minimum is what it surely takes, which is
what a job may be refused by.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping

__all__ = ["STALE_S", "Cost"]

KEPT = 9  # durations a size: odd, so that the median is one of them
ENOUGH = 3  # durations before anybody is refused by them
OUTLYING = 2.0  # times the median
FORGOTTEN = 0.1  # the share of what a row took that a run which took longer replaces: it may have been held up
STALE_S = 10.0
STALE_RUNS = 20
MOST_SIZES = 64  # a key; of more, those that were learned longest ago are forgotten
MOST_CACHED = 256


class Size:
    """The last durations of batches of one size, in the order in which they came and in their own."""

    __slots__ = ("count", "last", "learned", "least", "longest", "median", "ordered", "recent", "surely")

    def __init__(self) -> None:
        self.count = 0
        self.recent: list[float] = []
        self.ordered: list[float] = []
        self.last = -1  # where in `recent` the last one is: those before it and then those after it are older
        self.median = 0.0
        self.least = math.inf  # as long as there are too few
        self.surely = 0.0  # the same, or what a larger batch has taken that took less; 0.0 as long as there are too few
        self.longest = 0.0
        self.learned = 0  # the number of the last batch, of all sizes

    def learn(self, seconds: float) -> None:
        ordered = self.ordered
        self.last = last = (self.last + 1) % KEPT
        if last < self.count:
            del ordered[bisect_left(ordered, self.recent[last])]
            self.recent[last] = seconds
        else:
            self.recent.append(seconds)
        insort(ordered, seconds)
        if self.count < KEPT:
            self.count += 1
        self.median, self.longest = ordered[self.count // 2], ordered[-1]
        if self.count >= ENOUGH:
            self.least = ordered[0]

    def amply(self) -> float:
        return self.ordered[bisect_right(self.ordered, OUTLYING * self.median) - 1]


NOTHING = Size()


class Cost:
    """Of one key. Sizes are the rows fed, padding included; 0 stands for jobs without rows.

    What is learned of a batch costs the same however much is known; the rest is found out when it is asked for.
    """

    __slots__ = ("_enough", "_near", "batches", "below", "last_learned", "row_s", "sizes", "slowest_s", "sure")

    def __init__(self) -> None:
        self.sizes: dict[int, Size] = {}
        # Asked far more often than they become others.
        self._near: dict[int, tuple[int, int]] = {}
        self.below: dict[int, Size] = {}
        """By rows: the largest size of no more, as far as somebody has asked `known`."""
        self.sure: dict[int, Size] = {}
        """The same, of those of which there are enough durations, as far as somebody has asked `sure_of`."""
        self._enough: list[Size] = []  # the largest first
        self.batches = 0
        self.last_learned = 0.0
        self.row_s = 0.0
        """What a row takes in the worker alone, without the way there, at the quickest of late; 0.0: not known."""
        self.slowest_s = 0.0
        """The longest of all that are kept."""

    def learn(self, rows: int, seconds: float, now: float) -> None:
        """A batch of so many rows took so long."""
        size = self.sizes.get(rows)
        if size is None:
            size = self._new_size(rows)
        least, longest = size.least, size.longest
        size.learn(seconds)
        self.batches += 1
        size.learned = self.batches
        if size.least != least:
            self._learned_least(least)
        if size.longest > self.slowest_s:
            self.slowest_s = size.longest
        elif size.longest < longest:
            self.slowest_s = max([each.longest for each in self.sizes.values()])
        self.last_learned = now

    def _new_size(self, rows: int) -> Size:
        if len(self.sizes) >= MOST_SIZES:
            del self.sizes[min(self.sizes, key=lambda size: self.sizes[size].learned)]
            self.slowest_s = max([each.longest for each in self.sizes.values()])
            self._learned_least(math.inf)
        size = self.sizes[rows] = Size()
        self._near.clear()
        self.below.clear()
        return size

    def _learned_least(self, former: float) -> None:
        """The least of a size is another; it was `former`, infinite if a size has come to be known well enough."""
        if former == math.inf:
            known = sorted(self.sizes.items(), reverse=True)
            self._enough = [size for _, size in known if size.least < math.inf]
            self.sure.clear()
        surely = math.inf
        for size in self._enough:  # what a larger batch took less for, a smaller one does too
            if size.least < surely:
                surely = size.least
            size.surely = surely

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
        size = self.sizes.get(rows)
        if size is not None:
            return size.median
        if not self.sizes:
            return None
        below, above = self._neighbours(rows)
        if below < 0:
            return self.sizes[above].median
        lower_s = self.sizes[below].median
        if above < 0:
            return lower_s * (1 + rows / below) / 2 if below else lower_s
        return lower_s + (rows - below) / (above - below) * (self.sizes[above].median - lower_s)

    def _neighbours(self, rows: int) -> tuple[int, int]:
        """The largest known size of fewer rows, and the smallest of more; -1 where there is none."""
        near = self._near.get(rows)
        if near is None:
            near = (
                max((size for size in self.sizes if size < rows), default=-1),
                min((size for size in self.sizes if size > rows), default=-1),
            )
            if len(self._near) < MOST_CACHED:
                self._near[rows] = near
        return near

    def known(self, rows: int) -> float:
        """What the largest batch of no more rows is expected to take; 0.0 if there was none."""
        return (self.below[rows] if rows in self.below else self._at_most(rows, self.sizes, self.below)).median

    def surely(self, rows: int) -> float:
        """What a batch of so many rows has never undercut of late; 0.0 while too little is known.

        That of the largest size up to this one, or of a larger one that took less.
        """
        return (self.sure[rows] if rows in self.sure else self.sure_of(rows)).surely

    def sure_of(self, rows: int) -> Size:
        """The size whose `surely` is that of so many rows."""
        enough = {rows_of: size for rows_of, size in self.sizes.items() if size.least < math.inf}
        return self._at_most(rows, enough, self.sure)

    def _at_most(self, rows: int, sizes: Mapping[int, Size], cached: dict[int, Size]) -> Size:
        """The largest of these sizes that has no more rows, or one of which nothing is known."""
        largest = max([size for size in sizes if size <= rows], default=None)
        found = NOTHING if largest is None else sizes[largest]
        if len(cached) < MOST_CACHED:
            cached[rows] = found
        return found

    def amply(self, rows: int) -> float:
        """What the last batches of this size stayed within, outliers apart; as `known` if none had this size."""
        size = self.sizes.get(rows)
        return self.known(rows) if size is None else size.amply()

    def is_stale(self, seconds: float, now: float) -> bool:
        """Whether nobody has seen such a duration for so long that the next job should try it again."""
        ago = now - self.last_learned
        return ago > STALE_S and ago > STALE_RUNS * seconds

    def table(self) -> dict[int, tuple[int, float, float]]:
        """For people: rows → (durations kept, median, slowest), seconds."""
        return {rows: (len(size.recent), size.median, size.longest) for rows, size in sorted(self.sizes.items())}

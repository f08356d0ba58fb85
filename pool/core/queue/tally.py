"""How the jobs of one model ended, by version, and where the time of those with a result went.

Everything counts up from the pool's start. A job with a result costs the bit lengths of two numbers and four additions,
and a batch the same. The last minute is the difference between two snapshots of the same numbers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.core.jobs import Job

__all__ = ["Counts", "Departed", "Tally"]

# Of a second, and a hair less: what lasts exactly 2^n µs is in the bucket that ends there.
MICROSECONDS = 1e6 * (1 - 1e-9)
BUCKETS = 64  # bucket n: at most 2^n µs, or rows, and more than the one before
LONGEST_S = 1e12  # a worker says how long it ran, and may lie
MOST_ROWS = 1 << 62
MOST_VERSIONS = 8  # of one model, whose counts are kept
MOST_DEPARTED = 64  # models that are gone, whose tallies are kept
WINDOW_S = 60.0
STEP_S = 5.0  # between two snapshots


class Counts:
    """Of the jobs that one version ran. `total`, `queue` and `run`: of those with a result, by bucket of their time.

    `batch_wait` lacks those that waited for no company. `rows`: batches that a worker has answered, by bucket of their
    size. What ends in `_s` is the sum of the times, `rows_sum` that of the sizes. `failed`: jobs with an error, by its
    kind.
    """

    __slots__ = (
        *("batch_wait", "batch_wait_s", "cancelled", "failed", "queue", "queue_s"),
        *("rows", "rows_sum", "run", "run_s", "total", "total_s"),
    )

    def __init__(self) -> None:
        self.total, self.total_s = [0] * BUCKETS, 0.0
        self.queue, self.queue_s = [0] * BUCKETS, 0.0
        self.batch_wait, self.batch_wait_s = [0] * BUCKETS, 0.0
        self.run, self.run_s = [0] * BUCKETS, 0.0
        self.rows, self.rows_sum = [0] * BUCKETS, 0.0  # which cannot grow beyond what msgpack holds
        self.failed: Counter[str] = Counter()
        self.cancelled = 0

    def result(self, job: Job, started: float, now: float) -> None:
        """A job has its result now; the batch with its last rows had `started` then."""
        arrived, weight, gathered_s = job.arrived, job.weight, job.gathered_s
        seconds = now - arrived
        self.total[int(seconds * MICROSECONDS).bit_length()] += weight
        self.total_s += seconds * weight
        seconds = started - arrived
        if gathered_s:
            seconds -= gathered_s
            self.batch_wait[int(gathered_s * MICROSECONDS).bit_length()] += weight
            self.batch_wait_s += gathered_s * weight
        self.queue[int(seconds * MICROSECONDS).bit_length()] += weight
        self.queue_s += seconds * weight

    def batch(self, rows: int, results: int, run_s: float) -> None:
        """A worker has answered a batch, of which so many jobs have their results now."""
        if rows > MOST_ROWS:
            rows = MOST_ROWS
        self.rows[(rows - 1).bit_length() if rows else 0] += 1
        self.rows_sum += rows
        if results:
            if run_s > LONGEST_S:
                run_s = LONGEST_S
            self.run[int(run_s * MICROSECONDS).bit_length()] += results
            self.run_s += run_s * results

    def snapshot(self) -> dict[str, Any]:
        done, waited = sum(self.total), list(self.batch_wait)
        waited[0] += done - sum(waited)
        jobs = {"done": done, **self.failed, "cancelled": self.cancelled}
        return {
            "jobs": {outcome: count for outcome, count in jobs.items() if count or outcome == "done"},
            "total": _histogram(self.total, self.total_s),
            "queue": _histogram(self.queue, self.queue_s),
            "batch_wait": _histogram(waited, self.batch_wait_s),
            "run": _histogram(self.run, self.run_s),
            "batch_rows": _histogram(self.rows, self.rows_sum),
        }


class Tally:
    """`versions`: by the number of the version that ran them; None: no numbered version, or they never ran."""

    __slots__ = ("_answered", "_began", "_snapshots", "_total", "device_s", "due", "versions")

    def __init__(self) -> None:
        self.versions: dict[int | None, Counts] = {}
        self.device_s = 0.0
        self.due = 0.0
        """`snap` is to be called before a job is counted at this instant or later."""
        self._began: float | None = None
        self._total, self._answered = [0] * BUCKETS, Counter[str]()  # of versions whose counts are not kept any more
        # (a multiple of STEP_S, results by bucket and errors as they were then); no job ended between `due` and a
        # snapshot, so each counts what ended up to its instant, however late it was taken.
        self._snapshots: deque[tuple[float, list[int], int]] = deque(maxlen=int(WINDOW_S / STEP_S) + 1)

    def of(self, version: int | None) -> Counts:
        """The counts of a version. Those of the one that came first are forgotten where there are many."""
        counts = self.versions.get(version)
        if counts is None:
            counts = self.versions[version] = Counts()
            if len(self.versions) > MOST_VERSIONS:
                gone = self.versions.pop(next(iter(self.versions)))
                self._total = [before + more for before, more in zip(self._total, gone.total, strict=True)]
                self._answered.update(gone.failed)
        return counts

    def snap(self, now: float) -> None:
        """Before a job is counted that ends now."""
        at = now // STEP_S * STEP_S
        if self._began is None:
            self._began = at - STEP_S
        self._snapshots.append((at, self._done(), self._failed()))
        self.due = at + STEP_S

    def fail(self, kind: str, jobs: int, version: int | None, now: float) -> None:
        if now >= self.due:
            self.snap(now)
        self.of(version).failed[kind] += jobs

    def answered(self) -> dict[str, int]:
        """How many jobs had which answer."""
        failed = self._answered.copy()
        for counts in self.versions.values():
            failed.update(counts.failed)
        return {"done": sum(self._done()), **failed}

    def last_minute(self, now: float) -> dict[str, Any]:
        """For people. Half of the jobs took at most `p50_s`, the end of a bucket; None: no job had a result.

        `seconds`: the length of the window, from five seconds, when the first job has just ended, to sixty.
        """
        since = now // STEP_S * STEP_S - WINDOW_S + STEP_S
        nothing = (now, self._done(), self._failed())
        _, done_before, failed_before = next((each for each in self._snapshots if each[0] >= since), nothing)
        done = [count - before for count, before in zip(nothing[1], done_before, strict=True)]
        return {
            "seconds": now - max(since, since if self._began is None else self._began),
            "done": sum(done),
            "failed": nothing[2] - failed_before,
            "p50_s": _quantile(done, 0.5),
            "p99_s": _quantile(done, 0.99),
        }

    def rest(self) -> None:
        """Its model is gone, for now: nothing ends any more, and what lies a minute back is of no interest."""
        self._snapshots.clear()
        self.due = 0.0

    def snapshot(self) -> list[dict[str, Any]]:
        return [{"version": version, **counts.snapshot()} for version, counts in self.versions.items()]

    def _done(self) -> list[int]:
        """Results by bucket, of all versions."""
        totals = (self._total, *(counts.total for counts in self.versions.values()))
        return [sum(counts) for counts in zip(*totals, strict=True)]

    def _failed(self) -> int:
        return self._answered.total() + sum(counts.failed.total() for counts in self.versions.values())


class Departed:
    """The tallies of models that are gone: what was counted last is told too, and one that comes back counts on."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[str, Tally] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, Tally]]:
        return iter(self._tallies.items())

    def keep(self, name: str, tally: Tally) -> None:
        """The one that left first is forgotten where there are many."""
        tally.rest()
        self._tallies[name] = tally
        if len(self._tallies) > MOST_DEPARTED:
            self._tallies.popitem(last=False)

    def back(self, name: str) -> Tally:
        """Of a model that comes, perhaps again."""
        return self._tallies.pop(name, None) or Tally()


def _histogram(counts: list[int], total: float) -> dict[str, Any]:
    """Without the empty buckets at its end."""
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return {"counts": counts[: last + 1], "sum": total}


def _quantile(counts: list[int], share: float) -> float | None:
    """The end of the first bucket that, with those below, has this share of all."""
    sums = list(accumulate(counts))
    if not sums[-1]:
        return None
    place = next(place for place, total in enumerate(sums) if total >= share * sums[-1])
    return (1 << place) / 1e6
